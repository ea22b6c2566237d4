"""Every way to use the teacher's commands wrongly: one sentence, exit code 2, nothing lost."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path

import nbformat
import pytest
from course_folder import LESSON, NAME, auto_scores, executed, kvgrade, submit
from nbgrader.api import Gradebook

from autograde import cli, nbgrader_config
from autograde.build import source_notebook
from autograde.coursedir import only_one, open_course
from kvcourse.tasks.course import UserError

pytest_plugins = ["course_fixtures"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["release", "sizng"], "There is no lesson 'sizng'. Did you mean 'sizing'?"),
        (["grade", "nothing"], "There is no lesson 'nothing'."),
        (["grade"], "There are no submissions: put them under submitted/STUDENT/sizing/cache_sizing.ipynb"),
        (["grade", "--student", "bob"], "There is no submission of 'bob'"),
        (["feedback"], "Nothing is graded yet"),
        (["export", "g.csv"], "There are no grades yet"),
        (["collect", "none.zip"], "There is no file none.zip."),
        (["feedback", "--course", "/"], "/ is not a course folder"),
        (["release", "sizing", "--course", "/proc/none"], "cannot be written"),
    ],
)
def test_mistakes_end_in_one_sentence_and_exit_code_2(course, capsys, arguments, sentence):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith("kvgrade: ") and sentence in err and err.count("\n") == 1 and out == ""


@pytest.mark.parametrize("arguments", [["grade", "--workers", "0"], ["grade", "--workers", "x"], ["gade"], []])
def test_unknown_options_are_usage_mistakes(course, arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2


def test_unknown_student_gets_the_nearest_names(course, capsys):
    submit(course, "anna")
    assert kvgrade("grade", "sizing", "--student", "ana") == 2
    assert "There is no submission of 'ana'. Did you mean 'anna'?" in capsys.readouterr().err


def test_misplaced_notebooks_are_pointed_at(course, capsys):
    (course.submissions / "anna").mkdir()
    shutil.copy(course.release(LESSON), course.submissions / "anna" / NAME)
    assert kvgrade("grade") == 2
    assert f"submitted/anna/{NAME}" in capsys.readouterr().err
    submit(course, "bob")
    assert kvgrade("grade") == 0
    assert f"submitted/anna/{NAME} is not graded" in capsys.readouterr().out


def test_a_missing_seed_is_not_replaced_once_there_are_grades(course, capsys):
    submit(course, "anna")
    assert kvgrade("grade") == 0
    course.seed_file.unlink()
    for arguments in (["grade"], ["release", "sizing"]):
        assert kvgrade(*arguments) == 2
        assert "class_seed is missing although grades exist" in capsys.readouterr().err
    assert not course.seed_file.exists() and auto_scores(course, "anna")["sizing.1"] == 2.0
    course.seed_file.write_text("12")
    assert kvgrade("grade") == 2 and "damaged" in capsys.readouterr().err
    assert kvgrade("release", "sizing", "--new-seed") == 0 and kvgrade("grade") == 0


def test_a_seed_that_others_can_read_is_closed(course):
    course.seed_file.chmod(0o644)
    course.seed()
    assert course.seed_file.stat().st_mode & 0o777 == 0o600


def test_gradebooks_of_other_courses_are_left_alone(course, capsys):
    with Gradebook(f"sqlite:///{course.gradebook}", "algebra") as gradebook:
        gradebook.add_assignment("ps1", course_id="algebra")
    before = course.gradebook.read_bytes()
    for arguments in (["grade"], ["release", "sizing"], ["export", "g.csv"]):
        assert kvgrade(*arguments) == 2
        assert "belongs to another course: it holds the assignment 'ps1'" in capsys.readouterr().err
    assert course.gradebook.read_bytes() == before
    course.gradebook.write_text("this is no database")
    assert kvgrade("grade") == 2 and "is not an nbgrader gradebook" in capsys.readouterr().err


def test_configurations_of_others_are_left_alone(course, capsys, tmp_path):
    config = course.root / "nbgrader_config.py"
    ours = config.read_text()
    config.write_text("c = get_config()\n")
    assert kvgrade("grade") == 2 and "does not load kvcourse" in capsys.readouterr().err
    assert kvgrade("release", "sizing") == 2 and config.read_text() == "c = get_config()\n"
    config.write_text(ours + "1 / 0\n")
    submit(course, "anna")
    capsys.readouterr()
    assert kvgrade("grade") == 2 and "nbgrader_config.py has a mistake: ZeroDivisionError" in capsys.readouterr().err
    (tmp_path / "pyproject.toml").write_text("")
    assert kvgrade("release", "sizing", "--course", str(tmp_path)) == 2
    assert not (tmp_path / ".kvgrade").exists()


@pytest.mark.parametrize("target", ["no/such/folder/g.csv", "."])
def test_a_place_that_cannot_be_written(course, capsys, target):
    submit(course, "anna")
    assert kvgrade("grade") == 0
    capsys.readouterr()
    assert kvgrade("export", target) == 2 and "cannot be written" in capsys.readouterr().err
    assert kvgrade("export", target, "--nbgrader") == 2


def test_a_release_of_another_version_is_named(course, capsys):
    notebook = nbformat.read(course.release(LESSON), as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.metadata.kvcourse.get("task") != "sizing.2"]
    nbformat.write(notebook, course.release(LESSON))
    submit(course, "anna")
    assert kvgrade("grade") == 2 and "of another version of the course" in capsys.readouterr().err


def test_release_with_other_cells_leaves_the_old_release_when_there_are_submissions(course, monkeypatch, capsys):
    submit(course, "anna")
    assert kvgrade("grade") == 0
    before = course.release(LESSON).read_bytes(), (course.root / "source" / "sizing" / NAME).read_bytes()

    def other(lesson, root=None):
        notebook = source_notebook(lesson)
        notebook.cells = [cell for cell in notebook.cells if cell.metadata.kvcourse.role != "given"]
        return notebook

    monkeypatch.setattr("autograde.build.source_notebook", other)
    capsys.readouterr()
    assert kvgrade("release", "sizing") == 2
    assert "The old release stays as it was" in capsys.readouterr().err
    assert before == (course.release(LESSON).read_bytes(), (course.root / "source" / "sizing" / NAME).read_bytes())
    assert kvgrade("grade") == 0


def test_one_kvgrade_at_a_time(course, capsys):
    submit(course, "anna")
    with only_one(course):
        assert kvgrade("grade") == 2
    assert "Another kvgrade is at work" in capsys.readouterr().err


def test_a_busy_gradebook_is_waited_for(course):
    submit(course, "anna")
    holder = sqlite3.connect(course.gradebook, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(2.0, holder.rollback)
    timer.start()
    try:
        assert kvgrade("grade") == 0
    finally:
        timer.join()
        holder.close()
    assert auto_scores(course, "anna")["sizing.1"] == 2.0


def test_a_gradebook_that_stays_busy_is_named_and_results_are_kept(course, capsys, monkeypatch, tmp_path):
    submit(course, "anna")
    monkeypatch.setattr(nbgrader_config, "PATIENCE_MS", 50)
    holder = sqlite3.connect(course.gradebook)
    holder.execute("BEGIN IMMEDIATE")
    assert kvgrade("grade") == 2
    assert "The gradebook is in use by another program" in capsys.readouterr().err
    holder.rollback()
    holder.close()
    executed(tmp_path)
    assert kvgrade("grade") == 0 and executed(tmp_path) == []


def test_user_errors_are_sentences():
    with pytest.raises(UserError, match="is not a course folder"):
        open_course(Path("/nowhere"))
