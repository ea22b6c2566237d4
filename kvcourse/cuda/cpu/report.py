"""The report of a checked launch: faults with their lines, notes, and what the launch asked of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvcourse.cuda.cpu.counters import Counters, LineCount
from kvcourse.cuda.cpu.faults import Fault
from kvcourse.cuda.dims import Dims

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Report:
    """What `check` found; true when there are no faults. Shows itself in a notebook, and as text elsewhere."""

    kernel: str
    dims: Dims
    faults: list[Fault]
    notes: list[Fault]
    counters: Counters
    lines: list[LineCount]
    output: str = ""  # what the kernel printed
    source: tuple[str, ...] = ()
    first_line: int = 1
    seconds: float = 0.0  # of the processor, for the threads of the kernel
    complete: bool = True  # False: a fault ended the launch early, so the counters say little
    differences: list[str] = field(default_factory=list)  # results that depend on the order of threads

    def __bool__(self) -> bool:
        return not self.faults and not self.differences

    def __repr__(self) -> str:
        return self.text()

    def compare(self, other: Report, order: str, differences: Sequence[str]) -> None:
        """Add what another order of threads found: its faults, and results or counts that differ from these."""
        known = {(f.kind, f.line) for f in (*self.faults, *self.notes)}
        self.faults += [f for f in other.faults if (f.kind, f.line) not in known]
        self.notes += [f for f in other.notes if (f.kind, f.line) not in known]
        if self.faults or other.faults:
            return  # what differs follows from them
        self.differences += [f"{what}, depending on the order in which threads run ({order})" for what in differences]
        mine, theirs = self.counters.as_dict(), other.counters.as_dict()
        self.differences += [
            f"{name} is {mine[name]:,} or {theirs[name]:,} ({order})" for name in mine if mine[name] != theirs[name]
        ]

    @property
    def headline(self) -> str:
        wrong = len(self.faults) + len(self.differences)
        verdict = "no faults" if not wrong else f"{wrong} fault{'s' if wrong > 1 else ''}"
        return f"{self.kernel}, grid {self.dims.grid}, block {self.dims.block}: {verdict}"

    def text(self) -> str:
        lines = [f"{'✓' if self else '✗'} {self.headline}"]
        for fault in self.faults:
            lines += [
                f"  {fault}",
                f"      {self.line_text(fault.line)}",
                f"      on a GPU: {fault.on_gpu}. Try: {fault.tip}",
            ]
        lines += [f"  the result depends on luck: {what}" for what in self.differences]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {name}: {value}" for name, value in self.summary()]
        if self.output:
            lines += ["  printed:", *(f"    {line}" for line in self.output.splitlines()[:50])]
        return "\n".join(lines)

    def summary(self) -> list[tuple[str, str]]:
        """What the launch asked of memory, in words: (what, how much), in all and for each line."""
        c = self.counters
        if not self.complete:
            return [("counters", "the launch was stopped, so they say nothing")]
        rows = []
        if c.loads or c.stores:
            move = f"{c.loads:,} load and {c.stores:,} store requests move {c.sectors:,} sectors of 32 bytes"
            rows.append(("global memory", f"{move} ({c.least_sectors:,} would do) for {c.bytes:,} bytes"))
        if c.shared_requests:
            take = f"{c.shared_requests:,} requests take {c.waves:,} waves"
            rows.append(("shared memory", f"{take} ({c.bank_conflicts:,} for bank conflicts)"))
        named = (("barriers", c.barriers), ("warp functions", c.warp_functions), ("atomics", c.atomics))
        rows += [(name, f"{value:,}") for name, value in named if value]
        return rows + [(f"line {count.line or '?'}", _count_words(count)) for count in self.lines]

    def line_text(self, line: int | None) -> str:
        """The source text of a line of the cell."""
        index = (line or 0) - self.first_line
        return self.source[index].strip() if 0 <= index < len(self.source) else ""

    def plot_sectors(self, line: int | None = None) -> Figure:
        """A heat map: which sectors each warp asks for, at the line that wastes most (or at `line`)."""
        from kvcourse.cuda.pictures import draw_sectors

        return draw_sectors(self, line)

    def plot_banks(self, line: int | None = None) -> Figure:
        """How many words each bank of shared memory has to give: the worst request of the worst line (or of `line`)."""
        from kvcourse.cuda.pictures import draw_banks

        return draw_banks(self, line)

    def plot_race(self, number: int = 0) -> Figure:
        """A race as a picture: two threads, one address."""
        from kvcourse.cuda.pictures import draw_race

        return draw_race(self, number)

    def _repr_html_(self) -> str:
        from kvcourse.cuda.cpu.html import report_html

        return report_html(self)


def _count_words(c: LineCount) -> str:
    requests = f"{c.requests:,} {'shared ' if c.shared else ''}{c.kind} request{'s' if c.requests != 1 else ''}"
    if not c.shared:
        return f"{requests}, {c.sectors / c.requests:.1f} sectors each ({c.least_sectors / c.requests:.1f} would do)"
    return f"{requests}, " + (
        f"{c.waves / c.least_waves:.1f} waves each" if c.waves > c.least_waves else "no bank conflicts"
    )
