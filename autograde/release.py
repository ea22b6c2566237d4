"""Releases a lesson: nbgrader makes the student version beside the old one, which is only replaced when that worked."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from autograde.build import write_source
from autograde.coursedir import Course
from autograde.intake import students
from autograde.nbgrader_run import generate_assignment, patiently
from kvcourse.tasks.course import Lesson, UserError

log = logging.getLogger("kvgrade")


def release_lesson(course: Course, lesson: Lesson) -> Path:
    """Make the lesson's source and release in the course folder; the released notebook's path."""
    fresh = course.state / "release.new"
    with _restored(course.root / "source" / lesson.name, course.state / "source.old"):
        shutil.rmtree(fresh, ignore_errors=True)
        write_source(lesson, course.root)
        try:
            patiently(course, lambda: generate_assignment(course, lesson, fresh))
        except UserError:
            raise
        except Exception as error:
            raise UserError(_why_not(course, lesson)) from error
    _swap(fresh / lesson.name, course.release(lesson).parent)
    shutil.rmtree(fresh, ignore_errors=True)
    return course.release(lesson)


def _why_not(course: Course, lesson: Lesson) -> str:
    there = students(course, lesson)
    if course.release(lesson).is_file() and there:
        return (
            f"{lesson.name!r} was not released again: its notebook now has other cells than the one that {len(there)} "
            "students handed in. The old release stays as it was; start a new course folder for the new notebook."
        )
    return f"nbgrader could not release {lesson.name!r}; nothing was changed, the log says why."


@contextlib.contextmanager
def _restored(folder: Path, backup: Path) -> Iterator[None]:
    """Put `folder` back as it was if the block fails."""
    shutil.rmtree(backup, ignore_errors=True)
    if folder.is_dir():
        shutil.copytree(folder, backup)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if backup.is_dir():
            backup.rename(folder)
        raise
    finally:
        shutil.rmtree(backup, ignore_errors=True)


def _swap(fresh: Path, folder: Path) -> None:
    """Put `fresh` in the place of `folder`, which stays until the new one is there."""
    old = fresh.with_name(f"{fresh.name}.old")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        folder.rename(old)
    try:
        fresh.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
