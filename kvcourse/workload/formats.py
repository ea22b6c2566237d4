"""The three trace formats, a line at a time: does this line fit, and which requests does it hold.

Mooncake: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`, one id for every 512 tokens begun. Azure:
`TIMESTAMP,ContextTokens,GeneratedTokens`. Agentic: one conversation a line, ids of full blocks that mean something
inside the conversation only, sub-agents nested in it with the same ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kvcourse.workload.trace import Request

MOONCAKE_BLOCK = 512
LIMIT = 10**15  # tokens, and milliseconds: what is larger is damage
DIGITS = 7  # of a second: a tenth of a microsecond, the resolution of the Azure traces
CLOCKS = ("conversation", "written")
AZURE_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
AZURE_COUNT = re.compile(r"[0-9]{1,15}")

Parse = Callable[[str], Iterator[Request]]


class Damaged(Exception):
    """What is wrong with a line, to be put behind its number."""


@dataclass(frozen=True)
class Format:
    """A format, and what the first line says about this file."""

    name: str
    fits: Callable[[str], bool]
    make_parser: Callable[[Format], Parse]
    block_size: int = 0
    partial_last: bool = False
    nested_clock: str = CLOCKS[0]

    def start(self, line: str, nested_clock: str) -> Format:
        if nested_clock not in CLOCKS:
            raise ValueError(f"nested_clock {nested_clock!r} is not one of {CLOCKS}")
        if self.name.startswith("Azure"):
            return self
        record = _record(line)
        size = record.get("block_size", self.block_size)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise Damaged(f"block_size is {_short(size)}, not a positive whole number")
        partial = bool(record.get("partial_last", self.partial_last))
        return replace(self, block_size=size, partial_last=partial, nested_clock=nested_clock)

    def parser(self) -> Parse:
        """A fresh one for each reading of the file: it remembers earlier lines."""
        return self.make_parser(self)

    def check_ids(self, ids: Any, input_tokens: int) -> None:
        """Damaged unless `ids` is as many different whole numbers as a prompt of this length has blocks."""
        if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:
            raise Damaged("hash_ids is not a list of whole numbers")
        want = -(-input_tokens // self.block_size) if self.partial_last else input_tokens // self.block_size
        if len(ids) != want:
            raise Damaged(f"{input_tokens} tokens in blocks of {self.block_size} need {want} ids, not {len(ids)}")
        if len(set(ids)) != want:
            raise Damaged("a block id stands twice in one prompt")


def _mooncake(form: Format) -> Parse:
    def parse(line: str) -> Iterator[Request]:
        record = _record(line)
        if record.get("block_size", form.block_size) != form.block_size:
            raise Damaged(f"block_size is {_short(record['block_size'])}, before it was {form.block_size}")
        tokens, out = _count(record, "input_length"), _count(record, "output_length")
        ids = record.get("hash_ids")
        form.check_ids(ids, tokens)
        names = {name: str(record[name]) for name in ("session", "kind") if name in record}
        yield Request(round(_seconds(record, "timestamp") / 1000, DIGITS), tokens, out, tuple(ids), **names)

    return parse


def _agentic(form: Format) -> Parse:
    first_free = 0

    def parse(line: str) -> Iterator[Request]:
        nonlocal first_free
        record = _record(line)
        if record.get("block_size") != form.block_size:
            raise Damaged(f"block_size is {_short(record.get('block_size'))}, before it was {form.block_size}")
        names: dict[int, int] = {}  # the conversation's own ids -> ids of the whole trace, each number kept once
        session = str(record.get("id", ""))
        for entry, start, nested in _flattened(record.get("requests")):
            tokens, out, ids = _count(entry, "in"), _count(entry, "out"), entry.get("hash_ids")
            form.check_ids(ids, tokens)
            for block in ids:
                if block not in names:
                    names[block] = first_free + len(names)
            arrival = _seconds(entry, "t") + (start if form.nested_clock == CLOCKS[0] else 0.0)
            blocks = tuple(map(names.__getitem__, ids))
            yield Request(round(arrival, DIGITS), tokens, out, blocks, session, "subagent" if nested else "agent")
        first_free += len(names)

    return parse


def _flattened(entries: Any, start: float = 0.0, nested: bool = False) -> Iterator[tuple[dict, float, bool]]:
    """Every request of a conversation in the order of the file, with the start of its sub-agent, if any."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Damaged("requests is not a list of requests")
    for entry in entries:
        if entry.get("type") == "subagent":
            yield from _flattened(entry.get("requests"), start + _seconds(entry, "t"), nested=True)
        else:
            yield entry, start, nested


def _azure(_form: Format) -> Parse:
    origin: tuple[float, float] | None = None

    def parse(line: str) -> Iterator[Request]:
        nonlocal origin
        if line.startswith("TIMESTAMP"):
            return
        fields = line.split(",")
        if len(fields) != 3:
            raise Damaged(f"{len(fields)} fields instead of TIMESTAMP, ContextTokens, GeneratedTokens")
        moment = _azure_time(fields[0])
        if not all(AZURE_COUNT.fullmatch(field) for field in fields[1:]):
            raise Damaged(f"{_short(fields[1])} and {_short(fields[2])} are not two numbers of tokens")
        origin = origin or moment
        arrival = (moment[0] - origin[0]) + (moment[1] - origin[1])
        yield Request(round(arrival, DIGITS), int(fields[1]), int(fields[2]))

    return parse


def _azure_time(text: str) -> tuple[float, float]:
    """Whole seconds since 2020 and the fraction, apart: one float has no room for both."""
    match = AZURE_TIME.fullmatch(text)
    try:
        whole = datetime.fromisoformat(match[1]) if match else None
    except ValueError:
        whole = None
    if match is None or whole is None:
        raise Damaged(f"{_short(text)} is not a time such as 2023-11-16 18:17:03.9799600")
    return (whole - datetime(2020, 1, 1)).total_seconds(), float(match[2] or 0)


def _record(line: str) -> dict:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise Damaged("it is not JSON") from None
    if not isinstance(record, dict):
        raise Damaged("it is not a JSON object")
    return record


def _count(record: dict, name: str) -> int:
    value = record.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LIMIT:
        raise Damaged(f"{name} is {_short(value)}, not a number of tokens")
    return value


def _seconds(record: dict, name: str) -> float:
    value = record.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not -LIMIT < value < LIMIT:  # nan is not
        raise Damaged(f"{name} is {_short(value)}, not a time")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _has(*names: str) -> Callable[[str], bool]:
    def fits(line: str) -> bool:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(record, dict) and all(name in record for name in names)

    return fits


FORMATS = (
    Format("Azure csv", lambda line: line.startswith("TIMESTAMP,"), _azure),
    Format("Mooncake jsonl", _has("hash_ids", "input_length"), _mooncake, MOONCAKE_BLOCK, partial_last=True),
    Format("agentic jsonl", _has("requests", "block_size"), _agentic),
)
