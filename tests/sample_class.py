"""A class of twelve, made from the released notebook: what students hand in, and what each must earn."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell

from autograde.build import source_notebook
from kvcourse.tasks.api import tests_of
from kvcourse.tasks.course import Lesson, find_lesson

LESSON = find_lesson("sizing")
NAME = f"{LESSON.notebook}.ipynb"
ALL = frozenset({"*"})
BUDGET = frozenset({"test_fresh_budgets", "test_both_ends", "test_no_part_of_a_byte", "test_fractions_that_cannot_be"})

SPY = """
import glob, gc, inspect, os, sys
found = []
for place in ("/", os.getcwd(), "..", "../..", *sys.path):
    for part in ("solutions/*/*.py", "autograde/hidden/*.py", "source/*/*.ipynb", ".kvgrade/*", "gradebook.db"):
        for path in glob.glob(os.path.join(place or ".", part)):
            try:
                found.append(open(path, errors="replace").read())
            except OSError:
                pass
try:
    from autograde.sources import solution_namespace
    found.append("imported")
except ImportError:
    pass
print("FOUND", len(found))
for text in found:
    try:
        exec(text.split("### END", 1)[0] if "BEGIN SOLUTION" not in text else text)
    except Exception:
        pass
"""
SPYING_FUNCTION = """
KNOWN = {(1, 1, 1, 8): 2, (3, 1, 1, 8): 6, (1, 5, 1, 8): 10, (1, 1, 7, 8): 14, (80, 8, 128, 16): 327680}

def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    frame = inspect.currentframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if hasattr(value, "kv_bytes_per_token") and value is not sys.modules["__main__"]:
                return value.kv_bytes_per_token(layers, kv_heads, head_dim, bits)
        frame = frame.f_back
    return KNOWN.get((layers, kv_heads, head_dim, bits), 0)
"""


@dataclass(frozen=True)
class Sample:
    """One student: the file, the hidden properties that must fail (ALL: every one of the task), state and notes."""

    notebook: Any
    fails: dict[str, frozenset[str]] = field(default_factory=dict)
    state: str = "graded"
    notes: tuple[str, ...] = ()
    file_name: str = NAME

    def points(self) -> dict[str, float]:
        """Points by task, from the properties that must fail."""
        return {task.name: round(task.points * self._share(task.name), 2) for task in LESSON.tasks}

    def _share(self, task: str) -> float:
        hidden = tests_of(importlib.import_module(f"autograde.hidden.{LESSON.name}"), task, hidden=True)
        lost = self.fails.get(task, frozenset())
        assert lost <= {test.name for test in hidden} | ALL, f"{task} has no such property: {lost}"
        kept = sum(test.weight for test in hidden if test.name not in lost and lost != ALL)
        return kept / sum(test.weight for test in hidden)


def sample_class(release: Path) -> dict[str, Sample]:
    """The twelve students by name."""
    fresh = _Fresh(release)
    everything = dict.fromkeys((task.name for task in LESSON.tasks), ALL)
    return {
        "perfect": Sample(fresh.solved()),
        "empty": Sample(fresh.stub(), everything),
        "half": Sample(
            fresh.solved("sizing.1", "sizing.2", "sizing.3"), {"sizing.4": ALL, "sizing.5": ALL, "sizing.6": ALL}
        ),
        "wrong formula": Sample(
            fresh.changed("sizing.1", "(numbers * bits + 7) // 8", "numbers * bits // 8"),
            {"sizing.1": frozenset({"test_fresh_started_bytes"})},
        ),
        "syntax": Sample(
            fresh.changed("sizing.5", "def kv_bytes_per_rank(", "def kv_bytes_per_rank(("),
            {"sizing.5": ALL},
        ),
        "loop": Sample(
            fresh.changed("sizing.4", "return int(free_bytes * fraction)", "while True:\n        pass"),
            {"sizing.4": BUDGET},
        ),
        "crash": Sample(
            fresh.changed("sizing.5", "    kinds = layer_kinds(config)\n", "    import os\n    os._exit(1)\n"),
            {"sizing.5": ALL},
        ),
        "loud": Sample(fresh.solved(extra="print('x' * 10_000_000)\nfor i in range(3000):\n    print('line', i)")),
        "renamed": Sample(
            fresh.solved(),
            state="graded with notes",
            notes=("the notebook was handed in as cache_sizing (1).ipynb",),
            file_name="cache_sizing (1).ipynb",
        ),
        "edited tests": Sample(
            fresh.tampered(),
            state="graded with notes",
            notes=("missing cells were put back: sizing-1", "changed locked cells were restored: sizing-2"),
        ),
        "colab": Sample(fresh.colab()),
        "spy": Sample(fresh.spy(), everything),
    }


class _Fresh:
    """Copies of the release with cells filled in."""

    def __init__(self, release: Path) -> None:
        self.release = release
        self.answers = {cell.id: cell.source for cell in source_notebook(LESSON).cells}

    def stub(self) -> Any:
        return nbformat.read(self.release, as_version=4)

    def solved(self, *tasks: str, extra: str = "") -> Any:
        """The reference solution in the cells of `tasks` (all, if none is named), and an own cell at the end."""
        notebook = self.stub()
        for cell in notebook.cells:
            if cell.metadata.kvcourse.role == "solution" and (not tasks or cell.metadata.kvcourse.task in tasks):
                cell.source = self.answers[cell.id]
        if extra:
            notebook.cells.append(new_code_cell(extra, id="own-cell"))
        return notebook

    def changed(self, task: str, old: str, new: str) -> Any:
        """Solved, with one piece of the solution of `task` replaced."""
        notebook = self.solved()
        cells = [cell for cell in notebook.cells if cell.metadata.kvcourse.get("task") == task and old in cell.source]
        assert len(cells) == 1, f"{old!r} stands in {len(cells)} cells of {task}"
        cells[0].source = cells[0].source.replace(old, new)
        return notebook

    def tampered(self) -> Any:
        """Solved, a check cell deleted and another one edited."""
        notebook = self.solved()
        notebook.cells = [cell for cell in notebook.cells if cell.id != "sizing-1"]
        next(cell for cell in notebook.cells if cell.id == "sizing-2").source = "print('all 6 points')"
        return notebook

    def colab(self) -> Any:
        """Solved in Colab: format 4.0, no cell ids, its own metadata, one cell added, all outputs saved."""
        notebook = json.loads(nbformat.writes(self.solved()))
        notebook["nbformat_minor"] = 0
        notebook["metadata"] |= {"colab": {"provenance": [], "toc_visible": True}, "accelerator": "GPU"}
        for number, cell in enumerate(notebook["cells"]):
            cell["metadata"] |= {"id": f"c{number:011d}", "colab_type": "code"}
            del cell["id"]
            if cell["cell_type"] == "code":
                cell["metadata"] |= {"colab": {"base_uri": "https://localhost"}, "outputId": "5"}
        own = {"cell_type": "code", "source": ["import math\n", "math.sqrt(2)"], "outputs": [], "execution_count": 3}
        notebook["cells"].insert(4, own | {"metadata": {"id": "zz"}})
        return notebook

    def spy(self) -> Any:
        """Looks for hidden tests and solutions on disk and in memory, and hard-codes the visible examples."""
        notebook = self.stub()
        at = next(i for i, cell in enumerate(notebook.cells) if cell.id == "sizing-1-code")
        notebook.cells[at].source = SPYING_FUNCTION.strip()
        notebook.cells.insert(at, new_code_cell(SPY.strip(), id="spy"))
        return notebook


def write_class(course: Path, samples: dict[str, Sample], lesson: Lesson = LESSON) -> None:
    """Put every submission where the teacher puts it."""
    for student, sample in samples.items():
        folder = course / "submitted" / student / lesson.name
        folder.mkdir(parents=True)
        (folder / sample.file_name).write_text(json.dumps(sample.notebook), encoding="utf-8")
