"""Grades a class: what is not done yet goes to worker processes, one writer brings the results into the gradebook."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

import nbformat
from tqdm import tqdm

from autograde.collect import collect_waiting, open_own_zips
from autograde.coursedir import Course, max_points, only_one, released_lesson
from autograde.grading import grade_job, store_lost, stored_result
from autograde.intake import adopt_folders, misplaced, prepare, read_submission, students
from autograde.nbgrader_run import record_results, unrecorded
from autograde.results import Result, fingerprint, load_result, task_of
from autograde.workers import Lost, default_workers, run_jobs
from kvcourse.tasks.course import Lesson, UserError, did_you_mean

SECONDS_PER_SUBMISSION = 900.0
STATES = ("graded", "graded with notes", "not run")


@dataclass
class ClassResult:
    """Every submission of the lessons that were asked for, and how many were executed just now."""

    results: dict[Lesson, list[Result]] = field(default_factory=dict)
    executed: int = 0
    said: list[str] = field(default_factory=list)


def grade_class(
    course: Course, lesson_name: str | None, student: str | None = None, workers: int | None = None, force: bool = False
) -> ClassResult:
    """Collect, grade what is new (with `force` everything), record. Ctrl-C keeps what is done."""
    with only_one(course):
        done = ClassResult()
        lessons = lessons_to_grade(course, lesson_name)
        done.said += collect_waiting(course, lessons[0] if lesson_name else None)
        done.said += adopt_folders(course) + misplaced(course)
        todo: list[tuple[Lesson, str]] = []
        for lesson in lessons:
            names = students(course, lesson)
            names = [name for name in names if student in (None, name)]
            for name in names:
                open_own_zips(course, name, lesson)
                prepare(course, name, lesson)
            todo += [(lesson, name) for name in names]
        if not todo:
            raise UserError(nothing_to_grade(course, lessons, student))
        done.executed = _execute(course, todo, workers or default_workers(), force)
        record(course, todo)
        for lesson, name in todo:
            result = load_result(course, name, lesson)
            assert result is not None, f"{name} has no result"
            done.results.setdefault(lesson, []).append(result)
        return done


def lessons_to_grade(course: Course, lesson_name: str | None) -> list[Lesson]:
    """The lesson asked for, or every lesson released in the folder; each release fits this version of the course."""
    lessons = [released_lesson(course, lesson_name)] if lesson_name else course.released()
    if not lessons:
        raise UserError("No lesson is released in this folder: start with `kvgrade release LESSON`.")
    for lesson in lessons:
        cells = nbformat.read(course.release(lesson), as_version=4).cells
        checks = {
            c.metadata.kvcourse["task"]: c for c in cells if c.metadata.get("kvcourse", {}).get("role") == "check"
        }
        released = {name: float(cell.metadata.nbgrader["points"]) for name, cell in checks.items()}
        if released != {task.name: task.points for task in lesson.tasks}:
            raise UserError(
                f"The release of {lesson.name!r} in this folder is of another version of the course (other tasks or "
                "points): release it again, or grade with the version it was released with."
            )
        if {task_of(name): points for name, points in max_points(course, lesson).items()} != released:
            raise UserError(
                f"gradebook.db does not know this release of {lesson.name!r}: run `kvgrade release {lesson.name}` "
                "again; results that exist are used again."
            )
    return lessons


def nothing_to_grade(course: Course, lessons: list[Lesson], student: str | None) -> str:
    """The sentence for an empty class, with a hint at files that lie in the wrong place."""
    if student is not None:
        everybody = sorted({name for lesson in lessons for name in students(course, lesson)})
        return f"There is no submission of {student!r}. {did_you_mean(student, everybody) if everybody else ''}".strip()
    example = f"submitted/STUDENT/{lessons[0].name}/{lessons[0].notebook}.ipynb"
    astray = sorted(path.relative_to(course.root) for path in course.submissions.glob("**/*.ipynb"))[:3]
    found = f" Found {', '.join(map(str, astray))}, which lie elsewhere." if astray else ""
    return f"There are no submissions: put them under {example}, or a zip of your LMS into submitted/.{found}"


def _execute(course: Course, todo: list[tuple[Lesson, str]], workers: int, force: bool) -> int:
    """Grade what has no result yet; how many that were."""
    prints = {lesson: fingerprint(course, lesson) for lesson, _ in todo}
    submissions = [read_submission(course, name, lesson) for lesson, name in todo]
    waiting = [s for s in submissions if force or stored_result(course, s, prints[s.lesson]) is None]
    jobs = [(str(course.root), s.student, s.lesson.name) for s in waiting]
    counts: Counter[str] = Counter()
    with progress(len(jobs), "grading", "submission") as bar:
        for index, answer in run_jobs(grade_job, jobs, workers, SECONDS_PER_SUBMISSION, course.log_file):
            if isinstance(answer, Lost):
                store_lost(course, waiting[index].student, waiting[index].lesson, answer.reason)
            counts[answer if answer in STATES else "not run"] += 1
            bar.set_postfix_str(", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]))
            bar.update()
    return len(jobs)


def record(course: Course, todo: list[tuple[Lesson, str]]) -> list[tuple[Lesson, str]]:
    """Bring stored results into the gradebook and `autograded/` where they are not there yet; gives those."""
    fresh = {
        lesson: unrecorded(course, lesson, [name for other, name in todo if other == lesson]) for lesson, _ in todo
    }
    with progress(sum(map(len, fresh.values())), "recording", "submission") as bar:
        for lesson, names in fresh.items():
            record_results(course, lesson, names, bar.update)
    return [(lesson, name) for lesson, names in fresh.items() for name in names]


def progress(total: int, what: str, unit: str) -> tqdm:
    """A progress bar on the terminal; silent where there is nothing to do or nobody to watch."""
    return tqdm(total=total, desc=what, unit=f" {unit}", disable=not total or not sys.stderr.isatty(), leave=False)
