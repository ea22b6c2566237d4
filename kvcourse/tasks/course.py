"""The course as data: lessons, tasks, points, hints and quiz questions, read from `course.toml`."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

COURSE_FILE = Path(__file__).with_name("course.toml")
HINTS_PER_TASK = 3


class UserError(Exception):
    """A mistake of the person at the keyboard: shown as one sentence, never as a traceback."""


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    points: float
    names: tuple[str, ...]
    hints: tuple[str, ...]

    @property
    def lesson(self) -> str:
        return self.name.split(".")[0]


@dataclass(frozen=True)
class Quiz:
    name: str
    question: str
    choices: dict[str, str] = field(hash=False)
    answer: str
    why: str


@dataclass(frozen=True)
class Lesson:
    number: int
    name: str
    folder: str
    notebook: str
    title: str
    tasks: tuple[Task, ...]
    quiz: tuple[Quiz, ...] = ()

    @property
    def points(self) -> float:
        return sum(task.points for task in self.tasks)


@cache
def load_course(path: Path = COURSE_FILE) -> tuple[Lesson, ...]:
    """All lessons in order; AssertionError when the file breaks a rule of the course (a name twice, a missing hint)."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    lessons = tuple(_lesson(entry) for entry in raw["lesson"])
    names = [task.name for lesson in lessons for task in lesson.tasks]
    assert len(names) == len(set(names)), f"a task name stands twice in {path.name}"
    return lessons


def find_lesson(name: str) -> Lesson:
    """The lesson called `name`; UserError with the nearest names otherwise."""
    lessons = {lesson.name: lesson for lesson in load_course()}
    if name not in lessons:
        raise UserError(f"There is no lesson {name!r}. {did_you_mean(name, lessons)}")
    return lessons[name]


def find_task(name: str) -> Task:
    """The task called `name`, for example "sizing.2"; UserError with the nearest names otherwise."""
    tasks = {task.name: task for lesson in load_course() for task in lesson.tasks}
    if name not in tasks:
        raise UserError(f"There is no task {name!r}. {did_you_mean(str(name), tasks)}")
    return tasks[name]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    return f"Known names: {', '.join(known)}."


def _lesson(entry: dict) -> Lesson:
    tasks = tuple(
        Task(t["name"], t["title"], float(t["points"]), tuple(t["names"]), tuple(t["hints"])) for t in entry["task"]
    )
    for task in tasks:
        assert task.lesson == entry["name"], f"{task.name} stands under lesson {entry['name']}"
        assert len(task.hints) == HINTS_PER_TASK, f"{task.name} needs {HINTS_PER_TASK} hints"
        assert task.points > 0 and task.names, f"{task.name} needs points and names"
    quiz = tuple(
        Quiz(q["name"], q["question"], dict(q["choices"]), q["answer"], q["why"]) for q in entry.get("quiz", ())
    )
    assert all(q.answer in q.choices for q in quiz), f"a quiz answer of {entry['name']} is not among its choices"
    return Lesson(entry["number"], entry["name"], entry["folder"], entry["notebook"], entry["title"], tasks, quiz)
