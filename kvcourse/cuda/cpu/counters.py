"""What a launch asked of memory, summed up and line by line.

A model of the source, not of nvcc's output: every access in the text is counted, there are no caches and no optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

SECTOR, LINE, BANKS = 32, 128, 32  # bytes, bytes, banks of shared memory


@dataclass(frozen=True)
class Sample:
    """One request of a warp: `offsets` in bytes from the start of `object`, None for a lane that took no part.

    `start` is where the object begins within a line of 512 bytes.
    """

    object: str
    start: int
    block: int
    warp: int
    offsets: tuple[int | None, ...]


@dataclass
class LineCount:
    """All requests of one kind that one line of the source made. A request is one instruction of one warp."""

    line: int | None
    kind: str  # load, store, atomic
    shared: bool
    bytes_each: int
    requests: int = 0
    lanes: int = 0
    bytes: int = 0  # distinct bytes that lanes asked for, request by request
    sectors: int = 0
    lines: int = 0
    least_sectors: int = 0
    waves: int = 0
    least_waves: int = 0
    samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True)
class Counters:
    """Sums over a launch.

    Global memory moves in sectors of 32 bytes, four to a line; `least_sectors` would do if none were wasted. Shared
    memory answers a request in one wave, or in as many as its fullest bank needs; `least_waves` is without conflicts.
    """

    loads: int = 0
    stores: int = 0
    load_sectors: int = 0
    store_sectors: int = 0
    lines: int = 0
    bytes: int = 0
    least_sectors: int = 0
    shared_requests: int = 0
    waves: int = 0
    least_waves: int = 0
    shared_bytes: int = 0
    lanes: int = 0
    atomics: int = 0
    barriers: int = 0
    warp_functions: int = 0

    @property
    def sectors(self) -> int:
        return self.load_sectors + self.store_sectors

    @property
    def bank_conflicts(self) -> int:
        """Waves beyond those that any access needs."""
        return self.waves - self.least_waves

    def as_dict(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def read_counts(raw: dict[str, Any], line_of: Callable[[list[int]], int | None]) -> tuple[Counters, list[LineCount]]:
    """The counters of the runtime's reply, summed and by line."""
    lines: dict[tuple, LineCount] = {}
    for count in raw["counts"]:
        kind = "atomic" if count["atomic"] else "store" if count["write"] else "load"
        line = line_of(count["place"])
        key = (line, kind, bool(count["shared"]), count["size"])
        total = lines.setdefault(key, LineCount(*key))
        for name in ("requests", "lanes", "bytes", "sectors", "lines", "least_sectors", "waves", "least_waves"):
            setattr(total, name, getattr(total, name) + count[name])
        total.samples += [_sample(sample) for sample in count["samples"]]
    ordered = sorted(lines.values(), key=lambda c: (c.line or 0, c.kind))
    return _sum(ordered, raw), ordered


def _sum(lines: Iterable[LineCount], raw: dict[str, Any]) -> Counters:
    in_global = [c for c in lines if not c.shared]
    in_shared = [c for c in lines if c.shared]
    loads = [c for c in in_global if c.kind == "load"]
    stores = [c for c in in_global if c.kind != "load"]
    return Counters(
        loads=sum(c.requests for c in loads),
        stores=sum(c.requests for c in stores),
        load_sectors=sum(c.sectors for c in loads),
        store_sectors=sum(c.sectors for c in stores),
        lines=sum(c.lines for c in in_global),
        bytes=sum(c.bytes for c in in_global),
        least_sectors=sum(c.least_sectors for c in in_global),
        shared_requests=sum(c.requests for c in in_shared),
        waves=sum(c.waves for c in in_shared),
        least_waves=sum(c.least_waves for c in in_shared),
        shared_bytes=sum(c.bytes for c in in_shared),
        lanes=sum(c.lanes for c in (*in_global, *in_shared)),
        atomics=raw["atomics"],
        barriers=raw["barriers"],
        warp_functions=raw["warp_functions"],
    )


def _sample(raw: dict[str, Any]) -> Sample:
    offsets = tuple(o if raw["lanes"] >> lane & 1 else None for lane, o in enumerate(raw["offsets"]))
    return Sample(raw["object"], raw["start"], raw["block"], raw["warp"], offsets)
