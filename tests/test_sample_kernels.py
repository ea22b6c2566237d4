"""The whole grader on lesson 5: kernels that race, hang, do not compile or read the wrong head cost their own task."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from need_sandbox import need_level_2

from autograde import cli
from autograde.build import source_notebook
from autograde.coursedir import Course
from autograde.results import Result, load_result
from kvcourse.tasks.course import find_lesson

pytestmark = pytest.mark.slow
LESSON = find_lesson("chunked")
FULL = {task.name: task.points for task in LESSON.tasks}


@dataclass(frozen=True)
class Mistake:
    """One edit of the solved notebook, the only task that loses points, and words of the example that is shown."""

    cell: str
    old: str
    new: str
    task: str
    caught_by: str
    words: tuple[str, ...]


MISTAKES = {
    "race": Mistake(
        "chunked-5-code", "    __syncthreads();  // everybody is done with the tile\n", "", "chunked.5",
        "test_many_keys", ("race", "line ", "thread ", "block "),
    ),
    "loop": Mistake(
        "chunked-4-code", "first += WARPS * AT_ONCE", "first += 0", "chunked.4",
        "test_paged_one_full_block", ("time limit", "line "),
    ),
    "syntax": Mistake(
        "chunked-3-code-b", "const long long slot", "const long long long slot", "chunked.3",
        "test_write_kv_fresh_slots", ("does not compile", "line 11"),
    ),
    "wrong head": Mistake(
        "chunked-4-code", "head / (heads / kv_heads)", "head % kv_heads", "chunked.4",
        "test_paged_grouped_heads", ("",),
    ),
    "python": Mistake(
        "chunked-2-code", "left -= tokens", "left -= tokens + work.cached", "chunked.2", "test_cached_tokens", ("",),
    ),
    "no kernel": Mistake(
        "chunked-6-code-b", "%%cuda merge_splits", "%%cuda merge_split", "chunked.6", "test_merge_two", ("",),
    ),
}  # fmt: skip


def solved(release: Path, *mistakes: Mistake) -> Any:
    """The release with the reference's cells, and with these edits."""
    notebook, answers = nbformat.read(release, as_version=4), source_notebook(LESSON).cells
    by_id = {cell.id: cell.source for cell in answers}
    for cell in notebook.cells:
        if cell.metadata.kvcourse.role == "solution":
            cell.source = by_id[cell.id]
    for mistake in mistakes:
        cell = next(cell for cell in notebook.cells if cell.id == mistake.cell)
        assert cell.source.count(mistake.old) == 1, mistake.old
        cell.source = cell.source.replace(mistake.old, mistake.new)
    return notebook


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    """A class after `kvgrade grade`, `feedback` and `export`."""
    need_level_2()
    root = tmp_path_factory.mktemp("kernels") / "class"
    assert cli.main(["release", LESSON.name, "--course", str(root)]) == 0
    course = Course(root)
    release = course.release(LESSON)
    notebooks = {"perfect": solved(release), "empty": nbformat.read(release, as_version=4)}
    notebooks |= {name: solved(release, mistake) for name, mistake in MISTAKES.items()}
    for name, notebook in notebooks.items():
        folder = root / "submitted" / name / LESSON.name
        folder.mkdir(parents=True)
        (folder / f"{LESSON.notebook}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    assert cli.main(["grade", "--course", str(root), "--gpu", "off"]) == 0
    assert cli.main(["feedback", "--course", str(root)]) == 0
    assert cli.main(["export", str(root / "grades.csv"), "--course", str(root)]) == 0
    return course


def result_of(course: Course, student: str) -> Result:
    result = load_result(course, student, LESSON)
    assert result is not None and result.level == "L2"
    return result


def test_the_solution_has_all_points_and_no_gpu_verdict(course):
    result = result_of(course, "perfect")
    assert result.points(LESSON) == FULL and result.state == "graded" and result.notes == []
    assert {name: task.gpu for name, task in result.tasks.items()} == {
        name: "not run" if name > "chunked.2" else None for name in FULL
    }


def test_the_untouched_release_has_none(course):
    result = result_of(course, "empty")
    assert set(result.points(LESSON).values()) == {0.0}
    assert {task.status for task in result.tasks.values()} == {"not started"}


@pytest.mark.parametrize("student", MISTAKES)
def test_a_mistake_costs_its_own_task_and_is_shown(course, student):
    mistake, result = MISTAKES[student], result_of(course, student)
    points = result.points(LESSON)
    lost = {name for name, full in FULL.items() if points[name] != full}
    assert lost == {mistake.task}, points
    bad = next(p for p in result.tasks[mistake.task].properties if p.name == mistake.caught_by)
    assert bad.status == "failed"
    assert all(word in f"{bad.got} {bad.because}" for word in mistake.words), bad


def test_a_name_that_is_near_is_named(course):
    task = result_of(course, "no kernel").tasks["chunked.6"]
    assert "needs merge_splits" in task.problem and "rename it to merge_splits" in task.problem


def test_the_csv_and_the_pages_have_everybody(course):
    with open(course.root / "grades.csv", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"perfect", "empty", *MISTAKES}
    for student in rows:
        points = result_of(course, student).points(LESSON)
        assert {name: float(rows[student][name]) for name in FULL} == points
        page = course.feedback(student, LESSON).read_text()
        assert "on a GPU" in page


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_later_verdicts_are_refused_in_a_sentence(course, capsys):
    assert cli.main(["gpu", "--course", str(course.root)]) == 2
    assert "no GPU" in capsys.readouterr().err
