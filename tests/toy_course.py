"""A course folder around the toy release, made by hand: enough to collect submissions."""

from __future__ import annotations

import zipfile
from pathlib import Path

import nbformat
from toy_release import RELEASE, handed_in, solved

from autograde import collect
from autograde.coursedir import Course
from autograde.intake import read_submission, students
from kvcourse.tasks.course import find_lesson

LESSON = find_lesson("sizing")
NAME = f"{LESSON.notebook}.ipynb"
WORK = nbformat.writes(solved()).encode()
STUB = nbformat.writes(handed_in()).encode()
HALF = nbformat.writes(handed_in(toy_1_code="def one(x):\n    return x")).encode()


def toy_course(tmp_path: Path) -> Course:
    made = Course(tmp_path / "class")
    made.release(LESSON).parent.mkdir(parents=True)
    made.submissions.mkdir()
    made.state.mkdir()
    nbformat.write(RELEASE, made.release(LESSON))
    return made


def zipped(path: Path, files: dict[str, bytes], **times: tuple) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in files.items():
            archive.writestr(zipfile.ZipInfo(name, times.get(name, (2026, 1, 2, 3, 4, 6))), raw)
    return path


def collected(course: Course, files: dict[str, bytes], name: str = "class.zip", **times: tuple) -> dict[str, bytes]:
    """What lies in `submitted/` after collecting a zip: the notebook's bytes by student."""
    collect.collect_zip(course, zipped(course.root / name, files, **times), LESSON)
    return here(course)


def here(course: Course) -> dict[str, bytes]:
    found = {name: course.submitted(name, LESSON) / NAME for name in students(course, LESSON)}
    return {name: path.read_bytes() if path.exists() else b"" for name, path in found.items()}


def notes(course: Course, student: str) -> str:
    return "; ".join(read_submission(course, student, LESSON).notes)


def submit(course: Course, student: str, **files: bytes) -> Path:
    folder = course.submitted(student, LESSON)
    folder.mkdir(parents=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    return folder
