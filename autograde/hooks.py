"""nbgrader's plug-ins: a tolerant reader, the rebuild from the release, trusted execution, and a strict grade reader.

Plain `nbgrader autograde` and `kvgrade grade` both run these; the second only has the results ready beforehand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_notebook, new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool

from autograde import page
from autograde.coursedir import Course
from autograde.grading import obtain_result
from autograde.intake import prepare, read_release, read_submission
from autograde.results import Result, load_result, task_of
from autograde.sanitize import rebuild
from kvcourse.check.report import Report
from kvcourse.tasks.course import Lesson, UserError, find_lesson

NO_RESPONSE = "No response."


class SubmissionExporter(NotebookExporter):
    """Reads a submission without believing it: whatever the file is, the preprocessors get a notebook to start from."""

    def from_file(self, file_stream: Any, resources: dict | None = None, **kw: Any) -> tuple[NotebookNode, dict]:
        if Path(file_stream.name).parts[-4] == "autograded":
            return super().from_file(file_stream, resources, **kw)
        return self.from_notebook_node(new_notebook(), resources, **kw)


class CoursePreprocessor(NbGraderPreprocessor):
    """Knows the course folder, the lesson and the student."""

    def place(self, resources: dict) -> tuple[Course, Lesson, str]:
        about = resources["nbgrader"]
        return Course(Path(self.config.CourseDirectory.root)), find_lesson(about["assignment"]), about["student"]


class Sanitize(CoursePreprocessor):
    """Replaces the submitted notebook by the release with the student's cells in it."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        course, lesson, student = self.place(resources)
        submission, release = read_submission(course, student, lesson), read_release(course, lesson)
        if submission.problem:
            return nbformat.from_dict(release), resources
        nb, _ = rebuild(submission.cells, release)
        for cell in nb.cells:
            if cell.cell_type != "code" and cell.metadata.kvcourse["role"] == "extra":
                cell.source = page.safe_markdown(cell.source)
        return nb, resources


class TrustedExecute(CoursePreprocessor):
    """Puts the stored result of a submission into its notebook; executes and tests only if there is none."""

    stored_only = Bool(False, help="never execute: the results were made before (kvgrade grade)").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        course, lesson, student = self.place(resources)
        result = load_result(course, student, lesson) if self.stored_only else obtain_result(course, student, lesson)
        assert result is not None, f"{student} has no result to record"
        resources["kvcourse"] = result
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs = page.safe_outputs(result.outputs.get(cell.id, []))
        for cell in nb.cells:
            if cell.metadata.get("kvcourse", {}).get("role") == "check":
                cell.outputs = [_report_output(result, lesson, cell.metadata.kvcourse["task"])]
        nb.metadata["kvcourse"] = about_result(result)
        return nb, resources


class SaveGrades(CoursePreprocessor):
    """Writes the points of every task into the gradebook: from the trusted result alone, never from a cell's output."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        _, lesson, student = self.place(resources)
        with Gradebook(resources["nbgrader"]["db_url"]) as gradebook:
            save_points(gradebook, lesson, student, resources["kvcourse"])
        return nb, resources


def save_points(gradebook: Gradebook, lesson: Lesson, student: str, result: Result) -> None:
    """Auto scores and comments of one submission. A task that was not run has no score and waits for a person."""
    points = result.points(lesson)
    notebook = gradebook.find_submission_notebook(lesson.notebook, lesson.name, student)
    for grade in notebook.grades:
        grade.auto_score = points.get(task_of(grade.name))
        grade.needs_manual_grade = grade.auto_score is None or grade.manual_score is not None
    for comment in notebook.comments:
        task = task_of(comment.name)
        comment.auto_comment = _comment(result, task, points.get(task))
    gradebook.db.commit()


def about_result(result: Result) -> dict[str, Any]:
    """What the graded notebook says about its own grading."""
    return {
        "key": result.key,
        "state": result.state,
        "reason": result.reason,
        "level": result.level,
        "notes": result.all_notes,
        **({"gpu": result.gpu} if result.gpu else {}),
    }


def prepare_submission(assignment: str, student: str, notebooks: list[str]) -> None:
    """nbgrader's pre-convert hook: refuse links before nbgrader copies what they point to, map the notebook's name."""
    for path in {Path(notebook).parent for notebook in notebooks}:
        lesson = find_lesson(path.name)
        try:
            prepare(Course(path.parents[2]), path.parent.name, lesson)
        except UserError as error:  # nbgrader only logs errors of hooks and would copy what must not be copied
            raise SystemExit(str(error)) from None
        wanted = str(path / f"{lesson.notebook}.ipynb")
        if wanted not in notebooks and Path(wanted).is_file():
            notebooks.append(wanted)


def _comment(result: Result, task: str, points: float | None) -> str | None:
    if points is None:
        return f"{task} was not run: {result.why(task)}"
    return NO_RESPONSE if result.tasks[task].status == "not started" else None


def _report_output(result: Result, lesson: Lesson, task: str) -> NotebookNode:
    """The report of a task as the output of its check cell."""
    title = next(t.title for t in lesson.tasks if t.name == task)
    if task not in result.tasks:
        return new_output("stream", name="stdout", text=f"– {task} {title}: not run: {result.why(task)}\n")
    report = Report(result.tasks[task], title)
    return new_output("display_data", {"text/plain": report.text(), "text/html": report.html()})
