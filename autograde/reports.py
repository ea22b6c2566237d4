"""What a teacher sees at the end: the class's table, and a feedback page for everybody."""

from __future__ import annotations

import logging

from autograde.classwork import progress
from autograde.coursedir import Course
from autograde.intake import students
from autograde.nbgrader_run import generate_feedback, patiently
from autograde.results import Result, unjudged
from kvcourse.tasks.course import Lesson, UserError

MAX_REMARK = 160
FINAL_LEVEL = "L2"
log = logging.getLogger("kvgrade")


def table(results: list[Result], lesson: Lesson) -> str:
    """Student, points of every task, total, the GPU's verdict, state and notes, one line a student."""
    gpu = any(result.gpu for result in results)
    heads = ["student", *(task.name for task in lesson.tasks), "total", *["on a GPU"] * gpu, "state"]
    rows = []
    for result in results:
        points = result.points(lesson)
        known = [value for value in points.values() if value is not None]
        total = f"{sum(known):g}" if len(known) == len(points) else "not run"
        shown = map(shown_points, points.values())
        rows.append([result.student, *shown, total, *[gpu_verdict(result)] * gpu, result.state])
    rows.append(["of", *(f"{task.points:g}" for task in lesson.tasks), f"{lesson.points:g}", *[""] * gpu, ""])
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = []
    for row, result in zip([heads, *rows], [None, *results, None], strict=True):
        cells = [
            c.ljust(w) if i in (0, len(row) - 1) else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        remarks = "; ".join(result.remarks) if result else ""
        lines.append(("  ".join(cells) + "  " + _short(remarks)).rstrip())
    return "\n".join(lines)


def shown_points(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def gpu_verdict(result: Result) -> str:
    """One word for the tasks whose CPU properties hold: failed, not run or passed; "–" where no kernel was to run."""
    found = {verdict for name, verdict in result.gpu.items() if result.tasks[name].status == "passed"}
    return next((word for word in ("failed", "not run", "passed") if word in found), "–")


def waiting_for_gpu(results: list[Result]) -> str:
    """What to do about kernels that no GPU has seen; "" when there are none."""
    count = sum(bool(unjudged(result)) for result in results)
    if not count:
        return ""
    return (
        f"Kernels of {count} submission{'s' * (count != 1)} have not run on a GPU, which changes no points: "
        "`kvgrade gpu` adds its verdict on a machine that has one."
    )


def protection(results: list[Result]) -> str:
    """The level that the submissions were graded at, and what to do if it does not suffice for final grades."""
    levels = sorted({result.level for result in results if result.level})
    if not levels:
        return ""
    low = [level for level in levels if level < FINAL_LEVEL]
    advice = f" Final grades need {FINAL_LEVEL}: install bubblewrap, then run `kvgrade grade --force`." if low else ""
    return f"Protection: {', '.join(levels)}.{advice}"


def write_feedback(course: Course, lessons: list[Lesson]) -> list[str]:
    """A page for every graded submission; sentences on how many, and on whom there is none for."""
    waiting = [(lesson, name) for lesson in lessons for name in students(course, lesson)]
    ready = [(lesson, name) for lesson, name in waiting if course.autograded(name, lesson).is_file()]
    if not ready:
        raise UserError("Nothing is graded yet: run `kvgrade grade` first.")
    failed: list[str] = []
    with progress(len(ready), "feedback", "page") as bar:
        for lesson, name in ready:
            try:
                patiently(course, lambda: generate_feedback(course, lesson, name))  # noqa: B023
            except UserError:
                raise
            except Exception:
                log.exception("no feedback page for %s", name)
                failed.append(name)
            bar.update()
    written = len(ready) - len(failed)
    said = [f"{written} page{'s' * (written != 1)} written: feedback/STUDENT/LESSON/NOTEBOOK.html"]
    without = sorted({name for lesson, name in waiting} - {name for lesson, name in ready})
    if without:
        said.append(f"No page for {', '.join(without)}: there is no graded notebook.")
    if failed:
        said.append(f"No page for {', '.join(failed)}: nbgrader failed, see the log.")
    return said


def _short(text: str) -> str:
    return text if len(text) <= MAX_REMARK else f"{text[: MAX_REMARK - 1]}…"
