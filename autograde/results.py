"""One result file per submission: what was graded, under which key, and how it ended."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from autograde.coursedir import Course, read_json, write_atomically
from autograde.imports import files_behind
from autograde.intake import Submission
from autograde.sources import script_path
from kvcourse.check.runner import Status, TaskResult
from kvcourse.tasks.course import Lesson

GRADE_ID = re.compile(r"([a-z_]+)[.-](\d+)")
State = Literal["graded", "graded with notes", "not run"]
FORMAT = 1


@dataclass
class Result:
    """How grading one submission ended. `tasks` is empty when nothing ran; then `reason` says why."""

    student: str
    lesson: str
    key: str
    reason: str = ""
    level: str = ""
    notes: list[str] = field(default_factory=list)
    tasks: dict[str, TaskResult] = field(default_factory=dict)
    outputs: dict[str, list] = field(default_factory=dict)
    seconds: float = 0.0
    final: bool = True  # False: a fault of the tools, worth another try
    kernels: dict[str, dict[str, str]] = field(default_factory=dict)  # by task and name: what a GPU is to judge

    @property
    def state(self) -> State:
        if self.reason or not self.tasks or any(task.fraction() is None for task in self.tasks.values()):
            return "not run"
        return "graded with notes" if self.all_notes else "graded"

    @property
    def gpu(self) -> dict[str, Status]:
        """The GPU's verdict of every task that has one. It changes no points."""
        return {name: task.gpu for name, task in self.tasks.items() if task.gpu is not None}

    @property
    def all_notes(self) -> list[str]:
        """The notes, and one for every task that fails on a GPU."""
        fails = [name for name, verdict in self.gpu.items() if verdict == "failed"]
        return [*self.notes, *(f"{name}: passed on the CPU, failed on a GPU; the points stand" for name in fails)]

    def points(self, lesson: Lesson) -> dict[str, float | None]:
        """Points by task, rounded to 2 decimals; None where the task was not run."""
        return {task.name: self._points(task.name, task.points) for task in lesson.tasks}

    @property
    def remarks(self) -> list[str]:
        """What a teacher should know: why something was not run, then the notes."""
        unrun = [f"{name}: {self.why(name)}" for name, task in self.tasks.items() if task.fraction() is None]
        return [*([self.reason] if self.reason else []), *unrun, *self.all_notes]

    def why(self, task: str) -> str:
        """Why a task has no points, in one sentence."""
        found = self.tasks.get(task)
        problems = [found.problem, *(p.problem for p in found.on_cpu)] if found else []
        return next(filter(None, problems), self.reason or "the task was not run")

    def _points(self, task: str, most: float) -> float | None:
        share = self.tasks[task].fraction() if task in self.tasks else None
        assert share is None or 0.0 <= share <= 1.0, f"{task} has the share {share}"
        return None if share is None else round(most * share, 2)


def unjudged(result: Result) -> list[str]:
    """The tasks whose kernels no GPU has seen, although their CPU properties hold."""
    return [
        name
        for name, task in result.tasks.items()
        if name in result.kernels and task.status == "passed" and task.gpu == "not run"
    ]


def task_of(grade_id: str) -> str:
    """The task that a gradebook cell belongs to: "sizing-2-code-a" and "sizing.2" are both of sizing.2."""
    found = GRADE_ID.match(grade_id)
    return f"{found[1]}.{found[2]}" if found else grade_id


def result_file(course: Course, student: str, lesson: Lesson) -> Path:
    return course.state / "results" / lesson.name / f"{student}.json"


def load_result(course: Course, student: str, lesson: Lesson) -> Result | None:
    """The stored result; None when there is none, or it is damaged or of another version."""
    data = read_json(result_file(course, student, lesson))
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        return None
    try:
        data["tasks"] = {name: TaskResult.from_dict(task) for name, task in data["tasks"].items()}
        return Result(**data)
    except (TypeError, KeyError, AttributeError):
        return None


def save_result(course: Course, lesson: Lesson, result: Result) -> None:
    data: dict[str, Any] = {"format": FORMAT, **asdict(result)}
    write_atomically(result_file(course, result.student, lesson), json.dumps(data, ensure_ascii=False))


def fingerprint(course: Course, lesson: Lesson) -> bytes:
    """Everything a grade depends on besides the submission: release, solution, tests, grader, points, class seed."""
    files = [course.release(lesson), *sorted(path for path in script_path(lesson).parent.iterdir() if path.is_file())]
    files += files_behind(f"kvcourse.tasks.{lesson.name}", f"autograde.hidden.{lesson.name}", "autograde.grade")
    digest = hashlib.sha256(repr((FORMAT, lesson)).encode() + course.seed())
    for path in files:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def result_key(submission: Submission, lesson_print: bytes) -> str:
    """Equal keys mean equal grades: nothing is executed twice for the same key."""
    parts = [submission.raw, submission.problem.encode(), "\n".join(submission.notes).encode(), lesson_print]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
