"""Grades one submission into its result file, and says how it ended; a fault of the tools is never a zero."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

from autograde.coursedir import Course
from autograde.intake import Submission, read_release, read_submission
from autograde.limits import InfrastructureFault
from autograde.results import Result, fingerprint, load_result, result_key, save_result
from autograde.sanitize import rebuild
from kvcourse.tasks.course import Lesson, find_lesson

log = logging.getLogger("kvgrade")
TRIES = 2
MAX_OUTPUTS = 8_000_000  # characters of a whole notebook
NOT_KEPT = {"output_type": "stream", "name": "stderr", "text": "[not kept: the notebook printed too much]\n"}


def stored_result(course: Course, submission: Submission, lesson_print: bytes) -> Result | None:
    """The result of just this submission, if it was graded before and not lost to a fault of the tools."""
    found = load_result(course, submission.student, submission.lesson)
    return found if found and found.final and found.key == result_key(submission, lesson_print) else None


def obtain_result(course: Course, student: str, lesson: Lesson) -> Result:
    """The stored result, or a new one: what plain `nbgrader autograde` does, one submission after the other."""
    submission, lesson_print = read_submission(course, student, lesson), fingerprint(course, lesson)
    stored = stored_result(course, submission, lesson_print)
    return stored or grade_submission(course, submission, result_key(submission, lesson_print))


def grade_job(root: str, student: str, lesson_name: str) -> str:
    """What a worker does: grade, store, and hand back the state. Raises nothing that a submission can cause."""
    course, lesson = Course(Path(root)), find_lesson(lesson_name)
    submission = read_submission(course, student, lesson)
    result = grade_submission(course, submission, result_key(submission, fingerprint(course, lesson)))
    return result.state if result.final else result.reason


def grade_submission(course: Course, submission: Submission, key: str) -> Result:
    """Rebuild, execute, test, store; a fault of the tools is tried once more."""
    start = time.monotonic()
    for _ in range(TRIES):
        result = _grade(course, submission, key)
        if result.final:
            break
    result.seconds = round(time.monotonic() - start, 3)
    save_result(course, submission.lesson, result)
    return result


def _grade(course: Course, submission: Submission, key: str) -> Result:
    from autograde.grade import grade_notebook

    lesson = submission.lesson
    result = Result(submission.student, lesson.name, key, notes=list(submission.notes))
    if submission.problem:
        result.reason = submission.problem
    else:
        release = read_release(course, lesson)
        notebook, notes = rebuild(submission.cells, release)
        result.notes += notes
        try:
            graded = grade_notebook(
                notebook, lesson, student_id=submission.student, seed=course.seed(), release=release
            )
            result.tasks, result.outputs, result.level = graded.tasks, capped(graded.outputs), graded.level
            result.notes, result.kernels = result.notes + graded.notes, graded.kernels
        except InfrastructureFault as fault:
            result.reason, result.final = str(fault), False
        except Exception as error:
            log.exception("grading %s failed", submission.student)
            result.reason, result.final = f"the grader failed ({type(error).__name__}); see the log", False
    return result


def capped(outputs: dict[str, list]) -> dict[str, list]:
    """Outputs of all cells together in a bounded size; the cells after that keep only a remark."""
    kept: dict[str, list] = {}
    left = MAX_OUTPUTS
    for cell, entries in outputs.items():
        left -= len(json.dumps(entries))
        kept[cell] = entries if left > 0 or not entries else [NOT_KEPT]
    return kept


def store_lost(course: Course, student: str, lesson: Lesson, reason: str) -> None:
    """The result of a submission whose process was lost twice."""
    submission = read_submission(course, student, lesson)
    key = result_key(submission, fingerprint(course, lesson))
    save_result(course, lesson, Result(student, lesson.name, key, reason, notes=list(submission.notes), final=False))
