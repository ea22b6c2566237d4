"""Faults in words: what a thread did, where, what a GPU would make of it, and what to try."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvcourse.cuda.cpu.kinds import KINDS

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong (or, as a note, worth knowing). Lines are those of the kernel's cell or file."""

    kind: str
    message: str
    line: int | None
    thread: Triple
    block: Triple
    note: bool = False
    times: int = 1
    object: str = ""
    offset: int = 0  # bytes from the object's start
    write: bool = False
    other_line: int | None = None
    other_thread: Triple | None = None
    other_block: Triple | None = None
    other_wrote: bool = False

    @property
    def title(self) -> str:
        return KINDS[self.kind].title

    @property
    def on_gpu(self) -> str:
        return KINDS[self.kind].on_gpu

    @property
    def tip(self) -> str:
        return KINDS[self.kind].tip

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line else "unknown line"
        return f"{place}: {self.title}: thread {_triple(self.thread)} of block {_triple(self.block)} {self.message}"


@dataclass(frozen=True)
class Naming:
    """How the objects of a launch are called: of each buffer, by its name in the report, the element size and the
    index of its first element."""

    element_bytes: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)

    def element(self, fault: dict[str, Any], offset: int) -> str:
        """The place in an object as one would write it: a[3], tile + 12 bytes."""
        name, size = fault["object"], self.element_bytes.get(fault["object"], fault["size"])
        if fault["object_kind"] == "dynamic":
            return f"byte {offset:,} of the dynamic shared memory"
        whole = size and offset % size == 0
        start = self.starts.get(name, 0)
        return f"{name}[{start + offset // size}]" if whole else f"{name} at byte {start * (size or 1) + offset:,}"

    def extent(self, fault: dict[str, Any]) -> str:
        name, size = fault["object"], self.element_bytes.get(fault["object"], fault["size"] or 1)
        if fault["object_kind"] == "dynamic":
            return f"the launch gave shared={fault['object_size']:,}"
        start, count = self.starts.get(name, 0), fault["object_size"] // size
        if start:
            return f"only {name}[{start}] to {name}[{start + count - 1}] are there"
        return f"{name} has {count:,} elements"


def read_fault(raw: dict[str, Any], naming: Naming, line_of: Callable[[list[int]], int | None]) -> Fault:
    """A fault of the runtime's reply in words; `line_of` finds the line of a list of return addresses."""
    thread, block = (tuple(index) for index in raw["who"])
    line, other_line = line_of(raw["place"]), line_of(raw.get("other_place", []))
    other_thread, other_block = (tuple(index) for index in raw["other"]) if "other" in raw else (None, None)
    message = _message(raw, naming, thread, block, other_thread, other_block, other_line)
    return Fault(
        raw["kind"], message, line, thread, block, bool(raw["note"]), raw["times"], raw["object"], raw["offset"],
        bool(raw["write"]), other_line, other_thread, other_block, bool(raw["other_wrote"]),
    )  # fmt: skip


def without_echoes(faults: list[Fault]) -> list[Fault]:
    """Each race once, whichever of the two accesses came first; and no unset memory where a race explains it."""
    races: dict[tuple, Fault] = {}
    for fault in faults:
        if fault.kind == "race":
            races.setdefault((fault.object, frozenset((fault.line, fault.other_line))), fault)
    explained = {(name, line) for name, lines in races for line in lines}
    kept = races.values()
    return [
        f for f in faults
        if (f in kept if f.kind == "race" else f.kind != "unset" or (f.object, f.line) not in explained)
    ]  # fmt: skip


def _message(
    raw: dict[str, Any],
    naming: Naming,
    thread: Triple,
    block: Triple,
    other: Triple | None,
    other_block: Triple | None,
    other_line: int | None,
) -> str:
    kind = raw["kind"]
    verb = "writes" if raw["write"] else "reads"
    there = naming.element(raw, raw["offset"]) if raw["object"] else ""
    somebody = (
        f"thread {_triple(other)}" + (f" of block {_triple(other_block)}" if other_block != block else "")
        if other
        else ""
    )
    at = f" at line {other_line}" if other_line else ""
    if kind == "out-of-bounds":
        if not raw["size"]:  # the fast run knows the address only
            return f"touches {there}, but {naming.extent(raw)}."
        return f"{verb} {there}, but {naming.extent(raw)}."
    if kind == "array-index":
        array = re.sub(r"'|(?<=\w) (?=\[)", "", raw["detail"])  # g++ says 'float [8]', clang 'float[8]'
        return f"uses the index {raw['number']:,} of an array of type {array}."
    if kind == "race":
        theirs = "writes" if raw["other_wrote"] else "reads"
        return f"{verb} {there}, which {somebody} {theirs}{at}, with nothing between that orders the two."
    if kind == "same-value-writes":
        return f"writes {there}, where {somebody} wrote the same value{at}."
    if kind == "unset":
        return f"reads {there} before anything was written there."
    if kind in ("barrier-diverged", "warp-diverged"):
        return f"waits here, {somebody} waits{at}: they are at different places."
    if kind == "warp-waits-forever":
        return "waits here forever" + (
            f"; {somebody} waits at the barrier{at}." if other else ", for threads that never come."
        )
    if kind == "early-return":
        return f"waits at this barrier, but {raw['number']:,} threads of its block have returned."
    if kind == "outside-mask":
        return f"calls a warp function whose mask 0x{raw['number'] & 0xFFFFFFFF:x} leaves its own lane out."
    if kind == "absent-lane":
        why = "it has returned, or the mask leaves it out"
        return f"asks for the value of lane {raw['number']}, which takes no part ({why})."
    if kind == "misaligned":
        there = f"byte {raw['offset']:,} of {raw['object']}"
        return f"{verb} {raw['size']} bytes at {there}, which is no multiple of {raw['size']}."
    if kind in ("null-pointer", "wild-pointer"):
        return f"uses the address 0x{raw['number'] & (2**64 - 1):x}, which belongs to no buffer."
    if kind == "foreign-local":
        return f"{verb} a local variable of another thread through a pointer."
    if kind == "read-only":
        return f"writes {there}, but {raw['object']} is const."
    if kind == "stack-overflow":
        return "has used up its stack (192 KB): recursion without an end, or very large local arrays."
    if kind == "division":
        return "divides a whole number by zero."
    if kind == "trap":
        return f"stopped: {raw['detail']}."
    assert kind == "time-limit", kind
    return "was still running when its time was up."


def _triple(index: Triple | None) -> str:
    return f"({index[0]}, {index[1]}, {index[2]})" if index else "?"
