"""Runs nbgrader's own converters in process with the course folder's configuration; its log goes to a file."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy.exc
from nbgrader.api import Gradebook, InvalidEntry, MissingEntry
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from autograde import nbgrader_config
from autograde.coursedir import Course, read_json
from autograde.hooks import about_result, save_points
from autograde.nbgrader_config import be_patient, configure
from autograde.results import load_result, task_of
from kvcourse.tasks.course import Lesson, UserError

BUSY = "The gradebook is in use by another program (formgrader, a database browser?): close it and run this again."
log = logging.getLogger("kvgrade")


class ChosenAutograde(Autograde):
    """nbgrader's Autograde on named submissions instead of a folder pattern."""

    chosen: dict[str, list[str]]

    def init_notebooks(self) -> None:
        self.assignments = dict(self.chosen)


class ChosenFeedback(GenerateFeedback):
    """nbgrader's GenerateFeedback on named submissions instead of a folder pattern."""

    chosen: dict[str, list[str]]

    def init_notebooks(self) -> None:
        self.assignments = dict(self.chosen)


def record_results(course: Course, lesson: Lesson, students: list[str], done: Callable[[], None]) -> None:
    """Write the stored results of `students` into the gradebook and `autograded/`: the one writer."""
    for student in students:
        if _notebook(course, lesson, student) is None:
            patiently(course, lambda: _record_points(course, lesson, student))  # noqa: B023
        else:
            try:
                patiently(course, lambda: _convert(ChosenAutograde, course, lesson, student, "submitted"))  # noqa: B023
            except NbGraderException:
                log.exception("nbgrader could not convert the submission of %s; its points are recorded", student)
                patiently(course, lambda: _record_points(course, lesson, student))  # noqa: B023
        done()


def unrecorded(course: Course, lesson: Lesson, students: list[str]) -> list[str]:
    """The students whose stored result is not (or not fully) in the gradebook and in `autograded/`."""
    with open_gradebook(course) as gradebook:
        return [student for student in students if not _is_recorded(course, gradebook, lesson, student)]


def scores(gradebook: Gradebook, lesson: Lesson, student: str) -> dict[str, float | None] | None:
    """The automatic scores in the gradebook by task; None for a student without a submission there."""
    try:
        notebook = gradebook.find_submission_notebook(lesson.notebook, lesson.name, student)
    except MissingEntry:
        return None
    return {task_of(grade.name): grade.auto_score for grade in notebook.grades}


def generate_feedback(course: Course, lesson: Lesson, student: str) -> None:
    _convert(ChosenFeedback, course, lesson, student, "autograded")


def generate_assignment(course: Course, lesson: Lesson, release: Path) -> None:
    """nbgrader's GenerateAssignment from the folder's `source/` into `release`, a folder inside the course folder."""
    config = course_config(course)
    config.CourseDirectory.assignment_id = lesson.name
    config.CourseDirectory.release_directory = str(release.relative_to(course.root))
    converter = GenerateAssignment(coursedir=CourseDirectory(config=config), config=config)
    converter.force = True
    converter.start()


def open_gradebook(course: Course) -> Gradebook:
    be_patient()
    directory = CourseDirectory(config=course_config(course))
    return Gradebook(directory.db_url, directory.course_id)


def course_config(course: Course) -> Config:
    """The folder's nbgrader_config.py, as nbgrader reads it."""
    try:
        config = PyFileConfigLoader("nbgrader_config.py", path=str(course.root)).load_config()
    except Exception as error:
        raise UserError(f"nbgrader_config.py has a mistake: {type(error).__name__}: {error}.") from None
    if "Autograde" not in config:
        configure(config, course.root / "nbgrader_config.py")
    return config


def patiently(course: Course, step: Callable[[], Any]) -> Any:
    """Run a step that writes to the gradebook once no other program is writing; UserError when one does not end."""
    try:
        if course.gradebook.is_file():
            patience = nbgrader_config.PATIENCE_MS / 1000
            with contextlib.closing(sqlite3.connect(course.gradebook, timeout=patience)) as book:
                book.execute("BEGIN IMMEDIATE")
                book.rollback()
        return step()
    except (InvalidEntry, sqlalchemy.exc.OperationalError, sqlite3.OperationalError) as error:
        if "locked" in str(error) or "busy" in str(error):
            raise UserError(BUSY) from None
        raise


@contextlib.contextmanager
def logged(course: Course, verbose: bool) -> Iterator[None]:
    """nbgrader's and our own log lines to `.kvgrade/kvgrade.log`, and on screen only with `verbose`."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handlers: list[logging.Handler] = [logging.StreamHandler()] if verbose else []
    if course.state.is_dir():
        handlers.append(logging.FileHandler(course.log_file, encoding="utf-8"))
    logging.captureWarnings(True)
    loggers = [logging.getLogger(name) for name in ("traitlets", "kvgrade", "py.warnings", "tornado.application")]
    for handler in handlers:
        handler.setFormatter(formatter)
    before = [(logger, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.setLevel(logging.INFO)
        for handler in handlers:
            logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            yield
    finally:
        logging.captureWarnings(False)
        for logger, propagate, level in before:
            logger.propagate = propagate
            logger.setLevel(level)
            for handler in handlers:
                logger.removeHandler(handler)
        for handler in handlers:
            handler.close()


def _convert(kind: type, course: Course, lesson: Lesson, student: str, step: str) -> None:
    config = course_config(course)
    config.TrustedExecute.stored_only = True
    directory = CourseDirectory(config=config)
    directory.assignment_id, directory.student_id = lesson.name, student
    converter = kind(coursedir=directory, config=config)
    folder = course.root / step / student / lesson.name
    converter.chosen = {str(folder): [str(folder / f"{lesson.notebook}.ipynb")]}
    converter.force = True
    converter.start()


def _record_points(course: Course, lesson: Lesson, student: str) -> None:
    """Points of a submission that nbgrader cannot convert: without a notebook it is in the gradebook all the same."""
    result = load_result(course, student, lesson)
    assert result is not None, f"{student} has no result to record"
    with open_gradebook(course) as gradebook:
        gradebook.update_or_create_student(student)
        gradebook.update_or_create_submission(lesson.name, student)
        save_points(gradebook, lesson, student, result)
    course.autograded(student, lesson).unlink(missing_ok=True)


def _is_recorded(course: Course, gradebook: Gradebook, lesson: Lesson, student: str) -> bool:
    result = load_result(course, student, lesson)
    if result is None or scores(gradebook, lesson, student) != result.points(lesson):
        return False
    if _notebook(course, lesson, student) is None:
        return True
    about = (read_json(course.autograded(student, lesson)) or {}).get("metadata", {}).get("kvcourse")
    return about == about_result(result)


def _notebook(course: Course, lesson: Lesson, student: str) -> Path | None:
    """The submitted notebook under nbgrader's name, not reached through a link."""
    folder = course.submitted(student, lesson)
    path = folder / f"{lesson.notebook}.ipynb"
    return path if path.is_file() and not any(p.is_symlink() for p in (path, folder, folder.parent)) else None
