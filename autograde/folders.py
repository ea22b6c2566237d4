"""The files of a submission: what may be looked at, what is refused, and notes on what happened to them.

Nothing is deleted: what is refused moves to `.kvgrade/refused/`, what is replaced to `.kvgrade/replaced/`.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from autograde.coursedir import Course, read_json, write_atomically
from autograde.lms import is_junk
from autograde.reading import MAX_BYTES
from kvcourse.tasks.course import Lesson, UserError

TIMESTAMP = "timestamp.txt"  # of nbgrader: when the submission came in


def refuse(course: Course, student: str, lesson: Lesson, path: Path, reason: str) -> None:
    """Move a file out of the submission, so that no copy of it, or of what it points to, travels further."""
    target = _free(course.state / "refused" / student / lesson.name / path.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(path, target)
    except OSError as error:
        raise UserError(f"{path} must not be graded ({reason}) and cannot be moved away: {error.strerror}.") from None
    write_notes(
        course, student, lesson, [*read_notes(course, student, lesson), f"refused {shown(path.name)}: {reason}"]
    )


def replace_old(course: Course, student: str, lesson: Lesson) -> bool:
    """Move an earlier submission of the lesson away; True when there was one."""
    folder = course.submitted(student, lesson)
    if not folder.exists() or not any(folder.iterdir()):
        return False
    target = _free(course.state / "replaced" / student / lesson.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(folder, target)
    return True


def read_notes(course: Course, student: str, lesson: Lesson) -> list[str]:
    return list(read_json(_notes_file(course, student, lesson)) or [])


def write_notes(course: Course, student: str, lesson: Lesson, notes: list[str]) -> None:
    """What happened to a submission before it was read, for its record."""
    write_atomically(_notes_file(course, student, lesson), json.dumps(list(dict.fromkeys(notes)), ensure_ascii=False))


def shown(name: str, limit: int = 80) -> str:
    """A file name as it may be printed: one line, printable, not endless."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def walk(folder: Path, junk: bool = False) -> list[Path]:
    """All files below a folder and every link, without following any; with `junk` also what systems leave behind."""
    found: list[Path] = []
    for base, folders, files in os.walk(folder, followlinks=False):
        here = Path(base)
        folders[:] = [name for name in folders if junk or not is_junk([name])]
        found += [here / name for name in folders if (here / name).is_symlink()]
        found += [here / name for name in files if junk or not is_junk([name])]
    return found


def refusal(path: Path) -> str:
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return "a link"
    if not stat.S_ISREG(info.st_mode):
        return "not a regular file"
    return f"{info.st_size / 1e6:.0f} MB, at most {MAX_BYTES / 1e6:.0f} MB" if info.st_size > MAX_BYTES else ""


def _free(path: Path) -> Path:
    """`path`, or the first of `path-2`, `path-3` … that does not exist."""
    number = 2
    free = path
    while free.exists() or free.is_symlink():
        free, number = path.with_name(f"{path.name}-{number}"), number + 1
    return free


def _notes_file(course: Course, student: str, lesson: Lesson) -> Path:
    return course.state / "intake" / lesson.name / f"{student}.json"
