"""Whose file is it? Reads the names that Moodle, Canvas, Blackboard and plain folders give to files in an export."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autograde.students import Owner
from kvcourse.tasks.course import Lesson

MOODLE = re.compile(r"^(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)$")
CANVAS = re.compile(r"^(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_(?P<attempt>\d+)_(?P<file>.+)$")
BLACKBOARD = re.compile(r"^.+?_(?P<name>[^_]+)_attempt_[\d-]+(?:_(?P<file>.+)|\..+)$")
JUNK = {"__MACOSX", ".ipynb_checkpoints", ".git", "__pycache__"}


def is_junk(parts: Iterable[str]) -> bool:
    """Files that systems add by themselves."""
    return any(part in JUNK or part.startswith(".") or part == "Thumbs.db" for part in parts)


def owners(paths: list[tuple[str, ...]], archive: str, lessons: list[Lesson]) -> list[Owner | None]:
    """The owner of every path of an export called `archive` (without its ending); None where the name does not tell."""
    handed_in = [path for path in paths if path[-1].lower().endswith((".ipynb", ".zip"))]
    top = _shared_folders(handed_in, lessons)
    alone = sum(len(path) == top + 1 for path in handed_in) == 1 or not handed_in
    return [_owner(path[top:], archive, lessons, alone) if len(path) > top else None for path in paths]


def lesson_of(path: tuple[str, ...], lessons: list[Lesson], chosen: Lesson | None) -> Lesson | None:
    """The lesson a file is for: the chosen one, a folder's name, the notebook's name, or the only one there is."""
    if chosen is not None:
        return chosen
    for lesson in lessons:
        if lesson.name in path[:-1] or lesson.notebook.lower() in path[-1].lower():
            return lesson
    return lessons[0] if len(lessons) == 1 else None


def _owner(path: tuple[str, ...], archive: str, lessons: list[Lesson], alone: bool) -> Owner | None:
    first, rest = path[0], "/".join(path[1:])
    found = MOODLE.match(first)
    if found:
        return Owner("moodle", found["id"], found["name"], rest or found["file"])
    if not rest:
        found = CANVAS.match(first)
        if found:
            name = f"{found['name']}_{found['id']}"
            return Owner("canvas", found["id"], name, found["file"], late=bool(found["late"]))
        found = BLACKBOARD.match(first)
        if found:
            return Owner("name", found["name"], found["name"], found["file"] or first)
        stem, _, ending = first.rpartition(".")
        if ending.lower() == "zip":
            return Owner("name", stem, stem, first)
        if any(lesson.notebook.lower() in first.lower() for lesson in lessons):
            return Owner("name", archive, archive, first) if alone else None
        if ending.lower() == "ipynb":
            return Owner("name", stem, stem, first)
        return Owner("name", archive, archive, first) if alone else None
    return Owner("name", first, first, rest)


def _shared_folders(paths: list[tuple[str, ...]], lessons: list[Lesson]) -> int:
    """How many leading folders belong to the export and not to a student (`export/anna/…`, `export/bob/…`)."""
    names = {lesson.name for lesson in lessons}
    top = 0
    while paths and all(len(path) > top + 1 for path in paths) and len({path[top] for path in paths}) == 1:
        below = {path[top + 1] for path in paths if len(path) > top + 2}
        inside = any(len(path) == top + 2 for path in paths)  # files lie here: this folder is a student's
        if inside and not any(MOODLE.match(p[top + 1]) or CANVAS.match(p[top + 1]) for p in paths):
            break
        if below & names or MOODLE.match(paths[0][top]):
            break
        top += 1
    return top
