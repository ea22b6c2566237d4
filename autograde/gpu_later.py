"""Kernel sources kept with a grade, so that a GPU's verdict can be added on a machine that has one.

The notebook is not run again: what is launched is the text that the CPU properties held for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autograde.classwork import lessons_to_grade, progress, record
from autograde.coursedir import Course, only_one
from autograde.gpu import grading_gpu
from autograde.grade import Fixtures, solution_of, tests_of_lesson
from autograde.grading import stored_result
from autograde.intake import read_submission, students
from autograde.kept import kept_kernels
from autograde.nbgrader_run import generate_feedback, patiently
from autograde.reports import gpu_verdict
from autograde.results import Result, fingerprint, save_result, unjudged
from kvcourse.check.gpu import Launcher
from kvcourse.check.runner import run_on_gpu
from kvcourse.tasks.course import Lesson, UserError


@dataclass
class GpuResult:
    """The submissions whose kernels ran just now, and sentences on the rest."""

    results: dict[Lesson, list[Result]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


def add_verdicts(course: Course, lesson_name: str | None) -> GpuResult:
    """Run the kernels whose CPU properties hold and that no GPU has seen; store, record, write the pages again.

    Each submission is stored once it is done, so a stopped run goes on where it was. Points do not change. UserError
    when there is no GPU here.
    """
    with only_one(course):
        found, left_out = _found(course, lessons_to_grade(course, lesson_name))
        waiting = [(lesson, result) for lesson, result in found if unjudged(result)]
        done = GpuResult()
        with progress(len(waiting), "on the GPU", "submission") as bar:
            for lesson, result in waiting:
                gpu = grading_gpu()
                if isinstance(gpu, str):
                    raise UserError(f"No kernel was run: {gpu}.")
                judge(lesson, result, course.seed(), gpu)
                save_result(course, lesson, result)
                done.results.setdefault(lesson, []).append(result)
                bar.update()
        for lesson, student in record(course, [(lesson, result.student) for lesson, result in found]):
            if course.feedback(student, lesson).is_file() and course.autograded(student, lesson).is_file():
                patiently(course, lambda: generate_feedback(course, lesson, student))  # noqa: B023
        done.said.append(_summary(done) if waiting else "No kernel waits for a GPU.")
        if left_out:
            done.said.append(f"Left out until `kvgrade grade` has graded what lies there now: {', '.join(left_out)}.")
        return done


def judge(lesson: Lesson, result: Result, seed: bytes, gpu: Launcher) -> None:
    """Put the GPU's verdict on the kept kernels into a result, with the same inputs as in grading."""
    tests = tests_of_lesson(lesson)
    fixtures = Fixtures(seed, result.student, solution_of(lesson), lambda: gpu)
    tasks = {task.name: task for task in lesson.tasks}
    for name in unjudged(result):
        found = result.tasks[name]
        on_gpu = [test for test in tests(tasks[name]) if test.gpu]
        found.properties = found.on_cpu + run_on_gpu(on_gpu, kept_kernels(result.kernels[name]), fixtures)


def _found(course: Course, lessons: list[Lesson]) -> tuple[list[tuple[Lesson, Result]], list[str]]:
    """The results of lessons with GPU tests; and the students whose submission is not graded as it is now."""
    found, left_out = [], []
    for lesson in lessons:
        tests = tests_of_lesson(lesson)
        if not any(test.gpu for task in lesson.tasks for test in tests(task)):
            continue
        lesson_print = fingerprint(course, lesson)
        for student in students(course, lesson):
            result = stored_result(course, read_submission(course, student, lesson), lesson_print)
            if result is None:
                left_out.append(student)
            else:
                found.append((lesson, result))
    return found, left_out


def _summary(done: GpuResult) -> str:
    words = [gpu_verdict(result) for results in done.results.values() for result in results]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("passed", "failed", "not run"))
    everything = [task for results in done.results.values() for result in results for task in result.tasks.values()]
    reasons = {p.problem for task in everything if task.status == "passed" for p in task.on_gpu if p.problem}
    why = next((f" Not run: {p}." for p in sorted(reasons) if not p.startswith("counts once")), "")
    return f"Submissions on the GPU: {counts}. Points stay as they were.{why}"
