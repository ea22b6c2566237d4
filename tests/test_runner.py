"""Verdicts: not started, passed, failed and not run are told apart, with the smallest example."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from toy import TASK, toy_tests

from kvcourse.check import limit, student
from kvcourse.check.runner import TaskResult, run_task
from kvcourse.check.student import LocalStudent
from kvcourse.tasks.api import Failure, Test, expect, task


def run(**names) -> TaskResult:
    return run_task(TASK, LocalStudent(names), toy_tests())


def test_the_right_answer_passes_everything():
    def add(a, b):
        if isinstance(a, str):
            raise ValueError(f"{a} is text")
        return a + b

    result = run(add=add)
    assert result.status == "passed" and [p.status for p in result.properties] == ["passed"] * 3


def test_a_stub_is_not_started_and_shows_no_traceback():
    def add(a, b):
        raise NotImplementedError("toy.1: add two numbers")

    result = run(add=add)
    assert result.status == "not started" and {p.status for p in result.properties} == {"not started"}


def test_a_task_of_two_functions_half_done_gets_its_verdicts():
    def stub(a, b):
        raise NotImplementedError("toy.1: add two numbers")

    @task("toy.1")
    def test_other(student):
        """The other function answers."""
        expect(student.other, 0, 0).equals(0)

    both = dataclasses.replace(TASK, names=("add", "other"))
    tests = [*toy_tests(), test_other.kvcourse_test]
    half = run_task(both, LocalStudent({"add": stub, "other": lambda a, b: 0}), tests)
    assert half.status == "failed"
    assert [p.status for p in half.properties] == ["not started", "not started", "not run", "passed"]
    none = run_task(both, LocalStudent({"add": stub, "other": stub}), tests)
    assert {p.status for p in none.properties} | {none.status} == {"not started"}


def test_a_stub_of_another_task_is_named():
    def add(a, b):
        raise NotImplementedError("sizing.1: bytes per token")

    result = run(add=add)
    assert result.status == "failed" and "do sizing.1 first" in result.properties[0].because


def test_the_failing_call_is_shown_with_expected_got_why_and_tip():
    first = run(add=lambda a, b: a - b + 1).properties[0]
    assert (first.call, first.expected, first.got) == ("add(0, 0)", "0", "1")
    assert (first.because, first.tip) == ("0 + 0 is 0", "start with +")


def test_a_plain_assert_is_explained_from_the_last_call():
    second = run(add=lambda a, b: a).properties[1]
    assert (second.status, second.call, second.expected, second.got) == ("failed", "add(2, 3)", "5", "2")
    assert second.because == "2 + 3 is 5"


def test_a_property_that_builds_on_a_failed_one_is_not_run():
    """A function that always refuses earns nothing for refusing."""

    def add(a, b):
        raise ValueError("text")

    assert [p.status for p in run(add=add).properties] == ["failed", "failed", "not run"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({}, "toy.1 needs add, which is not defined: run the cell that defines it."),
        ({"addd": print}, "toy.1 needs add, which is not defined; there is addd: rename it to add."),
    ],
)
def test_a_missing_or_misspelt_name_is_one_sentence(names, sentence):
    result = run(**names)
    assert result.problem == sentence and result.status == "failed"


def test_an_exception_names_its_kind_and_message():
    def add(a, b):
        return {}["x"]

    assert "KeyError: 'x'" in run(add=add).properties[0].got


def test_an_endless_loop_ends_in_a_verdict(monkeypatch):
    monkeypatch.setattr(student, "SECONDS_PER_PROPERTY", 0.2)

    def add(a, b):
        while True:
            try:
                pass
            except Exception:
                continue

    first = run(add=add).properties[0]
    assert first.status == "failed" and "No answer after 0.2 s" in first.because and first.call == ""


def test_the_limit_puts_the_old_alarm_handler_back():
    import signal

    before = signal.getsignal(signal.SIGALRM)
    with limit.time_limit(5):
        pass
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_learner_cannot_change_the_test_input():
    def greedy(items):
        items.clear()
        return 0

    numbers, nested = [1, 2], ([1, 2],)
    with LocalStudent({"f": greedy, "first": lambda pair: greedy(pair[0])}).session() as student:
        student.first(nested)
        assert nested == ([1, 2],)
        student.f(numbers)
        assert numbers == []  # a list is changed in place, as in any call


def test_in_place_changes_of_arrays_come_back():
    array, tensor = np.zeros(3), torch.zeros(2)
    with LocalStudent({"fill": lambda x: x.__setitem__(slice(None), 7)}).session() as student:
        student.fill(array)
        student.fill(tensor)
    assert array.tolist() == [7, 7, 7] and tensor.tolist() == [7, 7]


def test_objects_stay_with_the_learner_and_answer_by_value():
    class Counter:
        def __init__(self, start):
            self.count = start

        def up(self, by):
            self.count += by
            return self.count

        def __len__(self):
            return self.count

    with LocalStudent({"Counter": Counter}).session() as student:
        counter = student.Counter(2)
        assert (counter.up(3), counter.count, len(counter)) == (5, 5, 5)
        with pytest.raises(TypeError, match="compare values"):
            _ = counter == counter
        assert [call for call, _ in student.calls][:2] == ["Counter(2)", "Counter.up(3)"]


@pytest.mark.parametrize(
    ("got", "want", "reason"),
    [
        (2.0, 2, "return a whole number"),
        (True, 1, "is a bool"),
        ([1, 2], [1], "2 items instead of 1"),
        (None, [1], "not a list"),
        ((1, 3), [1, 2], ""),
    ],
)
def test_equals_says_what_is_wrong(got, want, reason):
    with LocalStudent({"f": lambda: got}).session() as student, pytest.raises(Failure) as caught:
        expect(student.f).equals(want)
    assert reason in caught.value.because


def test_close_names_the_first_difference():
    with LocalStudent({"f": lambda: torch.tensor([1.0, 2.0])}).session() as student, pytest.raises(Failure) as caught:
        expect(student.f).close([1.0, 2.5])
    assert "index [1]: 2 instead of 2.5" in caught.value.because


def test_only_hidden_properties_carry_points():
    tests = [
        Test("toy.1", t.fn, t.after, t.weight, hidden)
        for t, hidden in zip(toy_tests(), (False, True, True), strict=True)
    ]
    result = run_task(TASK, LocalStudent({"add": lambda a, b: a + b}), tests)
    assert [p.status for p in result.properties] == ["passed", "passed", "failed"]
    assert result.fraction() == 0.5
    assert TaskResult.from_dict(result.as_dict()) == result
