"""Trace files: formats, compression, round trips, damage."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcourse.tasks.course import UserError
from kvcourse.workload import Request, Trace, open_trace, read_trace, write_trace

MOONCAKE = [
    {"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 1500, "input_length": 1024, "output_length": 7, "hash_ids": [0, 3]},
]
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319600,3180,8"
)
AGENTIC = [
    {
        "id": "one",
        "block_size": 64,
        "requests": [
            {"t": 0.0, "type": "n", "in": 130, "out": 9, "hash_ids": [1, 2]},
            {
                "t": 10.0,
                "type": "subagent",
                "requests": [{"t": 1.5, "type": "n", "in": 70, "out": 3, "hash_ids": [1]}],
            },
            {"t": 30.0, "type": "s", "in": 200, "out": 1, "hash_ids": [1, 2, 3]},
        ],
    },
    {"id": "two", "block_size": 64, "requests": [{"t": 2, "type": "n", "in": 64, "out": 1, "hash_ids": [1]}]},
]


def lines(records: list[dict]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_mooncake(tmp_path):
    """Milliseconds become seconds; the last block has an id whether it is full or not."""
    (tmp_path / "m.jsonl").write_text(lines(MOONCAKE))
    trace = read_trace(tmp_path / "m.jsonl")
    assert (trace.name, trace.block_size, trace.partial_last) == ("m", 512, True)
    assert trace.requests == (Request(0.0, 1030, 5, (0, 1, 2)), Request(1.5, 1024, 7, (0, 3)))
    assert [request.block_ids for request in trace.convention("F")] == [(0, 1), (0, 3)]


def test_azure(tmp_path):
    """Arrivals count from the first row, to a tenth of a microsecond; there are no blocks."""
    (tmp_path / "a.csv").write_text(AZURE, newline="")
    trace = read_trace(tmp_path / "a.csv")
    assert trace.requests == (Request(0.0, 4808, 10), Request(0.052, 3180, 8))
    assert not trace.has_blocks


def test_azure_of_2024(tmp_path):
    """The later files write a time zone."""
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 23:59:59.5+00:00,1,2\n2024-05-11 00:00:00+00:00,3,4\n"
    (tmp_path / "a.csv").write_text(text)
    assert [request.arrival for request in read_trace(tmp_path / "a.csv")] == [0.0, 0.5]


def test_agentic(tmp_path):
    """Sub-agents share the ids of their conversation, other conversations do not; nested times are moved if wanted."""
    (tmp_path / "g.jsonl").write_text(lines(AGENTIC))
    trace = read_trace(tmp_path / "g.jsonl")
    assert (trace.block_size, trace.partial_last) == (64, False)
    assert [request.block_ids for request in trace] == [(0, 1), (0,), (0, 1, 2), (3,)]
    assert [request.arrival for request in trace] == [0.0, 11.5, 30.0, 2.0]
    assert [request.kind for request in trace] == ["agent", "subagent", "agent", "agent"]
    assert [request.session for request in trace] == ["one", "one", "one", "two"]
    assert [request.arrival for request in trace.by_arrival()] == [0.0, 2.0, 11.5, 30.0]
    written = read_trace(tmp_path / "g.jsonl", nested_clock="written")
    assert [request.arrival for request in written] == [0.0, 1.5, 30.0, 2.0]
    with pytest.raises(ValueError, match="nested_clock 'mine'"):
        open_trace(tmp_path / "g.jsonl", nested_clock="mine")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("text", [lines(MOONCAKE), AZURE, lines(AGENTIC), "\ufeff" + lines(MOONCAKE) + "\n\n"])
def test_compression_is_seen_in_the_content(tmp_path, pack, text):
    """Names do not matter; a byte-order mark and blank lines do no harm; a file can be read again."""
    (tmp_path / "plain").write_text(text, encoding="utf-8")
    (tmp_path / "packed").write_bytes(pack(text.encode("utf-8")))
    file = open_trace(tmp_path / "packed")
    assert tuple(file) == tuple(file) == read_trace(tmp_path / "plain").requests


@st.composite
def any_trace(draw) -> Trace:
    size, partial = draw(st.integers(1, 600)), draw(st.booleans())
    requests = []
    for _ in range(draw(st.integers(1, 6))):
        tokens = draw(st.integers(1, 3000))
        count = -(-tokens // size) if partial else tokens // size
        first = draw(st.integers(0, 10**9))
        arrival = draw(st.integers(0, 10**11)) / 10**7
        requests.append(
            Request(
                arrival,
                tokens,
                draw(st.integers(0, 5000)),
                tuple(range(first, first + count)),
                draw(st.text(max_size=5)),
                draw(st.sampled_from(["", "chat", "agent"])),
            )
        )
    return Trace("t", tuple(requests), size, partial)


@given(any_trace())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_round_trip(tmp_path, trace):
    """What is written is read back, to the tenth of a microsecond."""
    write_trace(trace, tmp_path / "t.jsonl")
    assert read_trace(tmp_path / "t.jsonl") == trace


def without(record: dict, *names: str, **changes) -> dict:
    return {name: value for name, value in record.items() if name not in names} | changes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "f is empty."),
        ("hello\n", "f is in no format known here: Mooncake jsonl, Azure csv or agentic jsonl."),
        ('{"a": 1}\n', "f is in no format known"),
        ("[" * 100_000, "f is in no format known"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "f holds no requests."),
        (lines(MOONCAKE) + '{"timestamp": 3, "inp', "f, line 3: it is not JSON."),
        (lines(MOONCAKE) + "\n[1]\n", "f, line 4: it is not a JSON object."),
        (lines([*MOONCAKE, without(MOONCAKE[0], "hash_ids")]), "f, line 3: hash_ids is not a list of whole numbers."),
        (lines([MOONCAKE[0] | {"hash_ids": [1, 2, "x"]}]), "f, line 1: hash_ids is not a list of whole numbers."),
        (lines([MOONCAKE[0] | {"hash_ids": [1, 2, True]}]), "f, line 1: hash_ids is not a list of whole numbers."),
        (lines([MOONCAKE[0] | {"hash_ids": [1, 2]}]), "f, line 1: 1030 tokens in blocks of 512 need 3 ids, not 2."),
        (lines([MOONCAKE[0] | {"hash_ids": [1, 2, 1]}]), "f, line 1: a block id stands twice in one prompt."),
        (lines([MOONCAKE[0] | {"input_length": -3}]), "f, line 1: input_length is -3, not a number of tokens."),
        (lines([MOONCAKE[0] | {"output_length": 1.5}]), "f, line 1: output_length is 1.5, not a number of tokens."),
        (lines([MOONCAKE[0] | {"timestamp": float("nan")}]), "f, line 1: timestamp is nan, not a time."),
        (lines([MOONCAKE[0] | {"timestamp": 10**400}]), "f, line 1: timestamp is 1000"),
        (lines([MOONCAKE[0] | {"timestamp": "1"}]), "f, line 1: timestamp is '1', not a time."),
        (lines([MOONCAKE[0] | {"block_size": 0}]), "f, line 1: block_size is 0, not a positive whole number."),
        (lines([MOONCAKE[0], MOONCAKE[1] | {"block_size": 64}]), "f, line 2: block_size is 64, before it was 512."),
        (lines([AGENTIC[0], AGENTIC[1] | {"block_size": 32}]), "f, line 2: block_size is 32, before it was 64."),
        (lines([AGENTIC[0], AGENTIC[1] | {"requests": 5}]), "f, line 2: requests is not a list of requests."),
        (lines([AGENTIC[1] | {"requests": [{"t": 0, "in": 64, "out": 1}]}]), "f, line 1: hash_ids is not a list"),
        (AZURE + "\n1,2\n", "f, line 4: 2 fields instead of TIMESTAMP, ContextTokens, GeneratedTokens."),
        (AZURE + "\nnow,2,3\n", "f, line 4: 'now' is not a time such as 2023-11-16 18:17:03.9799600."),
        (AZURE + "\n2023-13-16 18:17:03,2,3\n", "f, line 4: '2023-13-16 18:17:03' is not a time such as"),
        (AZURE + "\n2023-11-16 18:17:03,-2,3\n", "f, line 4: '-2' and '3' are not two numbers of tokens."),
    ],
)
def test_damage(tmp_path, text, sentence):
    """Each kind of damage is one sentence with the number of the line."""
    (tmp_path / "f").write_text(text)
    with pytest.raises(UserError) as problem:
        read_trace(tmp_path / "f")
    assert str(problem.value).startswith(sentence)
    assert "\n" not in str(problem.value) and str(problem.value).endswith(".")


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_noise(tmp_path, data):
    """Bytes changed at random give a trace or a sentence, never another exception."""
    text = data.draw(st.sampled_from([lines(MOONCAKE), AZURE, lines(AGENTIC)])).encode()
    content = bytearray(data.draw(st.sampled_from([bytes, gzip.compress, lzma.compress]))(text))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "f").write_bytes(content)
    try:
        read_trace(tmp_path / "f")
    except UserError as problem:
        assert len(str(problem).splitlines()) == 1


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_broken_compression(tmp_path, pack):
    """A file cut short or overwritten in the middle is damaged, not a traceback."""
    whole = pack(lines([MOONCAKE[0] | {"timestamp": number} for number in range(2000)]).encode())
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise").write_bytes(whole[:40] + bytes(60) + whole[100:])
    for name, why in (
        ("cut", r"damaged after line \d+: the file ends too early"),
        ("noise", "the compression is broken|line"),
    ):
        with pytest.raises(UserError, match=why):
            read_trace(tmp_path / name)


def test_no_such_file(tmp_path):
    """A missing file, a folder and a picture are sentences too."""
    with pytest.raises(UserError, match=r"There is no file .*nothing\.jsonl\."):
        read_trace(tmp_path / "nothing.jsonl")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\xff\xfe\n")
    with pytest.raises(UserError, match="picture, line 1: it is not text"):
        read_trace(tmp_path / "picture")


def test_import_is_light():
    """Importing the package brings in no torch, no transformers, no NumPy of its own, and nothing of the network."""
    code = (
        "import sys, kvcourse; before = set(sys.modules); import kvcourse.workload; "
        "print(*(name for name in ('torch', 'transformers', 'tqdm', 'urllib.request') if name in sys.modules), "
        "*(['numpy'] if 'numpy' in set(sys.modules) - before else []))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
