"""The build: learner notebooks match their sources, hide what they must, and carry nbgrader's ids and points."""

from __future__ import annotations

import json
import shutil

import nbformat
import pytest
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.utils import compute_checksum

from autograde import build, sources
from kvcourse.tasks.course import UserError, load_course

LESSONS = load_course()


@pytest.fixture(scope="module")
def copy_of_root(tmp_path_factory):
    """A copy of what the build reads and writes, to be damaged at will."""
    root = tmp_path_factory.mktemp("clone")
    for name in ("solutions", "notebooks"):
        shutil.copytree(sources.ROOT / name, root / name)
    shutil.copy(sources.ROOT / "pyproject.toml", root)
    return root


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_committed_notebook_matches_its_source(lesson):
    text = sources.notebook_path(lesson).read_text(encoding="utf-8")
    assert build.canonical(build.learner_notebook(lesson)) == text


def test_drift_fails_and_names_the_notebook(copy_of_root, capsys):
    path = sources.notebook_path(LESSONS[0], copy_of_root)
    assert build.build(check=True, root=copy_of_root) == 0
    path.write_text(path.read_text(encoding="utf-8").replace("KV cache", "KV cash", 1), encoding="utf-8")
    assert build.build(check=True, root=copy_of_root) == 1
    assert f"{path.relative_to(copy_of_root)} does not match its source" in capsys.readouterr().out
    build.build(root=copy_of_root)
    assert build.build(check=True, root=copy_of_root) == 0


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_release_has_stubs_points_and_valid_metadata(lesson):
    notebook = nbformat.read(sources.notebook_path(lesson), as_version=4)
    MetadataValidator().validate_nb(notebook)
    nbformat.validate(notebook)
    by_role: dict[str, list] = {}
    for cell in notebook.cells:
        by_role.setdefault(cell.metadata.kvcourse.role, []).append(cell)
    assert [c.metadata.nbgrader.grade_id for c in by_role["check"]] == [
        task.name.replace(".", "-") for task in lesson.tasks
    ]
    assert [c.metadata.nbgrader.points for c in by_role["check"]] == [task.points for task in lesson.tasks]
    for cell in by_role["solution"]:
        assert f'raise NotImplementedError("{cell.metadata.kvcourse.task}: ' in cell.source
    for cell in by_role["check"]:
        assert cell.source == f'check("{cell.metadata.kvcourse.task}")'
        assert cell.metadata.nbgrader.checksum == compute_checksum(cell)
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in notebook.cells)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_no_line_of_a_solution_is_left(lesson):
    """Every line that stands only between the markers is gone from the learner's file."""
    text = sources.notebook_path(lesson).read_text(encoding="utf-8")
    outside, inside = set(), set()
    for cell in sources.read_script(lesson):
        hidden = False
        for line in cell.source.splitlines():
            hidden = (hidden or "BEGIN SOLUTION" in line) and "END SOLUTION" not in line
            (inside if hidden else outside).add(line.strip())
    secret = {line for line in inside - outside if len(line) > 24 and "SOLUTION" not in line}
    assert len(secret) > 20
    assert [line for line in secret if json.dumps(line, ensure_ascii=False)[1:-1] in text] == []
    assert "__main__" not in text


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_first_cells_open_colab_and_set_up(lesson):
    notebook = nbformat.read(sources.notebook_path(lesson), as_version=4)
    assert f"notebooks/{lesson.folder}/{lesson.notebook}.ipynb)" in notebook.cells[0].source
    assert (
        "colab.research.google.com/github/" in notebook.cells[0].source and "solutions" not in notebook.cells[0].source
    )
    setup = [cell for cell in notebook.cells if cell.metadata.kvcourse.role == "setup"]
    assert len(setup) == 1 and "from kvcourse import check, hint, progress, quiz" in setup[0].source


def test_the_script_can_be_imported_and_defines_every_task_name():
    for lesson in LESSONS:
        names = sources.solution_namespace(lesson)
        assert [n for task in lesson.tasks for n in task.names if n not in names] == []


@pytest.mark.parametrize(
    ("source", "stub"),
    [
        ("def f():\n    ...", 'raise NotImplementedError("chunked.3: write"'),
        ("%%cuda write_kv\n__global__ void f() {", '#error "chunked.3: write"'),
        ("%%bash\necho", "exit 1"),
    ],
)
def test_each_language_gets_a_stub_it_can_run(source, stub):
    assert stub in build.stub_text(source, "chunked.3", "write")


def test_hidden_tests_and_kernels_go_through_the_same_cut(tmp_path, monkeypatch):
    """A lesson with nbgrader's own hidden-test markers and a kernel file comes out clean."""
    lesson = LESSONS[0]
    folder = tmp_path / "solutions" / lesson.folder
    folder.mkdir(parents=True)
    shutil.copy(sources.ROOT / "pyproject.toml", tmp_path)
    checks = "".join(f'# %% check="{t.name}"\ncheck("{t.name}")\n' for t in lesson.tasks[1:])
    script = f"""# %% setup=true
from kvcourse import check

# %% solution="{lesson.tasks[0].name}" cuda="copy.cu"

# %% check="{lesson.tasks[0].name}"
check("{lesson.tasks[0].name}")
### BEGIN HIDDEN TESTS
assert secret == 42
### END HIDDEN TESTS

{checks}"""
    (folder / f"{lesson.notebook}.py").write_text(script)
    kernel = "__global__ void copy(int n) {\n  // BEGIN SOLUTION\n  int secret = n;\n  // END SOLUTION\n}\n"
    (folder / "copy.cu").write_text(kernel)
    text = build.canonical(build.learner_notebook(lesson, tmp_path))
    assert "secret" not in text and "%%cuda copy" in text and '#error \\"sizing.1: bytes per token\\"' in text


def test_a_missing_source_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="works inside a clone"):
        sources.read_script(LESSONS[0], tmp_path)
