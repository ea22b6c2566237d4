"""The teacher's commands on a course folder: release and grade, again and again."""

from __future__ import annotations

import re
import shutil

import pool_jobs
import pytest
from course_folder import LESSON, NAME, auto_scores, executed, kvgrade, rows, submit

from autograde import classwork, cli, nbgrader_run, results, workers
from autograde.coursedir import open_course
from autograde.grading import obtain_result
from autograde.nbgrader_run import open_gradebook

pytest_plugins = ["course_fixtures"]


def test_release_makes_a_course_folder(released):
    course = open_course(released)
    assert course.seed_file.stat().st_mode & 0o777 == 0o600 and len(course.seed()) == 32
    text = course.release(LESSON).read_text()
    assert "BEGIN SOLUTION" not in text and "raise NotImplementedError" in text
    assert "BEGIN SOLUTION" in (released / "source" / "sizing" / NAME).read_text()
    for secret in (".kvgrade/", "source/", "submitted/", "gradebook.db*"):
        assert secret in (released / ".gitignore").read_text().splitlines()


def test_release_again_keeps_seed_gradebook_and_own_settings(course):
    (course.root / "nbgrader_config.py").open("a").write(
        "c = get_config()\nc.LateSubmissionPlugin.penalty_method = 'zero'\n"
    )
    submit(course, "anna")
    assert kvgrade("grade") == 0
    before = course.seed(), (course.root / "nbgrader_config.py").read_text(), auto_scores(course, "anna")
    assert kvgrade("release", "sizing") == 0
    assert before == (course.seed(), (course.root / "nbgrader_config.py").read_text(), auto_scores(course, "anna"))


def test_a_class_from_submissions_to_csv(course, capsys, tmp_path):
    submit(course, "anna")
    submit(course, "bob", {"sizing.2": "SHARE 1/4", "sizing.6": "SHARE 0/4"})
    submit(course, "zoë o'neil", solved=False)
    submit(course, "dan", {"sizing.1": "SLOW"})
    assert kvgrade("grade") == 0
    shown = capsys.readouterr().out
    assert re.search(r"anna +2 +6 +4 +4 +3 +5 +24  graded$", shown, re.MULTILINE)
    assert re.search(r"bob +2 +1\.5 +4 +4 +3 +0 +14\.5  graded$", shown, re.MULTILINE)
    assert re.search(r"dan .* 24  graded with notes +it was slow$", shown, re.MULTILINE)
    assert "4 submissions, 4 executed now" in shown and "Protection: L2." in shown
    assert executed(tmp_path) == sorted(["anna", "bob", "dan", "zoë", "o'neil"])
    assert kvgrade("export", "grades.csv") == 0 and kvgrade("export", "--nbgrader", "nb.csv") == 0
    ours, theirs = rows("grades.csv"), rows("nb.csv")
    assert {name: row["total"] for name, row in ours.items()} == {
        "anna": "24",
        "bob": "14.5",
        "dan": "24",
        "zoë o'neil": "0",
    }
    assert all(float(row["total"]) == float(theirs[name]["score"]) for name, row in ours.items())
    assert ours["bob"]["sizing.2"] == "1.5" and ours["bob"]["max"] == "24" and ours["bob"]["level"] == "L2"
    assert ours["dan"]["state"] == "graded with notes" and ours["dan"]["notes"] == "it was slow"


def test_points_are_rounded_to_two_decimals(course):
    submit(course, "anna")
    result = obtain_result(course, "anna", LESSON)
    properties = result.tasks["sizing.1"].properties
    del properties[3:]
    properties[0].status = "failed"
    assert result.points(LESSON)["sizing.1"] == 1.33


def test_nothing_is_executed_twice(course, tmp_path):
    for name in ("anna", "bob"):
        submit(course, name)
    assert kvgrade("grade") == 0 and executed(tmp_path) == ["anna", "bob"]
    written = (course.gradebook.stat().st_mtime_ns, course.autograded("anna", LESSON).stat().st_mtime_ns)
    assert kvgrade("grade") == 0 and executed(tmp_path) == []
    assert written == (course.gradebook.stat().st_mtime_ns, course.autograded("anna", LESSON).stat().st_mtime_ns)
    submit(course, "bob", {"sizing.1": "SHARE 2/4"})
    assert kvgrade("grade") == 0 and executed(tmp_path) == ["bob"]
    assert auto_scores(course, "bob")["sizing.1"] == 1.0
    assert kvgrade("grade", "--force", "--student", "anna") == 0 and executed(tmp_path) == ["anna"]
    assert kvgrade("release", "sizing", "--new-seed") == 0
    assert kvgrade("grade") == 0 and executed(tmp_path) == ["anna", "bob"]


def test_a_lost_gradebook_or_result_is_made_again(course, tmp_path, capsys):
    submit(course, "anna")
    assert kvgrade("grade") == 0
    executed(tmp_path)
    course.gradebook.unlink()
    assert kvgrade("grade") == 2 and "run `kvgrade release sizing` again" in capsys.readouterr().err
    assert kvgrade("release", "sizing") == 0 and kvgrade("grade") == 0
    assert auto_scores(course, "anna")["sizing.1"] == 2.0 and executed(tmp_path) == []
    results.result_file(course, "anna", LESSON).write_text('{"half')
    assert kvgrade("grade") == 0 and executed(tmp_path) == ["anna"]
    shutil.rmtree(course.root / "autograded")
    assert kvgrade("grade") == 0 and executed(tmp_path) == [] and course.autograded("anna", LESSON).is_file()


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ("FAULT", "the sandbox did not start"),
        ("BUG", "the grader failed (KeyError); see the log"),
    ],
)
def test_a_fault_of_the_tools_is_not_run_and_costs_nobody_else(course, capsys, tmp_path, mark, reason):
    for name in ("anna", "carl", "dan"):
        submit(course, name)
    submit(course, "bob", {"sizing.3": mark})
    assert kvgrade("grade") == 1
    shown = capsys.readouterr().out
    assert reason in shown and "1 not run" in shown
    assert executed(tmp_path).count("bob") == 2, "it is tried twice"
    assert auto_scores(course, "bob") == {task.name: None for task in LESSON.tasks}
    with open_gradebook(course) as gradebook:
        notebook = gradebook.find_submission_notebook(LESSON.notebook, "sizing", "bob")
        assert all(grade.needs_manual_grade for grade in notebook.grades)
        assert all("was not run" in comment.auto_comment for comment in notebook.comments)
    assert kvgrade("export", "grades.csv") == 0 and kvgrade("export", "nb.csv", "--nbgrader") == 0
    bob = rows("grades.csv")["bob"]
    assert bob["total"] == bob["sizing.1"] == bob["state"] == "not run" and reason in bob["notes"]
    assert rows("nb.csv")["bob"]["score"] == "not run" and rows("nb.csv")["anna"]["score"] == "24.0"
    assert kvgrade("grade", "--student", "bob") == 1 and executed(tmp_path).count("bob") == 2, "worth another try"
    submit(course, "bob")
    assert kvgrade("grade") == 0 and executed(tmp_path) == ["bob"]


@pytest.mark.slow
def test_a_worker_that_dies_takes_only_its_submission_along(course, processes, capsys, tmp_path):
    for name in ("anna", "carl", "dan"):
        submit(course, name)
    submit(course, "bob", {"sizing.3": "CRASH"})
    assert kvgrade("grade") == 1
    shown = capsys.readouterr().out
    assert (
        re.search(r"bob .* not run +the grading process ended unexpectedly", shown) and shown.count(" 24  graded") == 3
    )
    assert executed(tmp_path) == ["anna", "bob", "bob", "carl", "dan"]
    assert set(auto_scores(course, "bob").values()) == {None}


def test_one_task_that_was_not_run(course, capsys):
    submit(course, "anna", {"sizing.2": "UNRUN"})
    assert kvgrade("grade") == 1
    assert re.search(r"anna +2 +– +4 +4 +3 +5 +not run  not run +sizing.2: the card was lost", capsys.readouterr().out)
    assert auto_scores(course, "anna")["sizing.2"] is None and auto_scores(course, "anna")["sizing.1"] == 2.0
    with open_gradebook(course) as gradebook:
        grade = gradebook.find_grade("sizing-2", LESSON.notebook, "sizing", "anna")
        grade.manual_score = 5.0
        gradebook.db.commit()
    assert kvgrade("export", "g.csv") == 0
    row = rows("g.csv")["anna"]
    assert (row["sizing.2"], row["total"], row["state"]) == ("5", "23", "graded by hand") and "sizing.2" in row["notes"]


def test_a_submission_without_a_notebook_is_not_a_zero(course, capsys):
    submit(course, "anna")
    course.submitted("bob", LESSON).mkdir(parents=True)
    (course.submitted("bob", LESSON) / "report.pdf").write_bytes(b"x")
    submit(course, "carl").write_text("{")
    assert kvgrade("grade") == 1
    shown = capsys.readouterr().out
    assert "there is no notebook, only report.pdf" in shown and "not valid JSON" in shown
    assert set(auto_scores(course, "bob").values()) == set(auto_scores(course, "carl").values()) == {None}
    assert kvgrade("feedback") == 0
    assert "No page for bob" in capsys.readouterr().out
    assert "not valid JSON" in course.feedback("carl", LESSON).read_text()
    submit(course, "bob")
    assert kvgrade("grade", "--student", "bob") == 0 and auto_scores(course, "bob")["sizing.1"] == 2.0


def test_plain_nbgrader_reads_the_same_results(course, tmp_path):
    """In process; the sample class does it with the nbgrader command."""
    submit(course, "anna", {"sizing.2": "SHARE 3/4"})
    broken = submit(course, "bob")
    broken.rename(broken.with_name("cache_sizing (1).ipynb"))
    submit(course, "carl").write_text("no json")
    config = nbgrader_run.course_config(course)
    config.CourseDirectory.assignment_id = "sizing"
    nbgrader_run.Autograde(coursedir=nbgrader_run.CourseDirectory(config=config), config=config).start()
    assert auto_scores(course, "anna")["sizing.2"] == 4.5 and auto_scores(course, "bob")["sizing.1"] == 2.0
    assert set(auto_scores(course, "carl").values()) == {None}
    assert executed(tmp_path) == ["anna", "bob"]
    assert kvgrade("grade") == 1 and executed(tmp_path) == []


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(course, processes, monkeypatch, tmp_path, capsys):
    for name in ("anna", "bob", "carl"):
        submit(course, name)

    def stopped(*arguments):
        for number, one in enumerate(workers.run_jobs(*arguments)):
            yield one
            if number == 0:
                raise KeyboardInterrupt

    monkeypatch.setattr(classwork, "run_jobs", stopped)
    assert cli.main(["grade", "--workers", "1"]) == 130
    assert "What was graded is kept" in capsys.readouterr().err
    done = executed(tmp_path)
    monkeypatch.setattr(classwork, "run_jobs", workers.run_jobs)
    assert kvgrade("grade") == 0
    assert "anna" in done and "anna" not in executed(tmp_path)


def test_the_pool_survives_dying_and_hanging_workers(tmp_path, monkeypatch):
    monkeypatch.setenv("POOL_ONCE", str(tmp_path / "once"))
    jobs = [(1, ""), (2, "once"), (3, "die"), (4, "hang"), (5, ""), (6, "")]
    answers = dict(workers.run_jobs(pool_jobs.answer, jobs, 2, 1.0))
    assert [answers[i] for i in (0, 1, 4, 5)] == [1, 4, 25, 36]
    assert answers[2] == workers.Lost(workers.DIED) and "did not answer within 1 s" in answers[3].reason
    assert list(workers.run_jobs(pool_jobs.answer, [], 2, 3.0)) == []
