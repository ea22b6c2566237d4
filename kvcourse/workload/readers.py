"""Trace files: what format a file has is seen from its content; plain, .gz and .xz; read line by line.

Three formats are known: Mooncake jsonl (FAST 2025), Azure LLM inference csv (2023, 2024), and agentic jsonl
(kv-cache-tester). `write_trace` writes the Mooncake format with the block convention added.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kvcourse.tasks.course import UserError
from kvcourse.workload.bar import progress_bar
from kvcourse.workload.formats import FORMATS, Damaged, Format
from kvcourse.workload.trace import Request, Trace

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
CORRUPT = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


def read_trace(path: Path | str, *, nested_clock: str = "conversation") -> Trace:
    """The whole trace in memory, in file order; see `open_trace` for the errors and `nested_clock`."""
    file = open_trace(path, nested_clock=nested_clock)
    requests = tuple(file)
    return Trace(file.path.name.split(".")[0], requests, file.format.block_size, file.format.partial_last)


def open_trace(path: Path | str, *, nested_clock: str = "conversation") -> TraceFile:
    """The file as something to loop over, one request at a time.

    `nested_clock` concerns the agentic format, where a sub-agent's requests count their time from the sub-agent's
    start: "conversation" puts them on the clock of the conversation, "written" leaves the numbers as they stand in
    the file. UserError, one sentence: no such file, a format not known, a damaged line (with its number).
    """
    path = Path(path)
    for number, line in _lines(path):
        chosen = next((form for form in FORMATS if form.fits(line)), None)
        if chosen is None:
            raise UserError(f"{path.name} is in no format known here: Mooncake jsonl, Azure csv or agentic jsonl.")
        try:
            return TraceFile(path, chosen.start(line, nested_clock))
        except Damaged as problem:
            raise UserError(f"{path.name}, line {number}: {problem}.") from None
    raise UserError(f"{path.name} is empty.")


@dataclass(frozen=True)
class TraceFile:
    """A trace on disk; every loop over it reads the file anew."""

    path: Path
    format: Format

    def __iter__(self) -> Iterator[Request]:
        parse, some = self.format.parser(), False
        for number, line in _lines(self.path, bar=True):
            try:
                for request in parse(line):
                    some = True
                    yield request
            except Damaged as problem:
                raise UserError(f"{self.path.name}, line {number}: {problem}.") from None
        if not some:
            raise UserError(f"{self.path.name} holds no requests.")


def write_trace(trace: Trace, path: Path) -> None:
    """Mooncake jsonl; `block_size` (and `partial_last`, `session`, `kind` where they differ from the default) added.

    Contents of synthetic prompts are not kept; arrivals are kept to a tenth of a microsecond.
    """
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for request in trace:
            record: dict = {
                "timestamp": round(request.arrival * 1000, 4),
                "input_length": request.input_tokens,
                "output_length": request.output_tokens,
                "hash_ids": request.block_ids,
                "block_size": trace.block_size,
            }
            if not trace.partial_last:
                record["partial_last"] = False
            record |= {name: value for name in ("session", "kind") if (value := getattr(request, name))}
            file.write(json.dumps(record) + "\n")


def _lines(path: Path, bar: bool = False) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and text of every line that is not blank."""
    number = 0
    try:
        with open(path, "rb") as raw, progress_bar(path.stat().st_size if bar else 0, "B", f"read {path.name}") as done:
            for number, line in enumerate(_unpacked(raw), start=1):
                done.update(raw.tell() - done.n)
                text = line.decode("utf-8-sig").strip()
                if text:
                    yield number, text
    except CORRUPT as error:
        raise UserError(f"{path.name} is damaged after line {number}: {_reason(error)}.") from error
    except UnicodeDecodeError:
        raise UserError(f"{path.name}, line {number}: it is not text.") from None
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    start = raw.read(len(XZ))
    raw.seek(0)
    if start.startswith(GZIP):
        return gzip.open(raw)  # type: ignore[return-value]
    return lzma.open(raw) if start == XZ else raw  # type: ignore[return-value]


def _reason(error: Exception) -> str:
    return "the file ends too early" if isinstance(error, EOFError) else "the compression is broken"
