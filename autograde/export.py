"""Grades as CSV: our table with every task, state and note, and nbgrader's own columns without its silent zeros."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, MissingEntry, SubmittedAssignment
from nbgrader.plugins import CsvExportPlugin, LateSubmissionPlugin
from traitlets.config import Config
from traitlets.utils.importstring import import_item

from autograde.coursedir import Course, write_atomically
from autograde.results import load_result, task_of
from kvcourse.tasks.course import Lesson, UserError, load_course

NOT_RUN = "not run"
NOT_SUBMITTED = "not submitted"
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class NbgraderCsv(CsvExportPlugin):
    """nbgrader's exporter with two repairs: values are quoted, and a score that is not there yet is not a zero."""

    def export(self, gradebook: Gradebook) -> None:
        dest = Path(self.to or "grades.csv")
        wanted = ([str(name) for name in self.assignment], [str(name) for name in self.student])
        rows = []
        for assignment in gradebook.assignments:
            for student in gradebook.students:
                if (wanted[0] and assignment.name not in wanted[0]) or (wanted[1] and student.id not in wanted[1]):
                    continue
                row = {
                    "assignment": assignment.name,
                    "duedate": assignment.duedate,
                    "timestamp": None,
                    "student_id": student.id,
                    "last_name": student.last_name,
                    "first_name": student.first_name,
                    "email": student.email,
                    "raw_score": 0.0,
                    "late_submission_penalty": 0.0,
                    "score": 0.0,
                    "max_score": assignment.max_score,
                }
                try:
                    submission = gradebook.find_submission(assignment.name, student.id)
                except MissingEntry:
                    pass
                else:
                    penalty = submission.late_submission_penalty
                    row |= {"timestamp": submission.timestamp, "late_submission_penalty": penalty}
                    row |= {"raw_score": submission.score, "score": max(0.0, submission.score - penalty)}
                    if not is_scored(submission):
                        row |= {"raw_score": NOT_RUN, "score": NOT_RUN}
                rows.append(row)
        columns = list(rows[0]) if rows else ["assignment", "student_id", "score", "max_score"]
        write_csv(dest, columns, rows)


def export_grades(course: Course, gradebook: Gradebook, config: Config, dest: Path, lessons: list[Lesson]) -> int:
    """One row a student and lesson into `dest`; how many rows. Manual scores and extra credit count, as in nbgrader."""
    tasks = [task.name for lesson in load_course() if lesson in lessons for task in lesson.tasks]
    columns = ["student", "lesson", *tasks, "total", "max", "state", "level", "late_seconds", "late_penalty", "notes"]
    rows = []
    for lesson in lessons:
        for student in sorted(gradebook.students, key=lambda s: s.id):
            row = _row(course, gradebook, config, lesson, student.id)
            rows.append({"student": student.id, "lesson": lesson.name, "max": _number(lesson.points), **row})
    write_csv(dest, columns, rows)
    return len(rows)


def _row(course: Course, gradebook: Gradebook, config: Config, lesson: Lesson, student: str) -> dict[str, Any]:
    try:
        submission = gradebook.find_submission(lesson.name, student)
    except MissingEntry:
        return {"state": NOT_SUBMITTED}
    grades = {task_of(grade.name): grade for notebook in submission.notebooks for grade in notebook.grades}
    result = load_result(course, student, lesson)
    points = {name: grade.score if _has_score(grade) else NOT_RUN for name, grade in grades.items()}
    penalty = late_penalty(config, student, submission)
    whole = NOT_RUN not in points.values()
    total = round(max(0.0, submission.score - penalty), 2) if whole else NOT_RUN
    row = {**{name: _number(value) for name, value in points.items()}, "total": _number(total)}
    row |= {"late_seconds": round(submission.total_seconds_late), "late_penalty": _number(penalty)}
    if result is None:
        return row | {"state": "graded" if whole else NOT_RUN, "notes": "graded without kvgrade"}
    manual = [name for name, grade in grades.items() if grade.manual_score is not None]
    remarks = [*result.remarks, *([f"scored by hand: {', '.join(manual)}"] if manual else [])]
    state = result.state if result.state != NOT_RUN or not whole else "graded by hand"
    return row | {"state": state, "level": result.level, "notes": "; ".join(remarks)}


def late_penalty(config: Config, student: str, submission: SubmittedAssignment) -> float:
    """The penalty by the configured plug-in from the stored times, so that a moved due date counts at once."""
    if submission.total_seconds_late <= 0:
        return 0.0
    plugin = config.get("AssignLatePenalties", Config()).get("plugin_class", LateSubmissionPlugin)
    plugin = import_item(plugin) if isinstance(plugin, str) else plugin
    penalty = plugin(config=config).late_submission_penalty(student, submission.score, submission.total_seconds_late)
    return min(max(float(penalty or 0.0), 0.0), submission.score)


def is_scored(submission: SubmittedAssignment) -> bool:
    """True when every task has a score, by the tests or by hand."""
    return all(_has_score(grade) for notebook in submission.notebooks for grade in notebook.grades)


def _has_score(grade: Any) -> bool:
    return grade.auto_score is not None or grade.manual_score is not None


def write_csv(dest: Path, columns: list[str], rows: list[dict[str, Any]]) -> None:
    """Quoted, and no text that a spreadsheet would take for a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    try:
        if dest.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        if not dest.parent.is_dir():
            raise FileNotFoundError(2, "its folder does not exist")
        write_atomically(dest, text.getvalue())
    except OSError as error:
        raise UserError(f"{dest} cannot be written: {error.strerror}.") from None


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value


def _number(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, float) else value
