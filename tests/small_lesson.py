"""A small lesson of three tasks on which the grader is tested, so that no real lesson can break those tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from nbformat.v4 import new_code_cell, new_notebook

from kvcourse.tasks.api import Test, expect, task, tests_of
from kvcourse.tasks.course import Lesson, Task

HINTS = ("one", "two", "three")
LESSON = Lesson(
    1,
    "small",
    "01_small",
    "small",
    "A small lesson",
    (
        Task("small.1", "double a number", 2.0, ("double",), HINTS),
        Task("small.2", "fill in place", 3.0, ("fill",), HINTS),
        Task("small.3", "count words", 4.0, ("Counter",), HINTS),
    ),
)
DOUBLE = "def double(x):\n    if isinstance(x, str):\n        raise ValueError('x is text')\n    return 2 * x"
FILL = "def fill(array, value):\n    array[:] = value\n    return array.sum()"
COUNTER = """class Counter:
    def __init__(self):
        self.words = {}

    def add(self, word):
        self.words[word] = self.words.get(word, 0) + 1

    def most(self):
        return max(self.words, key=self.words.get)"""
CODE = {"small.1": DOUBLE, "small.2": FILL, "small.3": COUNTER}


@task("small.1")
def test_two(student):
    """Two becomes four."""
    expect(student.double, 2).equals(4)


@task("small.1")
def test_any_number(student, rng, solution):
    """Any whole number is doubled."""
    for _ in range(3):
        x = rng.randrange(10**6)
        assert student.double(x) == solution.double(x)


@task("small.1", after="test_any_number")
def test_text_is_refused(student):
    """Text is refused."""
    expect(student.double, "a").refused(naming="text")


@task("small.2")
def test_array_is_filled(student, rng):
    """Every number of the array is replaced, and the sum comes back."""
    value, array = float(rng.randrange(1, 99)), np.zeros(4)
    expect(student.fill, array, value).close(4 * value)
    np.testing.assert_allclose(array, value)


@task("small.3")
def test_most_frequent_word(student, rng):
    """The word that came most often is named."""
    counter, word = student.Counter(), f"word{rng.randrange(1000)}"
    for text in ("a", word, word):
        counter.add(text)
    assert counter.most() == word


def small_tests(about: Task) -> list[Test]:
    """Every test is a hidden one, so each counts."""
    return tests_of(sys.modules[__name__], about.name, hidden=True)


def solution() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for code in CODE.values():
        exec(code, names)
    return names


def notebook(*extra: str, code: dict[str, str] | None = None, after: Sequence[str] = ()) -> Any:
    """The lesson's notebook: cells of `extra`, then one cell a task (`code` replaces or leaves out), then `after`."""
    cells = [_cell(f"extra-{i}", source, role="given") for i, source in enumerate(extra)]
    for name, source in (dict.fromkeys(CODE, "") | (CODE if code is None else code)).items():
        place = name.replace(".", "-")
        cells.append(_cell(f"{place}-code", source, role="solution", task=name))
        cells.append(_cell(place, f'check("{name}")', role="check", task=name))
    cells += [new_code_cell(source, id=f"after-{i}") for i, source in enumerate(after)]
    return new_notebook(cells=cells)


def _cell(name: str, source: str, **about: str) -> Any:
    return new_code_cell(source, id=name, metadata={"kvcourse": about})


def points(graded: Any) -> float:
    return sum(task.points * (graded.tasks[task.name].fraction() or 0.0) for task in LESSON.tasks)
