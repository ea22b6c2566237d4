"""The tests are tested: right answers pass, stubs are not started, planted mistakes are caught, cheats earn nothing."""

from __future__ import annotations

import importlib
import inspect
import random
import time
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from autograde.faults import Fault, load_faults
from autograde.sources import solution_namespace, stub_namespace
from kvcourse.check.runner import TaskResult, run_task
from kvcourse.check.student import LocalStudent
from kvcourse.check.values import pack
from kvcourse.tasks import api
from kvcourse.tasks.course import Lesson, Task, load_course

TASKS = [(lesson, task) for lesson in load_course() for task in lesson.tasks]
FAULTS = {lesson.name: load_faults(lesson.name) for lesson in load_course()}
EVERY_TASK = pytest.mark.parametrize(("lesson", "task"), TASKS, ids=[task.name for _, task in TASKS])
FEWEST_FAULTS = 20
SEEDS = ("spring", "autumn")


def properties_of(task: Task, hidden: bool, gpu: bool = False) -> list[api.Test]:
    """Those that decide about points; with `gpu` also those that need a GPU."""
    folder = "autograde.hidden" if hidden else "kvcourse.tasks"
    tests = api.tests_of(importlib.import_module(f"{folder}.{task.lesson}"), task.name, hidden)
    return [test for test in tests if gpu or not test.gpu]


def run(
    lesson: Lesson, task: Task, names: Mapping[str, Any], hidden: bool, seed: str = SEEDS[0], only: str = ""
) -> TaskResult:
    """The tests of a task on `names`, with the fixtures that grading gives; `only` one, and those it stands behind."""
    fixtures = {"solution": SimpleNamespace(**solution_namespace(lesson))}
    tests = properties_of(task, hidden)
    return run_task(
        task,
        LocalStudent(names),
        with_those_before(tests, only) if only else tests,
        lambda test: fixtures | {"rng": random.Random(f"{seed} {test.name}")},
    )


def with_those_before(tests: list[api.Test], name: str) -> list[api.Test]:
    """The property `name`, and every one that must hold before it counts."""
    by_name, wanted = {test.name: test for test in tests}, [name]
    while (before := by_name[wanted[-1]].after) is not None:
        wanted.append(before)
    return [test for test in tests if test.name in wanted]


def failed(result: TaskResult) -> set[str]:
    return {p.name for p in result.properties if p.status == "failed"}


@cache
def caught(lesson: Lesson, task: Task, fault: Fault) -> set[str]:
    """The hidden properties that fail with the fault planted."""
    return failed(run(lesson, task, fault.plant(solution_namespace(lesson)), hidden=True))


def caught_again(lesson: Lesson, task: Task, fault: Fault, seed: str) -> set[str]:
    """Whether the property that must catch it does so with another seed, too."""
    names = fault.plant(solution_namespace(lesson))
    return failed(run(lesson, task, names, hidden=True, seed=seed, only=fault.caught_by))


def faults_of(task: Task) -> list[Fault]:
    return [fault for fault in FAULTS[task.lesson] if fault.task == task.name]


@EVERY_TASK
def test_the_solution_passes_everything(lesson, task):
    names = solution_namespace(lesson)
    for hidden in (False, True):
        for seed in SEEDS:
            result = run(lesson, task, names, hidden, seed)
            assert [p for p in result.properties if p.status != "passed"] == [] and result.properties
    assert run(lesson, task, names, hidden=True).fraction() == 1.0


@EVERY_TASK
def test_the_untouched_stub_is_not_started(lesson, task):
    names = stub_namespace(lesson)
    for hidden in (False, True):
        result = run(lesson, task, names, hidden)
        assert {p.status for p in result.properties} | {result.status} == {"not started"}


@EVERY_TASK
def test_property_names_and_titles_are_unique(lesson, task):
    tests = properties_of(task, False, gpu=True) + properties_of(task, True, gpu=True)
    assert len({test.name for test in tests}) == len({test.title for test in tests}) == len(tests)


@pytest.mark.slow
@EVERY_TASK
def test_every_fault_is_caught_by_its_property(lesson, task, capsys):
    start = time.perf_counter()
    hidden = {test.name for test in properties_of(task, True)}
    for fault in faults_of(task):
        if fault.caught_by in hidden:
            again = (caught_again(lesson, task, fault, seed) for seed in SEEDS[1:])
            found = caught(lesson, task, fault).intersection(*again)
        else:
            found = failed(run(lesson, task, fault.plant(solution_namespace(lesson)), hidden=False))
        assert fault.caught_by in found, f"{fault.why}: {fault.caught_by} did not fail"
    size = f"{len(faults_of(task))} faults x {len(hidden)} hidden properties, the one that must fail with two seeds,"
    with capsys.disabled():
        print(f"\n{task.name}: {size} in {time.perf_counter() - start:.1f} s")


@pytest.mark.slow
@EVERY_TASK
def test_every_hidden_property_catches_what_no_other_does(lesson, task):
    properties = {test.name for test in properties_of(task, True)}
    finds = [caught(lesson, task, fault) for fault in faults_of(task)]
    alone = set().union(*(names for names in finds if len(names) == 1))
    assert alone == properties, f"no fault of their own: {properties - alone}"


@pytest.mark.parametrize("lesson", load_course(), ids=lambda lesson: lesson.name)
def test_faults_belong_to_the_lesson(lesson):
    faults = FAULTS[lesson.name]
    assert len(faults) >= FEWEST_FAULTS and len({(fault.task, fault.why) for fault in faults}) == len(faults)
    for fault in faults:
        task = next(task for task in lesson.tasks if task.name == fault.task)
        assert fault.caught_by in {test.name for test in properties_of(task, False) + properties_of(task, True)}


# --- cheats


def always(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Every function of the task answers like this."""
    return lambda lesson, task: dict.fromkeys(task.names, answer)


def refuse(*args: Any, **kwargs: Any) -> None:
    raise ValueError("layers kv_heads head_dim bits config tokens block_size fraction free_bytes budget tp group")


def recorded(lesson: Lesson, task: Task) -> dict[str, Any]:
    """A table of the answers to the public tests' inputs."""
    table: dict[str, Any] = {}

    def key(name: str, args: tuple, kwargs: dict) -> str:
        return f"{name} {pack([list(args), kwargs], keep=repr)}"

    def teacher(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            asked = key(name, args, kwargs)
            table[asked] = solution_namespace(lesson)[name](*args, **kwargs)
            return table[asked]

        return call

    def parrot(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: table.get(key(name, args, kwargs), 0)

    assert run(lesson, task, {name: teacher(name) for name in task.names}, hidden=False).properties
    return {name: parrot(name) for name in task.names}


CHEATS = {
    "0": always(lambda *args, **kwargs: 0),
    "nothing": always(lambda *args, **kwargs: None),
    "empty list": always(lambda *args, **kwargs: []),
    "first argument": always(lambda *args, **kwargs: args[0]),
    "refusal": always(refuse),
    "table of public answers": recorded,
}


@EVERY_TASK
@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS.keys())
def test_cheats_earn_nothing(lesson, task, cheat):
    result = run(lesson, task, cheat(lesson, task), hidden=True)
    assert [p.name for p in result.properties if p.status == "passed"] == [] and result.fraction() == 0.0


# --- the faults themselves


def test_a_planted_fault_reaches_functions_that_call_it():
    def twice(x):
        return 2 * once(x)

    def once(x):
        return x

    names = {"twice": twice, "once": once}
    twice = names["twice"]
    planted = Fault("toy.1", "test_sum", "adds one", "", "def once(x):\n    return x + 1\n").plant(names)
    assert inspect.isfunction(planted["once"]) and planted["once"](1) == 2 and names["once"](1) == 1
