"""Grading one notebook: honest work keeps its points, failures are explained, the grader's own faults are no zeros."""

from __future__ import annotations

import json

import pytest
from need_sandbox import need_level_2
from small_lesson import CODE, COUNTER, DOUBLE, FILL, LESSON, notebook, points, small_tests, solution

from autograde.grade import Graded, InfrastructureFault, Limits, copy_data, grade_notebook
from autograde.kernel import Kernel
from autograde.sandbox import Sandbox
from kvcourse.tasks.api import task

FULL = 9.0


def grade(nb, **kwargs) -> Graded:
    given = {"student_id": "ann", "seed": b"class", "tests": small_tests, "solution": solution, "release": notebook()}
    return grade_notebook(nb, LESSON, **(given | kwargs))


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_honest_work_earns_everything(level):
    if level == "L2":
        need_level_2()
    graded = grade(notebook(), level=level)
    assert points(graded) == FULL and graded.level == level and graded.notes == []


def test_harmless_habits_cost_nothing():
    code = CODE | {
        "small.1": "import numpy as np\n" + DOUBLE.replace("return 2 * x", "return np.int64(2 * x)"),
        "small.2": "import warnings\n" + FILL.replace("array[:]", "warnings.warn('careful')\n    array[:]"),
    }
    habits = ("import sys\nprint('a warning', file=sys.stderr)", "%time 1\n!echo shell", "exec = compile = globals = 3")
    graded = grade(notebook(*habits, code=code))
    assert points(graded) == FULL, graded.tasks
    assert "a warning" in str(graded.outputs["extra-0"]) and "shell" in str(graded.outputs["extra-1"])


def test_stubs_are_not_started_and_an_error_does_not_stop_the_rest():
    stub = "def double(x):\n    raise NotImplementedError('small.1: double a number')"
    graded = grade(notebook("1 / 0", "print('still here')", code=CODE | {"small.1": stub}))
    assert graded.tasks["small.1"].status == "not started" and points(graded) == 7.0
    assert graded.outputs["extra-0"][0].ename == "ZeroDivisionError"
    assert graded.outputs["extra-1"][0].text == "still here\n"


def test_a_missing_name_is_explained_by_the_cell_that_stopped():
    broken = "x = 1\n" + DOUBLE.replace("return 2 * x", "return 2 * * x")
    graded = grade(notebook(code={"small.1": broken, "small.3": COUNTER}))
    problem = graded.tasks["small.1"].problem
    assert "small.1 needs double, which is not defined" in problem
    assert "The cell of small.1 stopped with SyntaxError: invalid syntax (line 5)." in problem
    assert "needs fill" in graded.tasks["small.2"].problem and points(graded) == 4.0


def test_a_lost_kernel_costs_the_guilty_cell_only():
    cells = ("kept = 5", "import os\nos._exit(1)", "assert kept == 5\nbase = kept")
    code = CODE | {"small.1": DOUBLE.replace("2 * x", "2 * x + kept - base")}
    graded = grade(notebook(*cells, code=code))
    assert points(graded) == FULL
    assert len(graded.notes) == 1 and graded.notes[0].startswith("Cell 2 ended the kernel")
    assert graded.notes[0] in graded.outputs["extra-1"][-1].text


def test_the_time_of_a_notebook_is_limited():
    limits = Limits(cell_seconds=0.6, notebook_seconds=1.0)
    graded = grade(notebook(after=["while True: pass"] * 4), limits=limits)
    assert points(graded) == FULL
    assert [note.split(" ")[0:2] for note in graded.notes[:2]] == [["Cell", "7"], ["Cell", "8"]]
    assert "Cell 9 and the cells after it were not run" in graded.notes[2]


def test_checks_and_released_demos_are_not_run_but_changed_demos_are():
    nb, release = (notebook("print('demo')", "print('mine')") for _ in range(2))
    release.cells[1].source = "print('theirs')"
    for cell in (*nb.cells[:2], *release.cells[:2]):
        cell.metadata.kvcourse.role = "demo"
    graded = grade(nb, release=release)
    assert set(graded.outputs) == {"extra-1", "small-1-code", "small-2-code", "small-3-code"}


def test_random_inputs_belong_to_seed_and_student():
    seen = []

    @task("small.1")
    def test_draw(student, rng):
        """Draws."""
        seen.append(rng.random())

    def tests(about):
        return [test_draw.kvcourse_test] if about.name == "small.1" else []

    for seed, student in ((b"a", "ann"), (b"a", "ann"), (b"a", "bob"), (b"b", "ann")):
        grade(notebook(), seed=seed, student_id=student, tests=tests)
    assert seen[0] == seen[1] and len(set(seen)) == 3


def test_only_plain_data_files_are_copied(tmp_path):
    source, target = tmp_path / "submitted", tmp_path / "data"
    (source / "sub").mkdir(parents=True)
    (source / ".ipython").mkdir()
    target.mkdir()
    for name in ("trace.jsonl", "sub/numbers.npy", "helper.py", "lesson.ipynb", ".ipython/config.json", "fast.so"):
        (source / name).write_bytes(b"x" * 10)
    (source / "big.bin").write_bytes(b"x" * 200)
    (source / "link.txt").symlink_to("/etc/passwd")
    (source / "folder").symlink_to("/etc")
    copy_data(source, target, limit=100)
    copied = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert copied == ["sub/numbers.npy", "trace.jsonl"]
    graded = grade(notebook("print(open('trace.jsonl').read(), open('sub/numbers.npy').read())"), files=source)
    assert graded.outputs["extra-0"][0].text == "x" * 10 + " " + "x" * 10 + "\n"


def test_the_result_survives_json():
    graded = grade(notebook("print(1)", code={"small.1": DOUBLE}))
    again = Graded.from_dict(json.loads(json.dumps(graded.as_dict())))
    assert again == graded and again.outputs["extra-0"][0].text == "1\n"


def test_a_kernel_that_never_starts_is_no_zero(monkeypatch):
    tries = []

    def fail(self):
        tries.append(1)
        self.close()
        raise InfrastructureFault("no kernel today")

    monkeypatch.setattr(Kernel, "wait_ready", fail)
    with pytest.raises(InfrastructureFault, match="after two tries: no kernel today"):
        grade(notebook())
    assert len(tries) == 2


def test_a_fault_that_passes_is_not_seen(monkeypatch):
    enter, tries = Sandbox.__enter__, []

    def full_disk_once(self):
        tries.append(1)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")
        return enter(self)

    monkeypatch.setattr(Sandbox, "__enter__", full_disk_once)
    assert points(grade(notebook())) == FULL and len(tries) == 2


def test_tests_and_solutions_that_cannot_be_loaded_are_no_zero():
    with pytest.raises(InfrastructureFault, match="tests of small cannot be loaded"):
        grade_notebook(notebook(), LESSON, student_id="ann", seed=b"", release=notebook())
    with pytest.raises(InfrastructureFault, match="reference solution cannot be loaded"):
        grade(notebook(), solution=lambda: {}["gone"])
