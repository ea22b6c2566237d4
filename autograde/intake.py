"""Students' folders and what lies in them: who handed in what, and which of the files is the notebook."""

from __future__ import annotations

import functools
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from autograde.coursedir import Course
from autograde.folders import TIMESTAMP, read_notes, refusal, refuse, replace_old, shown, walk, write_notes
from autograde.reading import Cell, Unreadable, read_cells
from autograde.sanitize import likeness
from autograde.students import safe_name
from kvcourse.tasks.course import Lesson, load_course

CODE = (".py", ".pyc", ".so", ".sh", ".pth")
MAX_FILES = 1_000


@dataclass
class Submission:
    """What a student handed in for a lesson; `problem` says why there is nothing to grade."""

    student: str
    lesson: Lesson
    cells: list[Cell] = field(default_factory=list)
    raw: bytes = b""
    name: str = ""
    notes: list[str] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True)
class Candidate:
    """A file that may be the notebook, read."""

    name: str
    raw: bytes
    modified: float
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""


def read_release(course: Course, lesson: Lesson) -> NotebookNode:
    """The released notebook; callers do not change it."""
    path = course.release(lesson)
    return _read_notebook(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _read_notebook(path: Path, _changed: int) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def students(course: Course, lesson: Lesson) -> list[str]:
    """Everybody who handed in something for the lesson; for folders under other names see `adopt_folders`."""
    if not course.submissions.is_dir():
        return []
    folders = (path for path in course.submissions.iterdir() if path.name == safe_name(path.name))
    return sorted(path.name for path in folders if path.is_dir() and (path / lesson.name).is_dir())


def adopt_folders(course: Course) -> list[str]:
    """Copy folders whose names nbgrader's patterns cannot find (`a[1]`) to names that they can; sentences about it."""
    said = []
    for folder in sorted(course.submissions.iterdir()) if course.submissions.is_dir() else []:
        if folder.name.startswith(".") or folder.is_symlink() or not folder.is_dir():
            continue
        safe = safe_name(folder.name)
        if safe == folder.name:
            continue
        for lesson in load_course():
            mine, theirs = folder / lesson.name, course.submitted(safe, lesson)
            if mine.is_dir() and not _same_files(mine, theirs):
                replace_old(course, safe, lesson)
                shutil.copytree(mine, theirs, symlinks=True, dirs_exist_ok=True)
                write_notes(course, safe, lesson, [f"the folder {shown(folder.name)} is listed as {safe}"])
                said.append(
                    f"submitted/{shown(folder.name)} is graded as {safe}: nbgrader reads such names as patterns."
                )
    return said


def misplaced(course: Course) -> list[str]:
    """Sentences on notebooks in a student's folder that belong one folder deeper."""
    astray = sorted(course.submissions.glob("*/*.ipynb"))
    return [
        f"submitted/{shown(path.parent.name)}/{shown(path.name)} is not graded: it belongs under "
        f"submitted/{shown(path.parent.name)}/LESSON/."
        for path in astray
    ]


def prepare(course: Course, student: str, lesson: Lesson) -> None:
    """Move links and oversized files out of a submission folder and give its notebook the name nbgrader looks for."""
    folder = course.submitted(student, lesson)
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in sorted(walk(folder, junk=True)):
        reason = refusal(path)
        if not reason and path == folder / TIMESTAMP and not _is_time(path):
            reason = "not a date"  # nbgrader would stumble on it
        if reason:
            refuse(course, student, lesson, path, reason)
    wanted = folder / f"{lesson.notebook}.ipynb"
    if not wanted.exists():
        found = best(candidates(folder), lesson, read_release(course, lesson))
        if found is not None:
            wanted.write_bytes(found.raw)


def read_submission(course: Course, student: str, lesson: Lesson) -> Submission:
    """The submitted notebook, read: the best of several, with notes on every choice. A bad one raises nothing."""
    folder = course.submitted(student, lesson)
    taken = Submission(student, lesson, notes=read_notes(course, student, lesson))
    if folder.is_symlink() or folder.parent.is_symlink():
        taken.problem = "the submission is a link to another folder: put the files themselves there"
        return taken
    try:
        found = candidates(folder)
        pick = best(found, lesson, read_release(course, lesson))
        others = sorted(path.relative_to(folder).as_posix() for path in walk(folder) if path.suffix.lower() != ".ipynb")
    except OSError as error:
        taken.problem = f"the submission cannot be read ({error.strerror})"
        return taken
    code = [shown(name) for name in others if name.lower().endswith(CODE)]
    if code:
        taken.notes.append(f"only the notebook is graded; ignored: {', '.join(code[:5])}")
    if pick is None:
        have = [shown(name) for name in others if name != TIMESTAMP]
        empty = "" if taken.notes else ": the folder is empty"
        taken.problem = "there is no notebook" + (f", only {', '.join(have[:5])}" if have else empty)
        return taken
    taken.raw, taken.name, taken.cells, taken.problem = pick.raw, pick.name, pick.cells, pick.problem
    taken.notes += pick.notes
    wanted = f"{lesson.notebook}.ipynb"
    names = [c.name for c in found if c.raw == pick.raw and c.name != wanted]
    if names:
        taken.notes.append(f"the notebook was handed in as {shown(names[0])}")
    left = [shown(c.name) for c in found if c.raw != pick.raw]
    if left:
        taken.notes.append(f"of several notebooks the one with most work was graded; not {', '.join(left[:5])}")
    if not taken.problem and likeness(pick.cells, read_release(course, lesson)) == (0, 0):
        taken.problem = f"{shown(pick.name)} has nothing in common with the notebook of lesson {lesson.name!r}"
    return taken


def candidates(folder: Path) -> list[Candidate]:
    """Every notebook below a submission folder; links and oversized files are no candidates."""
    paths = [p for p in sorted(walk(folder)) if p.suffix.lower() == ".ipynb" and not refusal(p)]
    return [candidate(p.relative_to(folder).as_posix(), p.read_bytes(), p.stat().st_mtime) for p in paths[:MAX_FILES]]


def candidate(name: str, raw: bytes, modified: float) -> Candidate:
    try:
        cells, notes = read_cells(raw)
        return Candidate(name, raw, modified, cells, notes)
    except Unreadable as error:
        return Candidate(name, raw, modified, problem=f"{shown(name)}: {error}")


def best(found: list[Candidate], lesson: Lesson, release: NotebookNode) -> Candidate | None:
    """The candidate with most work in it; then the one most like the release, the newest, the rightly named."""
    wanted = f"{lesson.notebook}.ipynb"

    def rank(c: Candidate) -> tuple:
        return (not c.problem, *likeness(c.cells, release), c.modified, c.name == wanted, c.name)

    return max(found, key=rank, default=None) if len(found) != 1 else found[0]


def _is_time(path: Path) -> bool:
    from dateutil.parser import parse

    try:
        parse(path.read_text(encoding="utf-8")[:100])
        return True
    except (ValueError, OverflowError):
        return False


def _same_files(mine: Path, theirs: Path) -> bool:
    """The notebooks and zips of `mine` lie in `theirs`, none of them older: times decide, as for a backup."""
    wanted = [path for path in walk(mine) if path.suffix.lower() in (".ipynb", ".zip") and not refusal(path)]
    copies = [(path, theirs / path.relative_to(mine)) for path in wanted]
    return theirs.is_dir() and all(c.exists() and c.stat().st_mtime >= p.stat().st_mtime for p, c in copies)
