"""`kvcourse check NOTEBOOK`: run the learner's cells of a notebook file in this process and check its tasks."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kvcourse.check import check_namespace
from kvcourse.check.limit import time_limit
from kvcourse.tasks.api import Interrupted
from kvcourse.tasks.course import Task, UserError, find_task

SECONDS_PER_CELL = 60.0


def check_notebook(path: Path, only: list[str]) -> int:
    """Print a report a task; 0 when every checked task passed, 1 otherwise. UserError when the file is no notebook."""
    cells = read_cells(path)
    tasks = [find_task(name) for name in only] or _tasks_of(cells)
    if not tasks:
        raise UserError(f"{path} has no check(...) cell, so there is nothing to check: is it a notebook of the course?")
    namespace, problems = run_cells(cells)
    for problem in problems:
        print(problem)
    reports = [check_namespace(task, namespace) for task in tasks]
    for report in reports:
        print(report.text())
    print(f"{sum(map(bool, reports))} of {len(reports)} tasks passed")
    return 0 if all(reports) else 1


def read_cells(path: Path) -> list[dict[str, Any]]:
    """The code cells of a notebook file; UserError with the reason when it cannot be read."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        return [{**cell, "source": "".join(cell["source"])} for cell in cells]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise UserError(f"{path} is not a notebook in format 4: open it in JupyterLab and save it again.") from None


def run_cells(cells: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The names that the learner's cells define, and one sentence for each cell that failed."""
    try:
        from IPython.core.inputtransformer2 import TransformerManager

        transform = TransformerManager().transform_cell
    except ImportError:
        transform = str
    module = ModuleType("__main__")
    sys.modules["kvcourse_checked_notebook"] = module
    namespace, problems = vars(module), []
    namespace["__name__"] = "kvcourse_checked_notebook"
    namespace["get_ipython"] = lambda: _Magics(namespace)
    for number, cell in enumerate(cells, start=1):
        if _role(cell) in ("check", "demo") or _only_checks(cell["source"]):
            continue
        try:
            with _quiet(), time_limit(SECONDS_PER_CELL):
                exec(compile(transform(cell["source"]), f"<cell {number}>", "exec"), namespace)
        except (Exception, SystemExit, Interrupted) as error:
            problems.append(f"Code cell {number} stopped with {type(error).__name__}: {_first_line(error)}")
    return namespace, problems


class _Magics:
    """Stands in for IPython: `%%cuda` defines its kernel, other magics do nothing."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        if name == "cuda":
            from kvcourse.cuda.magic import define

            define(line, body, self.namespace)

    def run_line_magic(self, name: str, line: str) -> None:
        """`%matplotlib inline` and the like matter only where there is a screen."""


def _tasks_of(cells: list[dict[str, Any]]) -> list[Task]:
    names = [cell["metadata"]["kvcourse"]["task"] for cell in cells if _role(cell) == "check"]
    if not names:  # metadata lost on the way (another editor): fall back on the text of the cells
        names = [name for cell in cells for name in re.findall(r"""^check\(["']([\w.]+)["']\)""", cell["source"], re.M)]
    return [find_task(name) for name in names]


def _role(cell: dict[str, Any]) -> str:
    return cell.get("metadata", {}).get("kvcourse", {}).get("role", "")


def _only_checks(source: str) -> bool:
    lines = [line for line in source.splitlines() if line.strip() and not line.startswith("#")]
    return bool(lines) and all(line.startswith(("check(", "hint(", "progress(", "quiz(")) for line in lines)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
