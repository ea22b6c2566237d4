"""The learner's command line, and the set-up that works with nothing installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from autograde import sources
from autograde.build import cell_id
from kvcourse import setup
from kvcourse.__main__ import main
from kvcourse.tasks.course import load_course

LESSON = load_course()[0]
ROOT = sources.ROOT


def notebook_with(tmp_path, solved: set[str] = frozenset(), broken: str = "") -> str:
    """The learner's notebook with some tasks solved, and the cell of `broken` replaced by a syntax error."""
    notebook = json.loads(sources.notebook_path(LESSON).read_text(encoding="utf-8"))
    answers = {cell_id(cell): cell.source for cell in sources.read_script(LESSON) if cell.role == "solution"}
    for cell in notebook["cells"]:
        about = cell["metadata"]["kvcourse"]
        if about["role"] == "solution" and about["task"] in solved:
            cell["source"] = answers[cell["metadata"]["nbgrader"]["grade_id"]]
        if about["role"] == "solution" and about["task"] == broken:
            cell["source"] = "def oops(:\n    pass"
    path = tmp_path / "mine.ipynb"
    path.write_text(json.dumps(notebook))
    return str(path)


def test_check_a_whole_notebook(tmp_path, capsys):
    names = [task.name for task in LESSON.tasks]
    assert main(["check", notebook_with(tmp_path, set(names))]) == 0
    assert f"{len(names)} of {len(names)} tasks passed" in capsys.readouterr().out
    assert main(["check", notebook_with(tmp_path, {"sizing.1"}, broken="sizing.4")]) == 1
    out = capsys.readouterr().out
    assert "✓ sizing.1" in out and "○ sizing.5" in out and re.search(r"Code cell \d+ stopped with SyntaxError", out)
    assert f"1 of {len(names)} tasks passed" in out


def test_check_one_task(tmp_path, capsys):
    assert main(["check", notebook_with(tmp_path, {"sizing.1"}), "sizing.1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 tasks passed"


def test_a_notebook_without_metadata_is_checked_by_its_text(tmp_path, capsys):
    path = notebook_with(tmp_path, {"sizing.1"})
    notebook = json.loads(Path(path).read_text())
    for cell in notebook["cells"]:
        cell["metadata"] = {}
    (tmp_path / "bare.ipynb").write_text(json.dumps(notebook))
    assert main(["check", str(tmp_path / "bare.ipynb")]) == 1
    assert "✓ sizing.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file or directory."),
        ("not json", "is not a notebook in format 4"),
        ('{"worksheets": []}', "is not a notebook in format 4"),
        ('{"cells": []}', "has no check(...) cell"),
    ],
)
def test_a_bad_notebook_is_one_sentence_and_exit_code_2(tmp_path, capsys, content, sentence):
    path = tmp_path / "bad.ipynb"
    if content is not None:
        path.write_text(content)
    assert main(["check", str(path)]) == 2
    err = capsys.readouterr().err
    assert sentence in err and len(err.strip().splitlines()) == 1


def test_unknown_tasks_offer_the_nearest(tmp_path, capsys):
    assert main(["hint", "sizng.2"]) == 2 and "Did you mean 'sizing.2'" in capsys.readouterr().err
    assert main(["check", notebook_with(tmp_path), "sizing.77"]) == 2


def test_hint_and_progress_work_in_a_terminal(capsys):
    assert main(["hint", "sizing.1"]) == 0 and "Hint 1 of 3 for sizing.1" in capsys.readouterr().out
    assert main(["progress"]) == 0 and "sizing.1" in capsys.readouterr().out


def test_trace_statistics_in_a_terminal(tmp_path, capsys):
    trace = tmp_path / "small.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n')
    assert main(["trace", "stats", str(trace)]) == 0 and "prompt tokens" in capsys.readouterr().out
    assert main(["trace", "list"]) == 0 and "conversation" in capsys.readouterr().out
    assert main(["trace", "stats"]) == 2 and "needs the path" in capsys.readouterr().err
    assert main(["trace", "stats", str(tmp_path / "none.jsonl")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_set_up_runs_on_a_bare_python():
    """No package may be needed before the environment exists: -S hides site-packages."""
    done = subprocess.run([sys.executable, "-S", "-m", "kvcourse", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "lab" in done.stdout, done.stderr
    hint = subprocess.run(
        [sys.executable, "-S", "-m", "kvcourse", "hint", "sizing.1"], cwd=ROOT, capture_output=True, text=True
    )
    assert hint.returncode == 2 and "has no package numpy" in hint.stderr and "Traceback" not in hint.stderr
    code = "import kvcourse.setup as s; print(s.VENV.name)"
    bare = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert bare.stdout == ".venv\n", bare.stderr


def test_an_unsupported_python_is_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(setup, "VENV", tmp_path / "venv")
    monkeypatch.setattr(setup, "PYTHONS", ((3, 99), (3, 100)))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stop:
        setup.ready("lab", None)
    assert stop.value.code == 2 and "is not supported: use 3.11, 3.12 or 3.13." in capsys.readouterr().err


def normal(requirement: str) -> str:
    return re.sub(r"\s", "", requirement.split("#")[0]).lower()


def test_environment_yml_installs_what_pyproject_declares():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {normal(r) for r in [*project["dependencies"], *extras["lab"], *extras["grade"], *extras["test"]]}
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(entry for entry in environment if isinstance(entry, dict))["pip"]
    assert {normal(r) for r in pip if not r.startswith("-")} == declared
    assert {r for r in pip if r.startswith("-")} == {"-c kvcourse/constraints.txt", "-e .[all]"}
    assert f"python{project['requires-python']}" in [normal(e) for e in environment if isinstance(e, str)]
    assert extras["all"] == ["kvcourse[lab,grade,test]"]


def test_every_declared_package_has_a_tested_version_inside_its_range():
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for line in setup.CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("torch=="), "torch is installed first, by version"
    pinned = {normal(line.split("==")[0]).replace("_", "-"): line.split("==")[1] for line in lines}
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *extras["lab"], *extras["grade"], *extras["test"]]:
        requirement = Requirement(text)
        assert requirement.name.replace("_", "-").lower() in pinned, f"{requirement.name} has no tested version"
        assert pinned[requirement.name.replace("_", "-").lower()] in requirement.specifier


def test_pyproject_says_why_for_every_dependency():
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("\ndependencies = [") : text.index("all = [")]
    for line in block.splitlines():
        if line.strip().startswith('"'):
            assert "# " in line, f"say why: {line.strip()}"


def test_the_readme_commands_exist():
    """Every `kvcourse …` and `kvgrade …` command of the README is known to its parser."""
    from autograde.cli import main as kvgrade

    readme = (ROOT / "README.md").read_text()
    commands = set(re.findall(r"^(?:python3 -m )?(kvcourse|kvgrade) ([a-z]+)", readme, flags=re.M))
    assert {("kvcourse", "lab"), ("kvcourse", "test"), ("kvgrade", "grade")} <= commands
    for program, command in commands:
        with pytest.raises(SystemExit) as stop:
            (main if program == "kvcourse" else kvgrade)([command, "--help"])
        assert stop.value.code == 0, f"{program} {command}"


def test_a_cuda_cell_defines_its_kernel_without_ipython():
    from kvcourse.check.notebook import run_cells

    source = "%%cuda twice\n__global__ void twice(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }"
    namespace, problems = run_cells([{"source": "%matplotlib inline\nx = 1"}, {"source": source}])
    assert problems == [] and namespace["x"] == 1 and "__global__" in namespace["twice"].source
