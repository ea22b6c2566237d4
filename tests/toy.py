"""A toy task: what the checks, the runner and the remote are tested on, so that no lesson can break those tests."""

from __future__ import annotations

from types import ModuleType

from kvcourse.tasks.api import Test, expect, task, tests_of
from kvcourse.tasks.course import Task

TASK = Task("toy.1", "add two numbers", 4.0, ("add",), ("one", "two", "three"))


@task("toy.1")
def test_zero(student):
    """Adding zero changes nothing."""
    expect(student.add, 0, 0).equals(0, because="0 + 0 is 0", tip="start with +")
    expect(student.add, 7, 0).equals(7)


@task("toy.1")
def test_sum(student):
    """Two numbers are added."""
    assert student.add(2, 3) == 5, "2 + 3 is 5"


@task("toy.1", after="test_sum")
def test_text_is_refused(student):
    """Text is refused by name."""
    expect(student.add, "a", 1).refused(naming="text", tip="raise a ValueError")


def toy_tests() -> list[Test]:
    module = ModuleType("toy_tests")
    vars(module).update(globals())
    return tests_of(module, "toy.1")
