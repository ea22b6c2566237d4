"""Downloads from a server on this machine, where traces are found, and what the command prints."""

from __future__ import annotations

import hashlib
import json
import socket
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from kvcourse.tasks.course import UserError
from kvcourse.workload import download, find_trace, load_trace
from kvcourse.workload.cli import trace_fetch, trace_list, trace_stats
from kvcourse.workload.download import SOURCES, Source, download_trace, fetch

RECORD = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
CONTENT = "".join(json.dumps(RECORD | {"timestamp": number}) + "\n" for number in range(2000)).encode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path == "/nonsense":
            self.wfile.write(b"nonsense\r\n\r\n")
            return
        status, body, claimed = self.server.pages.get(self.path, (404, b"", None))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if claimed is None else claimed))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.pages, http.asked = {"/good": (200, CONTENT, None)}, []
        http.at = lambda page: f"http://127.0.0.1:{http.server_port}{page}"
        thread = Thread(target=partial(http.serve_forever, poll_interval=0.01))
        thread.start()
        yield http
        http.shutdown()
        thread.join()


def source(*addresses: str, content: bytes = CONTENT) -> Source:
    return Source("t.jsonl", hashlib.sha256(content).hexdigest(), len(content), addresses, "none", "a test")


def left_in(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_fetch(server, tmp_path):
    """A file arrives whole, and a second call asks nobody."""
    folder = tmp_path / "new" / "folder"
    assert fetch(source(server.at("/good")), folder).read_bytes() == CONTENT
    assert fetch(source(server.at("/good")), folder).read_bytes() == CONTENT
    assert server.asked == ["/good"] and left_in(folder) == {"t.jsonl"}


def test_fetch_in_parts(server, tmp_path):
    """Several addresses become one file, a line each."""
    server.pages |= {"/1": (200, b'{"a":1}', None), "/2": (200, b'{"b":2}', None)}
    wanted = source(server.at("/1"), server.at("/2"), content=b'{"a":1}\n{"b":2}\n')
    assert fetch(wanted, tmp_path).read_bytes() == b'{"a":1}\n{"b":2}\n'


def test_a_bad_file_is_replaced_by_a_good_one_only(server, tmp_path):
    """A damaged copy is fetched again, and stays where the new one is no better."""
    (tmp_path / "t.jsonl").write_bytes(b"damaged")
    with pytest.raises(UserError):
        fetch(source(server.at("/missing")), tmp_path)
    assert (tmp_path / "t.jsonl").read_bytes() == b"damaged" and left_in(tmp_path) == {"t.jsonl"}
    assert fetch(source(server.at("/good")), tmp_path).read_bytes() == CONTENT
    (tmp_path / "t.jsonl").write_bytes(CONTENT[::-1])
    assert fetch(source(server.at("/good")), tmp_path).read_bytes() == CONTENT


def test_not_a_web_server(server, tmp_path):
    """An answer that is no HTTP."""
    with pytest.raises(UserError, match=r"the server's answer is broken \(BadStatusLine\)"):
        fetch(source(server.at("/nonsense")), tmp_path)
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ((200, CONTENT[:-1] + b"?", None), "is not the published file: its SHA-256 is"),
        ((200, CONTENT * 3, None), f"is not the published file: it has more than {len(CONTENT):,} bytes"),
        ((200, CONTENT[:500], None), f"is not the published file: it has 500 bytes of {len(CONTENT):,}"),
        ((404, b"", None), "the server answered 404 for http"),
        ((200, CONTENT[:500], 9999), "is not the published file: it has 500 bytes of"),
    ],
)
def test_wrong_answers(server, tmp_path, page, sentence):
    """Another file, a page that is missing, a connection that breaks: a sentence, and nothing left behind."""
    server.pages["/bad"] = page
    with pytest.raises(UserError) as problem:
        fetch(source(server.at("/bad")), tmp_path)
    assert sentence in str(problem.value) and str(problem.value).endswith("here.") and "\n" not in str(problem.value)
    assert left_in(tmp_path) == set()


def test_interrupted(server, tmp_path, monkeypatch):
    """Control-C in the middle leaves nothing behind."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("kvcourse.workload.download._check", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(source(server.at("/good")), tmp_path)
    assert left_in(tmp_path) == set()


def test_offline(tmp_path, monkeypatch):
    """No connection is one sentence that names the way without one."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/x"
        with pytest.raises(UserError, match=r"could not be downloaded: .*refused.*; `kvcourse.workload.generate\(\)`"):
            fetch(source(address), tmp_path)


def test_no_folder(server, tmp_path):
    """A folder that cannot be made is a sentence too."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"could not be downloaded: (Not a directory|File exists)"):
        fetch(source(server.at("/good")), tmp_path / "file" / "folder")


def test_by_name(server, tmp_path, monkeypatch, capsys):
    """A name is enough: the trace goes to the cache folder, and is found there and loaded."""
    monkeypatch.setenv("KVCOURSE_CACHE", str(tmp_path))
    monkeypatch.setenv("KVCOURSE_TRACES", str(tmp_path / "none"))
    monkeypatch.setitem(SOURCES, "test_trace", source(server.at("/good")))
    with pytest.raises(UserError, match=r"The trace test_trace is not on this machine: .*download_trace"):
        find_trace("test_trace")
    path = download_trace("test_trace")
    assert path == tmp_path / "traces" / "t.jsonl" == find_trace("test_trace")
    assert len(load_trace("test_trace")) == 2000
    assert trace_fetch("test_trace") == 0
    assert capsys.readouterr().out.strip() == str(path)
    for unknown in (download_trace, find_trace, trace_fetch):
        with pytest.raises(UserError, match=r"There is no trace 'test_trase'\. Did you mean 'test_trace'"):
            unknown("test_trase")


def test_named_folder_comes_first(tmp_path, monkeypatch):
    """$KVCOURSE_TRACES is looked through first, compressed files too."""
    monkeypatch.setenv("KVCOURSE_TRACES", str(tmp_path))
    (tmp_path / "azure_code_2023.csv.gz").write_text("")
    assert find_trace("azure_code_2023") == tmp_path / "azure_code_2023.csv.gz"


def test_sources():
    """Names, hashes, and addresses with a whole commit; 58 files make the agentic sample."""
    assert len(SOURCES) == 5 and len(SOURCES["agentic_sample"].addresses) == 58
    for name, entry in SOURCES.items():
        assert entry.file.startswith(name + ".") and len(entry.sha256) == 64
        for address in entry.addresses:
            assert address.startswith("https://raw.githubusercontent.com/") and len(address.split("/")[5]) == 40
    assert download.SOURCES is SOURCES


def test_list(capsys):
    """The list names every trace, its size and its licence."""
    assert trace_list() == 0
    out = capsys.readouterr().out
    assert all(name in out for name in SOURCES) and "Apache-2.0" in out and "CC-BY 4.0" in out


def test_stats(tmp_path, capsys):
    """Statistics of a trace with blocks: every line a learner needs, no traceback, code 0."""
    (tmp_path / "t.jsonl").write_bytes(CONTENT)
    assert trace_stats(tmp_path / "t.jsonl") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("t.jsonl: Mooncake jsonl, blocks of 512 tokens, the last block has an id")
    names = "requests, arrivals, prompt tokens, answer tokens, blocks, reuse ceiling, first block, whole prompts"
    assert [line.split("  ")[0] for line in lines[1:]] == names.split(", ")
    assert "2,000" in lines[1] and "1,000.50 a second, CV of the gaps 0.00" in lines[2]
    assert "mean 600, p50 600, p99 600, max 600; 1,200,000 in all" in lines[3]
    assert "4,000, 2 different; longest prompt 2" in lines[5] and "100.0%" in lines[6] and "100.0%" in lines[7]
    assert "1,999 of 2,000" in lines[8]


def test_stats_of_lengths_and_of_one_request(tmp_path, capsys):
    """Lengths only, and a trace too short for a rate."""
    (tmp_path / "a.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,48,10\n")
    assert trace_stats(tmp_path / "a.csv") == 0
    out = capsys.readouterr().out
    assert "arrivals         0.0 s\n" in out and "lengths only" in out and "nan" not in out


def test_stats_of_mistakes(tmp_path):
    """Mistakes come out as one sentence each, for the command line to print."""
    with pytest.raises(UserError, match="There is no file"):
        trace_stats(tmp_path / "x.jsonl")
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(UserError, match=r"x\.txt is in no format known here"):
        trace_stats(tmp_path / "x.txt")
