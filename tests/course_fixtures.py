"""A released course folder for tests of the teacher's side, with a grader that needs no sandbox.

Test files take these with `pytest_plugins = ["course_fixtures"]`; helpers that are no fixtures are in course_folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_grading
import pytest

from autograde import classwork, cli, grade, workers
from autograde.coursedir import Course


@pytest.fixture(scope="session")
def released(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("released") / "class"
    root.mkdir()
    assert cli.main(["release", "sizing", "--course", str(root)]) == 0
    return root


@pytest.fixture
def course(released, tmp_path, monkeypatch) -> Course:
    """A course folder of its own, which is also the current one, with a grader that needs no sandbox."""
    root = tmp_path / "our class"
    shutil.copytree(released, root)
    monkeypatch.chdir(root)
    monkeypatch.setattr(classwork, "run_jobs", in_this_process)
    monkeypatch.setattr(grade, "grade_notebook", fake_grading.fake_notebook)
    monkeypatch.setenv("FAKE_GRADING_COUNT", str(tmp_path / "executed"))
    return Course(root)


@pytest.fixture
def processes(course, monkeypatch) -> None:
    """Real worker processes, still with the grader that needs no sandbox."""
    monkeypatch.setattr(classwork, "grade_job", fake_grading.fake_job)
    monkeypatch.setattr(classwork, "run_jobs", workers.run_jobs)


def in_this_process(work: Callable, jobs: list[tuple], *_: Any) -> Iterator[tuple[int, Any]]:
    """In place of the pool, where a test is about something else."""
    for number, job in enumerate(jobs):
        yield number, work(*job)
