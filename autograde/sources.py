"""The sources of a lesson: one percent-format script under `solutions/`, read as cells or imported as a module."""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat

from kvcourse.cuda.magic import read_cell
from kvcourse.tasks.course import Lesson, UserError

ROOT = Path(__file__).resolve().parents[1]
GUARD = 'if __name__ == "__main__":'
LINE_MAGIC = re.compile(r"^%[a-z].*$", re.MULTILINE)
ROLES = ("setup", "solution", "check", "demo")


@dataclass(frozen=True)
class Cell:
    """One cell of the script: its text as the notebook shows it, what it is for, and its task if it has one."""

    role: str  # "setup", "given", "solution", "check", "demo" or "text"
    source: str
    task: str = ""
    part: str = ""
    id: str = ""


def script_path(lesson: Lesson, root: Path = ROOT) -> Path:
    path = root / "solutions" / lesson.folder / f"{lesson.notebook}.py"
    if not path.is_file():
        raise UserError(
            f"{path.name} of lesson {lesson.name!r} is missing: kvgrade works inside a clone of the course."
        )
    return path


def notebook_path(lesson: Lesson, root: Path = ROOT) -> Path:
    """The built learner notebook of a lesson."""
    return root / "notebooks" / lesson.folder / f"{lesson.notebook}.ipynb"


def read_script(lesson: Lesson, root: Path = ROOT) -> list[Cell]:
    """The script's cells in order, the `__main__` guards taken off and kernels put in from the .cu files beside it."""
    import jupytext

    path = script_path(lesson, root)
    cells: list[Cell] = []
    for i, raw in enumerate(jupytext.read(path, fmt="py:percent").cells):
        metadata = dict(raw.metadata)
        if raw.cell_type == "markdown":
            cells.append(Cell("text", raw.source, id=f"text-{i}"))
            continue
        role = next((role for role in ROLES if role in metadata), "given")
        task = str(metadata[role]) if role in ("solution", "check") else ""
        part = str(metadata.get("part", ""))
        if "cuda" in metadata:  # the cell's Python is for the importable script only
            source = _kernel_cell(path.parent, metadata["cuda"], str(metadata.get("template", "")))
        else:
            source = _unguarded(raw.source)
        cells.append(Cell(role, source, task, part, _cell_id(role, task, part, i)))
    return _numbered(cells)


@cache
def solution_module(lesson: Lesson, root: Path = ROOT) -> ModuleType:
    """The script imported as a module: definitions only, since everything else stands under the guard."""
    path = script_path(lesson, root)
    spec = importlib.util.spec_from_file_location(f"kvcourse_solution_{lesson.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def solution_namespace(lesson: Lesson, root: Path = ROOT) -> dict[str, Any]:
    """A fresh copy of the reference solution's names."""
    return dict(vars(solution_module(lesson, root)))


def stub_namespace(lesson: Lesson, root: Path = ROOT) -> dict[str, Any]:
    """What a learner has who opened the built notebook and ran every cell but the checks and demos."""
    path = notebook_path(lesson, root)
    name = f"kvcourse_stub_{lesson.name}"
    module = ModuleType(name)
    sys.modules[name] = module
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and cell.metadata.kvcourse["role"] in ("setup", "given", "solution"):
            _run(cell.source, f"<{cell.id}>", vars(module))
    return vars(module)


def _run(source: str, name: str, names: dict[str, Any]) -> None:
    """Run a cell without IPython: a kernel is kept as text, lines that begin with a magic are left out."""
    if source.startswith("%%cuda"):
        line, _, text = source.partition("\n")
        names.update(read_cell(line.removeprefix("%%cuda"), text + "\n"))
        return
    exec(compile(LINE_MAGIC.sub("pass", source), name, "exec"), names)


def _unguarded(source: str) -> str:
    """The cell without `if __name__ == "__main__":`, dedented."""
    head, found, body = source.partition(GUARD)
    if not found:
        return source
    return head + textwrap.dedent(body.strip("\n"))


def _kernel_cell(folder: Path, file_name: str, template: str = "") -> str:
    option = f' --template "{template}"' if template else ""
    return f"%%cuda {Path(file_name).stem}{option}\n{(folder / file_name).read_text(encoding='utf-8').rstrip()}"


def _cell_id(role: str, task: str, part: str, index: int) -> str:
    if role == "solution":
        return f"{task}.code" + (f".{part}" if part else "")
    return task if role == "check" else f"{role}-{index}"


def _numbered(cells: list[Cell]) -> list[Cell]:
    """Cells without a task get an id by role and count, so that inserting text moves no code cell's id."""
    counts: dict[str, int] = {}
    out = []
    for cell in cells:
        if not cell.task:
            counts[cell.role] = counts.get(cell.role, 0) + 1
            cell = Cell(cell.role, cell.source, id=f"{cell.role}-{counts[cell.role]}")
        out.append(cell)
    ids = [cell.id for cell in out]
    assert len(ids) == len(set(ids)), f"two cells have the id {next(i for i in ids if ids.count(i) > 1)}: add a part"
    return out
