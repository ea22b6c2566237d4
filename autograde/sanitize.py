"""Rebuilds a submission on the release: solutions and own cells from the student, all else from the teacher.

The release is the spine. Ids, tags, points, order and locked cells of a submission are never believed; a student's cell
is found by its ids, else by what it defines, so copies, lost metadata and moved cells cost an honest student nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import nbformat
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell

from autograde.defines import added_definitions, defined_names
from autograde.reading import Cell

MAKE = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}
LOCKED = ("setup", "given", "check")
INSTALL = re.compile(r"^([ \t]*)([!%][ \t]*(?:pip3?|conda|mamba|apt|apt-get|uv)\b.*)$", re.MULTILINE)


@dataclass
class Slot:
    """One released cell and what the student put there."""

    cell: NotebookNode
    names: frozenset[str] = frozenset()
    mine: list[int] = field(default_factory=list)  # submitted cells with this cell's id, in order
    chosen: int | None = None  # the submitted cell that fills it
    merged: bool = False  # its names are defined in other cells of the student

    @property
    def role(self) -> str:
        return self.cell.metadata.kvcourse["role"]

    @property
    def name(self) -> str:
        return self.cell.metadata.get("nbgrader", {}).get("grade_id", self.cell.id)

    def same(self, cell: Cell) -> bool:
        return _plain(cell.source) == _plain(self.cell.source)


def rebuild(submitted: list[Cell], release: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """The notebook to grade and notes on what was put right. Its cells have the release's ids, or `extra-N`."""
    slots = [Slot(cell, _names(cell)) for cell in release.cells]
    notes: list[str] = []
    left_out = _match(submitted, slots, notes)
    solutions = [slot for slot in slots if slot.role == "solution"]
    for slot in solutions:
        _choose_solution(slot, submitted, slots, left_out, notes)
    found = [
        slot.name for slot in solutions if slot.merged or (slot.chosen is not None and slot.chosen not in slot.mine)
    ]
    if found:
        notes.append(f"cells without their id were found by what they define: {', '.join(found)}")
    notebook = nbformat.from_dict({**release, "cells": []})
    before = _extras_by_place(submitted, slots, left_out)
    changed, missing, numbers = [], [], iter(range(1, len(submitted) + 1))
    for place, slot in enumerate([*slots, None]):
        notebook.cells += [_extra(submitted[i], f"extra-{next(numbers)}") for i in before.get(place, [])]
        if slot is None:
            break
        if not slot.mine and slot.chosen is None and not slot.merged and slot.role not in ("text", "demo"):
            missing.append(slot.name)
        notebook.cells.append(_filled(slot, submitted))
        altered = [i for i in slot.mine if slot.role in LOCKED and not slot.same(submitted[i])]
        if altered and len(altered) == len(slot.mine):
            changed.append(slot.name)
        kept = "\n".join(filter(None, (added_definitions(submitted[i].source, slot.cell.source) for i in altered)))
        if kept:
            notebook.cells.append(_extra(Cell("code", kept), f"extra-{slot.cell.id}"))
    if missing:
        notes.append(f"missing cells were put back: {', '.join(missing)}")
    if changed:
        notes.append(f"changed locked cells were restored: {', '.join(changed)}")
    return notebook, notes + _without_installs(notebook)


def likeness(submitted: list[Cell], release: NotebookNode) -> tuple[int, int]:
    """Solution cells that the student worked on, and released cells found again: (0, 0) is some other notebook."""
    slots = [Slot(cell, _names(cell)) for cell in release.cells]
    _match(submitted, slots, [])
    solutions = [slot for slot in slots if slot.role == "solution"]
    worked = {i for i, cell in enumerate(submitted) if not any(slot.same(cell) for slot in solutions)}
    names = frozenset().union(*(defined_names(submitted[i].source) for i in worked if submitted[i].kind == "code"))
    shared = sum(
        any(slot.role in ("solution", "check") or (slot.role != "setup" and slot.same(submitted[i])) for i in slot.mine)
        for slot in slots
    )
    done = sum(bool(slot.names & names or worked & set(slot.mine)) for slot in solutions)
    return done, max(shared, done)


def _match(submitted: list[Cell], slots: list[Slot], notes: list[str]) -> set[int]:
    """Fill `slot.mine` by id, then by equal text. Returns submitted cells to leave out: empty ones, spare copies."""
    by_id = {name: slot for slot in slots for name in (slot.name, slot.cell.id)}
    by_text: dict[str, Slot] = {}
    for slot in slots:
        by_text.setdefault(_plain(slot.cell.source), slot)
    left_out, swapped = set(), []
    for i, cell in enumerate(submitted):
        if not cell.source.strip():
            left_out.add(i)
            continue
        slot = next((by_id[name] for name in cell.ids if name in by_id), None)
        if slot is not None and slot.cell.cell_type != cell.kind:
            slot = None
        if slot is not None and slot.role == "solution" and _belongs_elsewhere(cell, slot, slots):
            swapped.append(slot.name)
            slot = None
        elif slot is not None and slot.role != "solution" and not slot.same(cell) and _plain(cell.source) in by_text:
            slot = by_text[_plain(cell.source)]  # ids were swapped: the text says which cell it is
        slot = slot or by_text.get(_plain(cell.source))
        if slot is not None:
            slot.mine.append(i)
    if swapped:
        notes.append(f"cell ids were mixed up and were matched by content: {', '.join(swapped)}")
    for slot in slots:
        if slot.role in ("demo", "text") and len(slot.mine) > 1:  # equal copies go, others are the student's own
            kept = next((i for i in slot.mine if slot.same(submitted[i])), slot.mine[-1])
            left_out.update(i for i in slot.mine if i != kept and slot.same(submitted[i]))
            slot.mine = [kept]
    return left_out


def _belongs_elsewhere(cell: Cell, slot: Slot, slots: list[Slot]) -> bool:
    """True when the cell defines nothing of this slot but something of another one."""
    names = defined_names(cell.source)
    return not names & slot.names and any(names & other.names for other in slots if other is not slot)


def _choose_solution(
    slot: Slot, submitted: list[Cell], slots: list[Slot], left_out: set[int], notes: list[str]
) -> None:
    """The last worked cell with the slot's id; else a cell of the student's own that defines the slot's names."""
    worked = [i for i in slot.mine if not slot.same(submitted[i])]
    left_out.update(i for i in slot.mine if slot.same(submitted[i]))  # stubs: the release has its own
    if len(slot.mine) > 1:
        notes.append(f"{slot.name}: the cell is there {len(slot.mine)} times; " + _which(worked))
    if worked:
        slot.chosen = worked[-1]
        return
    taken = {i for other in slots for i in other.mine} | {other.chosen for other in slots}
    own = [i for i, cell in enumerate(submitted) if cell.kind == "code" and i not in taken and i not in left_out]
    own = [i for i in own if defined_names(submitted[i].source) & slot.names]
    if not own:
        return
    others = frozenset().union(*(other.names for other in slots if other is not slot))
    if defined_names(submitted[own[-1]].source) & others:
        slot.merged = True  # it stays where the student has it, with all that it may need above it
    else:
        slot.chosen = own[-1]


def _which(worked: list[int]) -> str:
    if not worked:
        return "all are untouched"
    return "the one with work in it was taken" if len(worked) == 1 else "all were run in order, the last one counts"


def _extras_by_place(submitted: list[Cell], slots: list[Slot], left_out: set[int]) -> dict[int, list[int]]:
    """Own cells of the student by the slot they come before: after the released cell above them, and never after the
    solution below them, so that what a solution needs is there when it runs."""
    at = {}
    for place, slot in enumerate(slots):
        at.update(dict.fromkeys(slot.mine, place))
        if slot.chosen is not None:
            at[slot.chosen] = place
    stays = {slot.chosen for slot in slots} | {i for slot in slots if slot.role != "solution" for i in slot.mine}
    following: dict[int, int] = {}
    following_solution = len(slots)
    for i in reversed(range(len(submitted))):
        following[i] = following_solution
        if i in at and slots[at[i]].chosen == i:
            following_solution = at[i]
    places: dict[int, list[int]] = {}
    above = next((place + 1 for place, slot in enumerate(slots) if slot.role == "setup"), 0)
    for i in range(len(submitted)):
        if i in stays or i in left_out:
            above = at[i] + 1 if i in at else above
            continue
        places.setdefault(min(above, following[i]), []).append(i)
    return places


def _filled(slot: Slot, submitted: list[Cell]) -> NotebookNode:
    """The released cell with the student's text where it is the student's to write."""
    cell = nbformat.from_dict(slot.cell)
    if slot.role == "solution" and slot.merged:
        cell.source = f"# {slot.name}: defined in another cell"
    elif slot.role == "solution" and slot.chosen is not None:
        cell.source = submitted[slot.chosen].source
    elif slot.role in ("demo", "text") and slot.mine and not slot.same(submitted[slot.mine[-1]]):
        cell.source = submitted[slot.mine[-1]].source
        cell.metadata.kvcourse = {**cell.metadata.kvcourse, "role": "extra"}
    if cell.cell_type == "code":
        cell.outputs, cell.execution_count = [], None
    return cell


def _extra(cell: Cell, name: str) -> NotebookNode:
    return MAKE[cell.kind](cell.source, id=name, metadata={"kvcourse": {"role": "extra"}})


def _without_installs(notebook: NotebookNode) -> list[str]:
    """Install lines cannot work without a network and only cost time: they become comments."""
    lines: list[str] = []
    for cell in notebook.cells:
        python = cell.cell_type == "code" and not cell.source.startswith("%%cuda")
        if python and cell.metadata.kvcourse["role"] in ("solution", "extra"):
            lines += [match[2].strip() for match in INSTALL.finditer(cell.source)]
            cell.source = INSTALL.sub(r"\1pass  # not run when grading: \2", cell.source)
    return [f"install lines were left out: {'; '.join(_short(lines))}"] if lines else []


def _short(lines: Iterable[str], most: int = 3) -> list[str]:
    lines = [line[:60] for line in lines]
    return lines[:most] + ([f"and {len(lines) - most} more"] if len(lines) > most else [])


def _names(cell: NotebookNode) -> frozenset[str]:
    return defined_names(cell.source) if cell.metadata.kvcourse["role"] == "solution" else frozenset()


def _plain(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
