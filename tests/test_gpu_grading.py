"""Kernels on the grader's GPU: its process may hang or die, points stay, and a verdict can be added afterwards."""

from __future__ import annotations

import json
import os
from typing import Any

import fake_grading
import gpu_lesson
import pytest
from course_folder import LESSON as SIZING
from course_folder import auto_scores, kvgrade, rows, submit
from gpu_lesson import FIRST_BLOCK, GOOD, LESSON, WRONG, gpu_tests, names, notebook
from gpu_stand_in import AT_START, DIE, LOSE

from autograde import gpu_later, grade
from autograde.gpu import OFF, SWITCH
from autograde.grade import Graded, InfrastructureFault, grade_notebook
from autograde.grading import load_result
from autograde.kept import MAX_SOURCE, UNREAD, KernelReader
from autograde.results import Result
from kvcourse.check.gpu import NO_GPU
from kvcourse.check.runner import PropertyResult
from kvcourse.check.student import LocalStudent

pytest_plugins = ["course_fixtures", "gpu_fixtures"]
FULL = 5.0


# --- one notebook


def graded(source: str = GOOD, **options: Any) -> Graded:
    given = {"student_id": "ann", "seed": b"class", "tests": gpu_tests, "solution": dict}
    return grade_notebook(notebook(source), LESSON, **(given | options))


def points(found: Graded) -> float:
    return sum(task.points * found.tasks[task.name].fraction() for task in LESSON.tasks)


def test_points_are_full_without_a_gpu_and_the_kernels_are_kept(monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    found = graded()
    assert points(found) == FULL and found.tasks["small.1"].gpu == "not run" and found.tasks["small.2"].gpu is None
    assert {p.problem for p in found.tasks["small.1"].on_gpu} == {OFF}
    assert found.kernels == {"small.1": {"double": "\n" + GOOD}}, "only kernels, lines counted as in the cell"
    assert Graded.from_dict(json.loads(json.dumps(found.as_dict()))) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "verdict"),
    [(GOOD, "passed"), (FIRST_BLOCK, "failed"), (GOOD + DIE, "failed"), (GOOD + LOSE, "not run")],
)
def test_points_are_the_same_whatever_the_gpu_says(runner, source, verdict):
    found = graded(source, gpu=lambda: runner)
    assert (points(found), found.tasks["small.1"].status, found.tasks["small.1"].gpu) == (FULL, "passed", verdict)


def test_a_kernel_that_fails_on_the_cpu_goes_to_no_gpu(runner):
    found = graded(WRONG, gpu=lambda: runner)
    assert (found.tasks["small.1"].status, found.tasks["small.1"].gpu) == ("failed", "not run")
    assert runner._process is None and found.kernels == {}


def test_a_verdict_of_the_gpu_is_a_note_and_no_points():
    def result(verdict: str) -> Result:
        tasks = {"small.1": graded_task(verdict)}
        return Result("ann", "small", "key", tasks=tasks)

    def graded_task(verdict):
        found = grade.TaskResult("small.1", "passed", [PropertyResult("a", "A.", "passed", hidden=True)])
        found.properties.append(PropertyResult("b", "B.", verdict, hidden=True, gpu=True))
        return found

    for verdict in ("passed", "not run"):
        assert (result(verdict).state, result(verdict).remarks) == ("graded", [])
    failed = result("failed")
    assert failed.state == "graded with notes" and failed.notes == []
    assert failed.remarks == ["small.1: passed on the CPU, failed on a GPU; the points stand"]
    assert {result(v).points(LESSON)["small.1"] for v in ("passed", "failed", "not run")} == {2.0}


def test_what_is_kept_of_a_students_names():
    class Moody:
        @property
        def source(self):
            raise AttributeError("no")

    def kept(**changed):
        reader = KernelReader(gpu_lesson.TASK, LocalStudent(names() | changed))
        return reader.read() if isinstance(reader.read(), str) else reader.sources["double"]

    assert kept(double="text") == "text" and kept() == "\n" + GOOD
    for odd in (Moody(), "x" * (MAX_SOURCE + 1), 5, print):
        assert kept(double=odd) == UNREAD
    line = gpu_lesson.Given()
    line.first_line = 10**9
    assert kept(double=line) == GOOD


# --- a class


KERNELS = {"anna": GOOD, "bob": FIRST_BLOCK, "cara": GOOD}


@pytest.fixture
def kernels(course, monkeypatch, runner):
    """Three students with a kernel in sizing.1, graded without a GPU; gives what stands in for the GPU."""

    def fake(nb: Any, lesson: Any, *, student_id: str, **options: Any) -> Graded:
        found = fake_grading.fake_notebook(nb, lesson, student_id=student_id, **options)
        waiting = [PropertyResult(t.name, t.title, "not run", True, problem=NO_GPU, gpu=True) for t in on_gpu()]
        found.tasks["sizing.1"].properties += waiting
        if found.tasks["sizing.1"].status == "passed":
            found.kernels["sizing.1"] = {"double": KERNELS[student_id]}
        return found

    def on_gpu() -> list[Any]:
        return [test for test in gpu_tests(gpu_lesson.TASK) if test.gpu]

    monkeypatch.setattr(grade, "grade_notebook", fake)
    monkeypatch.setattr(gpu_later, "tests_of_lesson", lambda _: lambda t: on_gpu() if t.name == "sizing.1" else [])
    monkeypatch.setenv(SWITCH, "auto")
    for student in KERNELS:
        submit(course, student, {"sizing.2": "SHARE 2/4"} if student == "anna" else None)
    assert kvgrade("grade", "--gpu", "off") == 0
    return lambda: monkeypatch.setattr(gpu_later, "grading_gpu", lambda: runner)


def verdicts(course) -> dict[str, str]:
    found = {student: load_result(course, student, SIZING) for student in KERNELS}
    return {student: str(result.gpu["sizing.1"]) for student, result in found.items()}


@pytest.mark.slow
def test_a_table_without_a_gpu_says_what_to_do(kernels, course, capsys):
    assert os.environ[SWITCH] == "auto", "the choice holds for one command"
    assert kvgrade("grade", "--gpu", "off") == 0
    out = capsys.readouterr().out
    assert "on a GPU" in out.splitlines()[1] and out.count("not run") >= 3
    assert "Kernels of 3 submissions have not run on a GPU, which changes no points: `kvgrade gpu` adds" in out


@pytest.mark.slow
def test_the_verdict_is_added_afterwards_without_running_a_notebook(kernels, course, capsys, tmp_path):
    kvgrade("feedback")
    before, executed = {s: auto_scores(course, s) for s in KERNELS}, (tmp_path / "executed").read_text()
    assert set(verdicts(course).values()) == {"not run"}
    kernels()
    capsys.readouterr()
    assert kvgrade("gpu", "sizing") == 0
    out = capsys.readouterr().out
    assert "Submissions on the GPU: 2 passed, 1 failed, 0 not run. Points stay as they were." in out
    assert verdicts(course) == {"anna": "passed", "bob": "failed", "cara": "passed"}
    assert (tmp_path / "executed").read_text() == executed and {s: auto_scores(course, s) for s in KERNELS} == before
    page = course.feedback("bob", SIZING).read_text()
    assert "<td>failed</td>" in page and "passed on the CPU, failed on a GPU; the points stand" in page
    assert "Several blocks share the work." in page and "carries no points" in page
    page = course.feedback("anna", SIZING).read_text()
    assert "<td>passed</td>" in page and "the points stand" not in page, "pages that were there are written again"
    assert kvgrade("gpu") == 0 and "No kernel waits for a GPU." in capsys.readouterr().out
    assert kvgrade("grade") == 0 and kvgrade("export", "g.csv") == 0
    out, table = capsys.readouterr().out, rows("g.csv")
    assert "0 executed now" in out and "have not run on a GPU" not in out
    assert (table["bob"]["state"], table["cara"]["state"]) == ("graded with notes", "graded")
    assert (
        table["bob"]["sizing.1"] == table["cara"]["sizing.1"] and "sizing.1: passed on the CPU" in table["bob"]["notes"]
    )


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_where_it_was(kernels, course, capsys, monkeypatch, runner):
    kernels()
    judge, seen = gpu_later.judge, []

    def stopped(lesson, result, *rest):
        if stop and seen:
            raise KeyboardInterrupt
        seen.append(result.student)
        judge(lesson, result, *rest)

    monkeypatch.setattr(gpu_later, "judge", stopped)
    stop = True
    assert kvgrade("gpu") == 130 and sorted(verdicts(course).values()) == ["not run", "not run", "passed"]
    stop = False
    assert kvgrade("gpu") == 0 and seen == ["anna", "bob", "cara"]
    assert "not run" not in verdicts(course).values()
    for student in KERNELS:
        stored = json.loads(course.autograded(student, SIZING).read_text())["metadata"]["kvcourse"]
        assert stored["gpu"] == {"sizing.1": verdicts(course)[student]}, "also of whom was stored before the stop"


@pytest.mark.slow
def test_trouble_with_the_gpu_leaves_everything_waiting(kernels, course, capsys, monkeypatch):
    monkeypatch.setenv(AT_START, "die")
    kernels()
    assert kvgrade("gpu") == 0
    out = capsys.readouterr().out
    assert "0 passed, 0 failed, 3 not run" in out and "Not run: the process for the GPU ended while it started" in out
    assert set(verdicts(course).values()) == {"not run"}


@pytest.mark.slow
def test_what_has_changed_is_left_to_grading(kernels, course, capsys):
    submit(course, "bob", {"sizing.3": "SHARE 1/4"})
    kernels()
    assert kvgrade("gpu") == 0
    assert "Left out until `kvgrade grade` has graded what lies there now: bob." in capsys.readouterr().out
    assert verdicts(course) == {"anna": "passed", "bob": "not run", "cara": "passed"}


@pytest.mark.slow
def test_no_gpu_is_one_sentence(kernels, course, capsys, monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    assert kvgrade("gpu") == 2
    assert capsys.readouterr().err == f"kvgrade: No kernel was run: {OFF}.\n"


def test_a_lesson_without_kernels_has_nothing_to_run_and_no_column(course, capsys):
    submit(course, "anna")
    assert kvgrade("grade") == 0 and kvgrade("gpu") == 0 and kvgrade("feedback") == 0
    out = capsys.readouterr().out
    assert "No kernel waits for a GPU." in out and "on a GPU" not in out
    page = course.feedback("anna", SIZING).read_text()
    assert "on a GPU" not in page and "carries no points" not in page


def test_a_grader_that_fails_is_no_verdict_of_the_gpu():
    def broken():
        raise OSError("no more processes")

    with pytest.raises(InfrastructureFault):
        graded(gpu=broken)
