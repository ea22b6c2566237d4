"""The whole grader on a class of twelve: real sandbox, real nbgrader, exact points."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from need_sandbox import need_level_2
from sample_class import LESSON, NAME, Sample, sample_class, write_class

from autograde import cli, hidden
from autograde.coursedir import Course
from autograde.nbgrader_run import open_gradebook, scores
from autograde.results import load_result
from autograde.sources import ROOT

pytestmark = pytest.mark.slow
NAMES = ("perfect", "empty", "half", "wrong formula", "syntax", "loop", "crash", "loud")
NAMES += ("renamed", "edited tests", "colab", "spy")
PLAIN = ("wrong formula", "renamed", "edited tests")  # graded once more by nbgrader's own command


@dataclass(frozen=True)
class Graded:
    """The class after `kvgrade grade`, `feedback` and `export`."""

    course: Course
    samples: dict[str, Sample]
    exit_code: int
    seconds: float


@pytest.fixture(scope="session")
def graded(tmp_path_factory) -> Graded:
    need_level_2()
    root = tmp_path_factory.mktemp("sample") / "class"
    assert cli.main(["release", "sizing", "--course", str(root)]) == 0
    course = Course(root)
    samples = sample_class(course.release(LESSON))
    assert tuple(samples) == NAMES
    write_class(root, samples)
    start = time.monotonic()
    exit_code = cli.main(["grade", "--course", str(root)])
    seconds = time.monotonic() - start
    assert cli.main(["feedback", "--course", str(root)]) == 0
    assert cli.main(["export", str(root / "grades.csv"), "--course", str(root)]) == 0
    assert cli.main(["export", str(root / "nbgrader.csv"), "--course", str(root), "--nbgrader"]) == 0
    return Graded(course, samples, exit_code, seconds)


def rows(path: Path) -> dict[str, dict[str, str]]:
    with open(path, newline="") as file:
        return {row.get("student") or row["student_id"]: row for row in csv.DictReader(file)}


def all_scores(course: Course, students: tuple[str, ...] = NAMES) -> dict[str, dict[str, float | None] | None]:
    with open_gradebook(course) as gradebook:
        return {student: scores(gradebook, LESSON, student) for student in students}


@pytest.mark.parametrize("student", NAMES)
def test_points_state_and_notes(graded, student):
    sample, result = graded.samples[student], load_result(graded.course, student, LESSON)
    failed = {
        name: sorted(p.name for p in task.properties if p.hidden and p.status != "passed")
        for name, task in result.tasks.items()
    }
    assert result.points(LESSON) == sample.points(), failed
    assert result.level == "L2"
    if student not in ("loop", "crash", "loud"):  # the sandbox may have its own remarks on these
        assert result.state == sample.state, result.notes
    for note in sample.notes:
        assert any(note in one for one in result.notes), result.notes


def test_everybody_is_graded_and_in_the_gradebook(graded):
    assert graded.exit_code == 0
    assert all_scores(graded.course) == {name: sample.points() for name, sample in graded.samples.items()}


def test_the_csv_has_everybody(graded):
    ours, theirs = rows(graded.course.root / "grades.csv"), rows(graded.course.root / "nbgrader.csv")
    assert set(ours) == set(theirs) == set(NAMES)
    for name, sample in graded.samples.items():
        points = sample.points()
        assert {task: float(ours[name][task]) for task in points} == points
        assert float(ours[name]["total"]) == pytest.approx(sum(points.values()))
        assert float(theirs[name]["score"]) == pytest.approx(sum(points.values()))
        assert ours[name]["max"] == f"{LESSON.points:g}" and ours[name]["level"] == "L2"
        assert ours[name]["state"] == load_result(graded.course, name, LESSON).state


def test_the_spy_found_nothing(graded):
    result = load_result(graded.course, "spy", LESSON)
    text = "".join(output.get("text", "") for outputs in result.outputs.values() for output in outputs)
    assert "FOUND 0" in text and "imported" not in text


def test_a_loud_submission_leaves_small_files(graded):
    for path in (graded.course.autograded("loud", LESSON), graded.course.feedback("loud", LESSON)):
        assert path.stat().st_size < 3_000_000


def test_feedback_shows_reports_and_no_test_source_and_no_script(graded):
    lines = {line.strip() for path in Path(hidden.__path__[0]).glob("*.py") for line in path.read_text().splitlines()}
    secret = {line for line in lines if len(line) > 30 and ("expect(" in line or "rng." in line or "solution." in line)}
    assert len(secret) > 50
    for student, sample in graded.samples.items():
        text = graded.course.feedback(student, LESSON).read_text()
        plain = re.sub(r"<style>.*?</style>|<[^>]+>", "", text, flags=re.DOTALL)
        assert not [line for line in secret if line in plain], student
        assert not re.search(r"<script|<iframe|<svg|\son\w+=\"", text), student
        assert student == "spy" or not re.search(r"autograde[/.]hidden|Traceback", plain), student
        for task, points in sample.points().items():
            assert f">{points:g}</td>" in text and task in text, student
    half = graded.course.feedback("half", LESSON).read_text()
    assert "not started" in half
    assert "A started byte counts as a whole one." in graded.course.feedback("wrong formula", LESSON).read_text()


def test_grading_again_executes_nothing(graded, capsys):
    files = [graded.course.autograded(name, LESSON).stat().st_mtime_ns for name in NAMES]
    assert cli.main(["grade", "--course", str(graded.course.root)]) == 0
    assert "12 submissions, 0 executed now" in capsys.readouterr().out
    assert files == [graded.course.autograded(name, LESSON).stat().st_mtime_ns for name in NAMES]


def test_force_gives_the_same(graded, tmp_path, capsys):
    root = tmp_path / "copy"
    shutil.copytree(graded.course.root, root)
    for student in set(NAMES) - {"wrong formula", "spy"}:
        shutil.rmtree(root / "submitted" / student)
    assert cli.main(["grade", "sizing", "--force", "--course", str(root)]) == 0
    assert "2 submissions, 2 executed now" in capsys.readouterr().out
    assert all_scores(Course(root)) == all_scores(graded.course)


def test_plain_nbgrader_gives_the_same_grades(graded, tmp_path):
    """A new folder with the same seed and nbgrader's commands alone: nothing was graded there by kvgrade."""
    root = tmp_path / "plain"
    assert cli.main(["release", "sizing", "--course", str(root)]) == 0
    shutil.copy(graded.course.seed_file, Course(root).seed_file)
    write_class(root, {name: graded.samples[name] for name in PLAIN})
    nbgrader(root, "generate_assignment", "sizing", "--force")
    nbgrader(root, "autograde", "sizing")
    nbgrader(root, "generate_feedback", "sizing")
    nbgrader(root, "export")
    assert all_scores(Course(root), PLAIN) == all_scores(graded.course, PLAIN)
    score = {name: row["score"] for name, row in rows(root / "grades.csv").items()}
    assert score == {name: rows(graded.course.root / "nbgrader.csv")[name]["score"] for name in PLAIN}
    for name in PLAIN:
        theirs, ours = Course(root).feedback(name, LESSON).read_text(), graded.course.feedback(name, LESSON).read_text()
        assert theirs == ours, name


def nbgrader(root: Path, *command: str) -> None:
    own = Path(sys.executable).with_name("nbgrader")
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(own), *command], cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_release_has_no_solution_in_it(graded):
    notebook = nbformat.read(graded.course.release(LESSON), as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    answers = [c.source for c in graded.samples["perfect"].notebook.cells if c.metadata.kvcourse.role == "solution"]
    for answer in answers:
        body = answer.split("### BEGIN SOLUTION")[1].split("### END SOLUTION")[0].strip().splitlines()
        assert not [line for line in body if len(line.strip()) > 25 and line in text]
    assert (graded.course.root / "release" / "sizing" / NAME).is_file() and graded.seconds > 0
