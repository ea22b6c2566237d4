"""Grades one notebook: student cells in the sandbox, tests here, and nothing but values in between.

Points come from the CPU properties alone, so they are the same on every machine; a GPU's verdict is kept beside them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import random
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat

from autograde.gpu import grading_gpu
from autograde.kept import KernelReader
from autograde.kernels import has_kernels, kernel_sandbox
from autograde.limits import InfrastructureFault, Limits
from autograde.remote import Link, RemoteStudent
from autograde.sandbox import Sandbox, protection_level
from autograde.submission import Cell, Submission
from kvcourse.check.gpu import Launcher
from kvcourse.check.runner import TaskResult, run_task
from kvcourse.cuda.cpu.limits import Budget
from kvcourse.tasks.api import Test, tests_of
from kvcourse.tasks.course import Lesson, Task

__all__ = ["Graded", "InfrastructureFault", "Limits", "grade_notebook"]

DATA_KINDS = {
    ".txt", ".md", ".csv", ".tsv", ".json", ".jsonl", ".toml", ".yaml", ".yml", ".npy", ".npz", ".bin", ".safetensors",
    ".parquet", ".gz", ".png", ".jpg", ".jpeg", ".svg", ".cu", ".cuh", ".h",
}  # fmt: skip
MAX_FILES = 200
USUAL = Limits()
SILENT = "After its cells the notebook did not answer, so none of its functions could be called."


@dataclass
class Graded:
    """What one notebook earned, and what a student should see of how it ran."""

    lesson: str
    level: str
    tasks: dict[str, TaskResult] = field(default_factory=dict)
    outputs: dict[str, list] = field(default_factory=dict)  # by cell id
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    kernels: dict[str, dict[str, str]] = field(default_factory=dict)  # by task and name: what a GPU is to judge

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Graded:
        tasks = {name: TaskResult.from_dict(result) for name, result in data["tasks"].items()}
        outputs = {cell: [nbformat.from_dict(output) for output in kept] for cell, kept in data["outputs"].items()}
        return cls(**{**data, "tasks": tasks, "outputs": outputs})


def grade_notebook(
    nb: Any,
    lesson: Lesson,
    *,
    student_id: str,
    seed: bytes,
    limits: Limits = USUAL,
    level: str | None = None,
    files: Path | None = None,
    tests: Callable[[Task], list[Test]] | None = None,
    solution: Callable[[], Mapping[str, Any]] | None = None,
    release: Any = None,
    gpu: Callable[[], Launcher | str] = grading_gpu,
) -> Graded:
    """Run the cells of a sanitised notebook and test every task of `lesson`.

    `files` is the submission's folder: its plain data files are copied to the work folder. `tests`, `solution` and
    `release` stand in for the lesson's own, `gpu` for this machine's. The same seed and student give the same tests.
    InfrastructureFault, after one retry, when the grader itself cannot work: that is "not run", never a zero.
    """
    protection = protection_level(level)
    if protection.level == "L0":
        raise InfrastructureFault(protection.why)
    tests = tests or tests_of_lesson(lesson)
    release = release or _release(lesson)
    cells = cells_to_run(nb, release)
    fixtures = Fixtures(seed, student_id, solution or solution_of(lesson), gpu)
    for attempt in (1, 2):
        began = time.monotonic()
        try:
            kernels = kernel_sandbox(protection, limits, has_kernels(release))
            with Sandbox(protection, limits) as sandbox, kernels as budget:
                copy_data(files, sandbox.folder / "data", limits.data)
                graded = _grade(cells, lesson, sandbox, limits, tests, fixtures, budget)
            graded.seconds = time.monotonic() - began
            return graded
        except (InfrastructureFault, OSError) as fault:
            if attempt == 2:
                raise InfrastructureFault(f"Not graded, after two tries: {fault}") from fault
    raise AssertionError("two attempts end above")


def cells_to_run(nb: Any, release: Any) -> list[Cell]:
    """The student's code cells: no checks, and no demos that are still as released."""
    released = {cell.source for cell in release.cells if _about(cell).get("role") == "demo"} if release else set()
    cells = []
    for number, cell in enumerate(nb.cells, start=1):
        about = _about(cell)
        demo = about.get("role") == "demo" and cell.source in released
        if cell.cell_type == "code" and about.get("role") != "check" and not demo:
            cells.append(Cell(number, cell.get("id", f"cell-{number}"), about.get("task", ""), cell.source))
    return cells


def copy_data(source: Path | None, target: Path, limit: int) -> None:
    """Copy plain data files: no code, no notebooks, no links, nothing hidden, at most `limit` bytes and 200 files."""
    left, count = limit, 0
    for path in sorted(source.rglob("*")) if source is not None else ():
        name = path.relative_to(source)
        if _is_data(source, name) and path.stat().st_size <= left and count < MAX_FILES:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
            left, count = left - path.stat().st_size, count + 1


def _is_data(folder: Path, name: Path) -> bool:
    linked = any((folder / part).is_symlink() for part in [name, *name.parents])
    hidden = any(part.startswith(".") for part in name.parts)
    return not linked and not hidden and name.suffix.lower() in DATA_KINDS and (folder / name).is_file()


def _grade(
    cells: list[Cell],
    lesson: Lesson,
    sandbox: Sandbox,
    limits: Limits,
    tests: Callable[[Task], list[Test]],
    fixtures: Fixtures,
    budget: Budget,
) -> Graded:
    submission = Submission(cells, sandbox, limits, {"PYTHONHASHSEED": str(fixtures.number("", "") % 2**32)})
    try:
        submission.start()
        prepared = {task.name: tests(task) for task in lesson.tasks}  # imports, while the kernel starts
        assert submission.kernel is not None
        submission.kernel.wait_ready()
        submission.run_cells()
        link = Link(submission.serve(), submission.alive, submission.serve_again, limits.answer_seconds)
        graded = Graded(lesson.name, sandbox.protection.level, outputs=submission.outputs, notes=submission.notes)
        for task in lesson.tasks:
            budget.left = limits.kernel_seconds
            student = RemoteStudent(link, limits)
            kernels = KernelReader(task, student)
            result = run_task(task, student, prepared[task.name], fixtures, kernels.read)
            graded.tasks[task.name] = _explained(result, task, submission, bool(link.known))
            if kernels.sources:
                graded.kernels[task.name] = kernels.sources
        return graded
    finally:
        submission.close()


class Fixtures:
    """What a test may ask for besides `student`: random numbers of its own, the reference solution, a GPU."""

    def __init__(
        self,
        seed: bytes,
        student: str,
        solution: Callable[[], Mapping[str, Any]],
        gpu: Callable[[], Launcher | str] = grading_gpu,
    ) -> None:
        self.seed, self.student, self.solution = seed, student, solution
        self.gpu = cache(gpu)  # looked for when a test first needs one

    def __call__(self, test: Test) -> Mapping[str, Any]:
        asked = test.fn.__code__.co_varnames[: test.fn.__code__.co_argcount]
        made: dict[str, Any] = {"rng": random.Random(self.number(test.task, test.name))}
        if test.gpu:
            made["gpu"] = self.gpu()
        if "solution" in asked:
            try:
                made["solution"] = SimpleNamespace(**self.solution())
            except Exception as error:
                raise InfrastructureFault(f"The reference solution cannot be loaded: {error}") from error
        return made

    def number(self, task: str, test: str) -> int:
        digest = hashlib.sha256(self.seed)
        for part in (self.student, task, test):
            digest.update(b"\0" + part.encode("utf-8", "surrogatepass"))
        return int.from_bytes(digest.digest())


def _explained(result: TaskResult, task: Task, submission: Submission, answers: bool) -> TaskResult:
    """A missing name is explained by the cell that stopped before it was defined."""
    if result.problem:
        wanted = next((name for name in task.names if re.search(rf"needs {name}\b", result.problem)), "")
        reason = _stopped_cell(task, wanted, submission)
        problem = " ".join(filter(None, [result.problem if answers else SILENT, reason]))
        for part in (result, *result.on_cpu):
            part.problem = part.problem and problem
    return result


def _stopped_cell(task: Task, name: str, submission: Submission) -> str:
    """One sentence for the cell that should have defined `name`, or for the first one that stopped."""
    stopped = [(cell, submission.ends[i]) for i, cell in enumerate(submission.cells)
               if i in submission.ends and submission.ends[i].status == "error"]  # fmt: skip
    defining = re.compile(rf"^(?:async def|def|class)\s+{name}\b|^{name}\s*[:=]|^%%cuda\b.*\b{name}\b", re.MULTILINE)
    own = [pair for pair in stopped if name and defining.search(pair[0].source)]
    for cell, end in own or [pair for pair in stopped if pair[0].task == task.name] or stopped[:1]:
        line = f" (line {end.line})" if end.line else ""
        return f"{cell.label[:1].upper()}{cell.label[1:]} stopped with {end.kind}: {end.message}{line}."
    left_out = [submission.cells[i].label for i in sorted(submission.left_out)]
    return f"Left out because it did not end: {', '.join(left_out)}." if left_out else ""


def tests_of_lesson(lesson: Lesson) -> Callable[[Task], list[Test]]:
    """Public and hidden tests; a fault of ours when they cannot be loaded."""

    def tests(task: Task) -> list[Test]:
        try:
            public = importlib.import_module(f"kvcourse.tasks.{lesson.name}")
            hidden = importlib.import_module(f"autograde.hidden.{lesson.name}")
        except ImportError as error:
            raise InfrastructureFault(f"The tests of {lesson.name} cannot be loaded: {error}") from error
        return tests_of(public, task.name) + tests_of(hidden, task.name, hidden=True)

    return tests


def solution_of(lesson: Lesson) -> Callable[[], Mapping[str, Any]]:
    def solution() -> Mapping[str, Any]:
        from autograde.sources import solution_namespace

        return solution_namespace(lesson)

    return solution


def _release(lesson: Lesson) -> Any:
    """The built learner notebook, if it is there."""
    with contextlib.suppress(ImportError, OSError):
        from autograde.sources import notebook_path

        return nbformat.read(notebook_path(lesson), as_version=4)
    return None


def _about(cell: Any) -> Mapping[str, Any]:
    return cell.get("metadata", {}).get("kvcourse", {})
