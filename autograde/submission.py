"""A student's notebook in a kernel: its cells in order, with limits, and again after a kernel is lost."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograde import agent
from autograde.kernel import CellEnd, Kernel
from autograde.limits import Limits
from autograde.outputs import Outputs
from autograde.sandbox import Sandbox

REASONS = {
    "slow": "did not end within {seconds:.3g} s and was stopped",
    "loud": "printed without end and was stopped",
    "stuck": "did not end within {seconds:.3g} s and did not react when it was stopped",
    "died": "ended the kernel (os._exit, a crash or out of memory)",
}
CALL = "\nserve(control, names)\n"


@dataclass(frozen=True)
class Cell:
    """One code cell to run; `number` counts all cells of the notebook from 1."""

    number: int
    id: str
    task: str
    source: str

    @property
    def label(self) -> str:
        return f"the cell of {self.task}" if self.task else f"cell {self.number}"


@dataclass
class Submission:
    """Runs `cells`; `ends` and `outputs` tell how each went the first time, `notes` what the student must know."""

    cells: list[Cell]
    sandbox: Sandbox
    limits: Limits
    env: Mapping[str, str] = field(default_factory=dict)
    kernel: Kernel | None = None
    ends: dict[int, CellEnd] = field(default_factory=dict)
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)  # cells that a new kernel does not run again
    spent: float = 0.0  # seconds in the cells
    repeated: float = 0.0  # seconds in new kernels and repeated cells

    def start(self) -> None:
        """Start the kernel; it is ready for the first cell after `kernel.wait_ready()`."""
        self.kernel = Kernel(self.sandbox, self.limits, dict(self.env))

    def run_cells(self) -> None:
        """Run every cell once; an error in one does not stop the others."""
        for place, cell in enumerate(self.cells):
            outputs = Outputs(self.limits)
            seconds = min(self.limits.cell_seconds, self.limits.notebook_seconds - self.spent)
            if self.kernel is None or seconds <= 0:
                used = f"the {self.limits.notebook_seconds:g} s of the notebook were used up by the cells before"
                self.notes.append(f"{_capital(cell.label)} and the cells after it were not run: {used}.")
                break
            end = self.kernel.run(cell.source, seconds, outputs)
            self.spent += end.seconds
            self.ends[place], self.outputs[cell.id] = end, outputs.kept
            if end.status in REASONS:
                self._leave_out(place, end, seconds)
                outputs.say(self.notes[-1])
            if end.lost:
                self._again(place)

    def serve(self) -> socket.socket | None:
        """Start the agent that answers calls; the socket on which to ask for sessions."""
        if self.kernel is None:
            return None
        source = Path(agent.__file__).read_text(encoding="utf-8")
        own = "__import__('builtins')"  # a student may have given `exec` and `globals` another meaning
        names = f"{{'__name__': 'agent', 'control': {self.kernel.control_inside}, 'names': {own}.globals()}}"
        self.kernel.serve(f"{own}.exec({source + CALL!r}, {names})")
        return self.kernel.control

    def alive(self) -> bool:
        return self.kernel is not None and self.kernel.alive()

    def serve_again(self, waited: float) -> socket.socket | None:
        """The same from a new kernel; `waited` are the seconds lost on the old one. None when no time is left."""
        self.repeated += waited
        return self.serve() if self._again(len(self.cells)) else None

    def close(self) -> None:
        if self.kernel is not None:
            self.kernel.close()
            self.kernel = None

    def _again(self, upto: int) -> bool:
        """A new kernel with the cells before place `upto`, without those left out."""
        while self.kernel is not None:
            began = time.monotonic()
            self.kernel.close()
            self.kernel = None
            if self.repeated < self.limits.notebook_seconds:
                self.start()
                assert self.kernel is not None
                self.kernel.wait_ready()
                done = self._repeat(place for place in range(upto) if place in self.ends and place not in self.left_out)
                self.repeated += time.monotonic() - began
                if done:
                    return True
        return False

    def _repeat(self, places: Iterable[int]) -> bool:
        """Run earlier cells again; False when one of them loses the kernel, which is left out from then on."""
        assert self.kernel is not None
        for place in list(places):
            seconds = self.limits.cell_seconds
            end = self.kernel.run(self.cells[place].source, seconds)
            if end.status in REASONS:
                self._leave_out(place, end, seconds)
            if end.lost:
                return False
        return True

    def _leave_out(self, place: int, end: CellEnd, seconds: float) -> None:
        self.left_out.add(place)
        after = "; it was left out, and the cells before it were run again" if end.lost else ""
        why = REASONS[end.status].format(seconds=seconds)
        self.notes.append(f"{_capital(self.cells[place].label)} {why}{after}.")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
