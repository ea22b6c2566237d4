"""Feedback pages: one HTML file a student, with every task's report and answer, through nbgrader's generate_feedback.

A page holds no script, loads nothing, and says of a hidden test only its property and the example it tried.
"""

from __future__ import annotations

from collections.abc import Set
from html import escape
from typing import Any

from nbconvert.exporters import Exporter
from nbformat.notebooknode import NotebookNode
from nbgrader.preprocessors import GetGrades

from autograde import page
from kvcourse.tasks.course import Task, find_lesson

NOT_RUN = "not run"
RULE = "Points count the properties that are tested with inputs which are not in your notebook."
GPU_RULE = (
    "They come from properties tested on a CPU alone, so they are the same on every machine. "
    "The verdict of a GPU is shown beside them and carries no points."
)
SHOWN = frozenset({"solution", "check", "extra"})
STYLE = f"""
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1f2328; }}
table.points {{ border-collapse: collapse; margin: 1rem 0; }}
table.points td, table.points th {{ border-bottom: 1px solid #d0d7de; padding: .25rem .8rem; text-align: left; }}
table.points .number {{ text-align: right; }}
pre {{ overflow-x: auto; padding: .5rem .7rem; margin: .4rem 0; border-radius: 4px; }}
pre {{ white-space: pre-wrap; word-break: break-word; }}
pre.code {{ background: #f6f8fa; }}
pre.output, div.output, pre.error {{ margin-left: 1.2rem; }}
pre.error {{ color: #8c2a00; }}
.note, .muted {{ color: #57606a; }}
.comment {{ border-left: 4px solid #0969da; padding: .2rem .8rem; margin: .5rem 0; }}
h2 {{ margin-top: 2rem; border-top: 1px solid #d0d7de; padding-top: .6rem; font-size: 1.2rem; }}
img {{ max-width: 100%; }}
{page.CODE_STYLE}
"""


class Grades(GetGrades):
    """nbgrader's grades and comments in the notebook, and which tasks have no score yet."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, cell_index: int) -> tuple[NotebookNode, dict]:
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if cell.metadata.get("nbgrader", {}).get("grade"):
            grade = self.gradebook.find_grade(
                cell.metadata.nbgrader["grade_id"], self.notebook_id, self.assignment_id, self.student_id
            )
            cell.metadata.nbgrader["scored"] = grade.auto_score is not None or grade.manual_score is not None
        return cell, resources


class FeedbackExporter(Exporter):
    """Writes the page; everything that a student wrote goes through `page`, only our own reports do not."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(**kw)
        self.file_extension = ".html"

    def from_notebook_node(self, nb: NotebookNode, resources: dict | None = None, **kw: Any) -> tuple[str, dict]:
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        about = resources["nbgrader"]
        lesson = find_lesson(about["assignment"])
        body = _body(nb, lesson.tasks)
        if len(body) > page.MAX_PAGE:
            body = f'<p class="note">Too long to be shown whole: only reports.</p>{_body(nb, lesson.tasks, {"check"})}'
        html = (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{page.CSP}">'
            f"<title>{escape(lesson.name)}: {escape(about['student'])}</title><style>{STYLE}</style></head><body>"
            f"<h1>{lesson.number:02d} {escape(lesson.title)}</h1>"
            f"{_summary(nb, lesson.tasks, about)}{body}</body></html>\n"
        )
        return html, resources


def _summary(nb: NotebookNode, tasks: tuple[Task, ...], about: dict[str, Any]) -> str:
    """The table of points with the GPU's verdict beside, why something was not run, and the notes."""
    gradings = {cell.metadata.kvcourse["task"]: cell.metadata.nbgrader for cell in nb.cells if _role(cell) == "check"}
    grading = nb.metadata.get("kvcourse", {})
    gpu = grading.get("gpu", {})
    rows = []
    for task in tasks:
        link = f'<a href="#{escape(task.name)}">{escape(task.name)}</a> {escape(task.title)}'
        rows.append((link, _points(gradings[task.name]), f"{task.points:g}", escape(str(gpu.get(task.name, "")))))
    if about["late_penalty"]:
        rows.append(("handed in late", f"-{about['late_penalty']:g}", "", ""))
    so_far = "" if all(gradings[task.name]["scored"] for task in tasks) else " so far"
    rows.append(("<b>total</b>", f"<b>{about['score']:g}</b>{so_far}", f"<b>{about['max_score']:g}</b>", ""))
    cells = '<tr><td>{}</td><td class="number">{}</td><td class="number">{}</td>' + "<td>{}</td>" * bool(gpu) + "</tr>"
    heads = [f"<b>{head}</b>" for head in ("task", "points", "of", "on a GPU")]
    table = "".join(cells.format(*row) for row in [heads, *rows])
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in grading.get("notes", []))
    reason = grading.get("reason")
    return (
        f'<p class="muted">{escape(about["student"])}</p><table class="points">{table}</table>'
        + f'<p class="muted">{RULE}{" " + GPU_RULE if gpu else ""}</p>'
        + (f"<p><b>Not run:</b> {escape(str(reason))}. Tell your teacher; this is not a zero.</p>" if reason else "")
        + (f'<p class="note">Notes on your submission:</p><ul class="note">{notes}</ul>' if notes else "")
    )


def _body(nb: NotebookNode, tasks: tuple[Task, ...], roles: Set[str] = SHOWN) -> str:
    """Every task with its report, the student's answer and, in its place, every cell of the student's own."""
    titles, parts = {task.name: task for task in tasks}, []
    checks = {cell.metadata.kvcourse["task"]: cell for cell in nb.cells if _role(cell) == "check"}
    begun: set[str] = set()
    for cell in nb.cells:
        role, name = _role(cell), cell.metadata.get("kvcourse", {}).get("task", "")
        if role not in roles:
            continue
        if name in titles and name not in begun:
            begun.add(name)
            parts.append(_report(checks[name], titles[name]))
        if role == "solution":
            parts.append(f'<p class="muted">Your answer</p>{page.code(cell.source)}{page.outputs(cell.outputs)}')
            comment = cell.metadata.get("nbgrader", {}).get("comment")
            parts.append(f'<div class="comment">{page.markdown(str(comment))}</div>' if comment else "")
        elif role == "extra":
            own = page.markdown(cell.source) if cell.cell_type == "markdown" else page.code(cell.source)
            shown = page.outputs(cell.outputs) if cell.cell_type == "code" else ""
            parts.append(f'<p class="muted">Your own cell</p>{own}{shown}')
    return "".join(parts)


def _report(cell: NotebookNode, task: Task) -> str:
    """Our own report, as the trusted run wrote it into the check cell."""
    points = _points(cell.metadata.nbgrader)
    head = f"{escape(task.name)} {escape(task.title)}: {points}" + ("" if points == NOT_RUN else f" of {task.points:g}")
    reports = [o.data["text/html"] for o in cell.outputs if o.output_type == "display_data" and "text/html" in o.data]
    texts = [f'<pre class="note">{escape(o.text)}</pre>' for o in cell.outputs if o.output_type == "stream"]
    return f'<h2 id="{escape(task.name)}">{head}</h2>{"".join(reports + texts)}'


def _points(grading: dict[str, Any]) -> str:
    return f"{grading['score']:g}" if grading["scored"] else NOT_RUN


def _role(cell: NotebookNode) -> str:
    return cell.metadata.get("kvcourse", {}).get("role", "")
