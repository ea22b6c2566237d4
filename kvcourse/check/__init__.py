"""The learner's side: `check("sizing.2")`, `hint("sizing.2")`, `quiz("sizing")` and `progress()`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from kvcourse.check.record import load_record, update_record
from kvcourse.tasks.course import Lesson, Task, UserError, did_you_mean, find_lesson, find_task, load_course

__all__ = ["check", "check_namespace", "hint", "progress", "quiz"]


def check(task_name: str, /, *functions: Callable[..., Any], **named: Any) -> Any:
    """Run the public tests of a task on your notebook's functions, and show what holds and what does not.

    In a script or another notebook pass the functions: `check("sizing.1", kv_bytes_per_token)`, or by name:
    `check("sizing.1", kv_bytes_per_token=mine)`. Returns a report that is true when every property holds. Where there
    is a GPU, kernels run on it as well, once all other properties hold.
    """
    try:
        task = find_task(task_name)
        namespace = _given(functions, named) or _notebook_namespace()
    except UserError as error:
        return _say(str(error))
    try:
        report = check_namespace(task, namespace)
    except KeyboardInterrupt:
        return _say(f"{task.name}: you stopped the check while your code was running. Nothing was recorded.")
    from kvcourse.check.report import show_rich

    show_rich(report.text(), report.html())
    return report


def check_namespace(task: Task, namespace: Mapping[str, Any]) -> Any:
    """The report of `task` on the names of `namespace`, recorded."""
    from kvcourse.check.gpu import gpu_here
    from kvcourse.check.report import Report
    from kvcourse.check.runner import run_task
    from kvcourse.check.student import LocalStudent
    from kvcourse.tasks.api import tests_of

    tests = tests_of(importlib.import_module(f"kvcourse.tasks.{task.lesson}"), task.name)
    result = run_task(task, LocalStudent(namespace), tests, lambda test: {"gpu": gpu_here()} if test.gpu else {})
    checks = load_record().get(task.name, {}).get("checks", 0)
    best = {"passed": True} if result.status == "passed" else {}
    gpu = {"gpu": result.gpu} if result.gpu else {}
    problem = update_record(task.name, status=result.status, checks=checks + 1, **best, **gpu)
    return Report(result, task.title, [problem] if problem else [])


def hint(task_name: str) -> Any:
    """Show the next of a task's three hints; after the third, all of them again. Hints cost nothing."""
    try:
        task = find_task(task_name)
    except UserError as error:
        return _say(str(error))
    used = min(load_record().get(task.name, {}).get("hints", 0) + 1, len(task.hints))
    problem = update_record(task.name, hints=used)
    lines = [
        f"Hint {i} of {len(task.hints)} for {task.name}: {text}" for i, text in enumerate(task.hints[:used], start=1)
    ]
    return _say("\n".join(lines + ([problem] if problem else [])))


def quiz(name: str, answer: str | None = None) -> Any:
    """Show the questions of a lesson, `quiz("sizing")`, or answer one: `quiz("sizing.q1", "b")`."""
    try:
        if answer is None and "." not in name:
            return _say("\n\n".join(_question(q) for q in find_lesson(name).quiz))
        questions = {q.name: q for lesson in load_course() for q in lesson.quiz}
        if name not in questions:
            raise UserError(f"There is no quiz question {name!r}. {did_you_mean(name, questions)}")
        question = questions[name]
        if answer is None:
            return _say(_question(question))
        choice = str(answer).strip().lower()
        if choice not in question.choices:
            raise UserError(f"{name} has the choices {', '.join(question.choices)}, not {answer!r}.")
    except UserError as error:
        return _say(str(error))
    right = choice == question.answer
    update_record(name, status="passed" if right else "failed")
    return _say(f"✓ Right. {question.why}" if right else f"✗ Not {choice}: {question.choices[choice]}. Think again.")


def progress() -> Any:
    """Draw the table of all tasks: status, checks and hints so far, and how it went on a GPU."""
    from kvcourse.check.report import COLOURS, SIGNS, show_rich

    record = load_record()
    text, rows = [], []
    for lesson in load_course():
        done = sum(_status(record, task) == "passed" for task in lesson.tasks)
        head = f"{lesson.number:02d} {lesson.title} ({done} of {len(lesson.tasks)})"
        text.append(head)
        rows.append(f'<tr><th colspan="5" style="text-align:left">{escape(head)}</th></tr>')
        for task in lesson.tasks:
            status, entry = _status(record, task), record.get(task.name, {})
            counts = f"{entry.get('checks', 0)} checks, {entry.get('hints', 0)} hints"
            counts += f", on a GPU: {entry['gpu']}" if entry.get("gpu") else ""
            text.append(f"  {SIGNS[status]} {task.name:<12}{task.title:<34}{status:<13}{counts}")
            sign = f'<b style="color:{COLOURS[status]}">{SIGNS[status]}</b>'
            cells = (sign, *map(escape, (task.name, task.title, status, counts)))
            rows.append("<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>")
        text += _quiz_line(lesson, record)
    show_rich("\n".join(text), f"<table>{''.join(rows)}</table>")


def _status(record: Mapping[str, Any], task: Task) -> Any:
    """The latest verdict; what once passed and broke again shows as failed."""
    status = record.get(task.name, {}).get("status", "not started")
    return status if status in ("passed", "failed", "not started", "not run") else "not started"


def _quiz_line(lesson: Lesson, record: Mapping[str, Any]) -> list[str]:
    right = sum(record.get(q.name, {}).get("status") == "passed" for q in lesson.quiz)
    return [f"    quiz: {right} of {len(lesson.quiz)} answered right"] if lesson.quiz else []


def _given(functions: tuple[Callable[..., Any], ...], named: dict[str, Any]) -> dict[str, Any]:
    for function in functions:
        if not callable(function) or not hasattr(function, "__name__"):
            raise UserError(f"check takes functions or classes after the task's name, not {function!r}.")
    return {function.__name__: function for function in functions} | named


def _notebook_namespace() -> Mapping[str, Any]:
    """The notebook's names, or those of the script that called `check`."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        return shell.user_ns
    return sys._getframe(2).f_globals


def _question(question: Any) -> str:
    choices = "\n".join(f"   {key}) {text}" for key, text in question.choices.items())
    return f'{question.name}: {question.question}\n{choices}\n   quiz("{question.name}", "…")'


def _say(text: str) -> None:
    from kvcourse.check.report import show_rich

    show_rich(text, "".join(f'<div style="white-space:pre-wrap">{escape(part)}</div>' for part in text.split("\n")))
