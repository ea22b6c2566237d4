"""Submission folders as teachers find them: links, other names, broken files, zips, nothing at all."""

from __future__ import annotations

import json
import os

import pytest
from toy_course import HALF, LESSON, NAME, WORK, here, notes, submit, toy_course, zipped

from autograde import collect, folders
from autograde.coursedir import Course
from autograde.folders import read_notes
from autograde.intake import adopt_folders, prepare, read_submission


@pytest.fixture
def course(tmp_path) -> Course:
    return toy_course(tmp_path)


def test_a_folder_with_brackets_gets_a_name_that_nbgrader_finds(course):
    folder = course.submitted("carol [x]", LESSON)
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(WORK)
    assert len(adopt_folders(course)) == 1 and adopt_folders(course) == []
    assert here(course) == {"carol (x)": WORK} and (folder / NAME).exists()
    assert "carol [x]" in notes(course, "carol (x)")
    (folder / NAME).write_bytes(HALF)
    os.utime(folder / NAME, (2e9, 2e9))
    assert len(adopt_folders(course)) == 1 and here(course) == {"carol (x)": HALF}


def test_links_and_oversized_files_are_moved_out_of_a_folder(course, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "s.txt").write_text("answer")
    folder = submit(course, "anna", **{NAME: WORK, "big.bin": b"0" * 100})
    monkeypatch.setattr(folders, "MAX_BYTES", 99)
    (folder / "data").symlink_to(secret)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "s.txt").symlink_to(secret / "s.txt")
    os.mkfifo(folder / "pipe")
    prepare(course, "anna", LESSON)
    assert [p.name for p in folder.rglob("*")] == [".hidden"]
    kept = sorted(p.name for p in (course.state / "refused" / "anna" / LESSON.name).iterdir())
    assert kept == ["big.bin", NAME, "data", "pipe", "s.txt"] and (secret / "s.txt").exists()
    assert sum(note.startswith("refused") for note in read_notes(course, "anna", LESSON)) == 5
    prepare(course, "anna", LESSON)
    assert "refused data: a link" in notes(course, "anna")


def test_a_submission_that_is_a_link_is_not_followed(course, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / NAME).write_bytes(WORK)
    (course.submissions / "anna").mkdir()
    course.submitted("anna", LESSON).symlink_to(tmp_path / "elsewhere")
    prepare(course, "anna", LESSON)
    assert "is a link" in read_submission(course, "anna", LESSON).problem


def test_a_renamed_notebook_gets_a_copy_under_the_right_name(course):
    folder = submit(course, "anna", **{"cache_sizing (1).ipynb": WORK, "numpy.py": b"x", "report.pdf": b"y"})
    prepare(course, "anna", LESSON)
    assert (folder / NAME).read_bytes() == WORK
    assert notes(course, "anna") == (
        "only the notebook is graded; ignored: numpy.py; the notebook was handed in as cache_sizing (1).ipynb"
    )


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "there is no notebook: the folder is empty"),
        ({"report.pdf": b"x"}, "there is no notebook, only report.pdf"),
        ({NAME: b"{"}, f"{NAME}: the file is not valid JSON: it is damaged or was cut off"),
        ({"other.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": "1"}]}).encode()}, "nothing in common"),
    ],
)
def test_nothing_to_grade_is_said_in_one_sentence(course, files, why):
    submit(course, "anna", **files)
    prepare(course, "anna", LESSON)
    assert why in read_submission(course, "anna", LESSON).problem


def test_a_readable_notebook_beats_a_broken_one(course):
    submit(course, "anna", **{NAME: b"{", "copy.ipynb": WORK})
    prepare(course, "anna", LESSON)
    taken = read_submission(course, "anna", LESSON)
    assert taken.raw == WORK and not taken.problem and NAME in "; ".join(taken.notes)


def test_a_zip_in_a_students_folder_is_opened(course):
    folder = submit(course, "anna")
    zipped(folder / "hw.zip", {"my/hw.ipynb": WORK, "../evil.ipynb": HALF})
    collect.open_own_zips(course, "anna", LESSON)
    assert here(course) == {"anna": WORK} and "taken out of hw.zip" in notes(course, "anna")
