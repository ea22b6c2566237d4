"""The build: learner notebooks match their sources, hide what they must, and carry nbgrader's ids and points."""

from __future__ import annotations

import json
import re
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
        stub = "#error" if cell.source.startswith("%%cuda") else "raise NotImplementedError"
        assert re.search(rf'{stub}[ (]"{cell.metadata.kvcourse.task}: ', cell.source)
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
    kernels = any(cell.source.startswith("%%cuda") for cell in notebook.cells)
    assert setup[0].source.endswith("\n\n%load_ext kvcourse.cuda") == kernels


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


KERNEL = """__global__ void copy(int n) {
  // BEGIN SOLUTION
  int secret = n;
  // END SOLUTION
}
"""
IN_PARTS = """#include <cuda_fp16.h>

// What a lane adds.
template <typename T>
__device__ T own(T x) {
  // BEGIN SOLUTION
  return x + secret;
  // END SOLUTION
}

template <typename T, int D>
__global__ void copy(T* out, const T* x) {
  if (threadIdx.x < D) {
    // BEGIN SOLUTION
    out[threadIdx.x] = own(x[threadIdx.x]);  // secret
    // END SOLUTION
  }
}
"""


def built_with_kernel(tmp_path, kernel: str, template: str = "") -> str:
    """The learner notebook of a lesson whose first task is a kernel, with nbgrader's own hidden-test markers."""
    lesson = LESSONS[0]
    folder = tmp_path / "solutions" / lesson.folder
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(sources.ROOT / "pyproject.toml", tmp_path)
    checks = "".join(f'# %% check="{t.name}"\ncheck("{t.name}")\n' for t in lesson.tasks[1:])
    script = f"""# %% setup=true
from kvcourse import check

# %% solution="{lesson.tasks[0].name}" cuda="copy.cu"{template}
from kvcourse.cuda import Kernel

copy = Kernel("the script's own way to the text", "copy")

# %% check="{lesson.tasks[0].name}"
check("{lesson.tasks[0].name}")
### BEGIN HIDDEN TESTS
assert secret == 42
### END HIDDEN TESTS

{checks}"""
    (folder / f"{lesson.notebook}.py").write_text(script)
    (folder / "copy.cu").write_text(kernel)
    text = build.canonical(build.learner_notebook(lesson, tmp_path))
    path = sources.notebook_path(lesson, tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return text


def test_hidden_tests_and_kernels_go_through_the_same_cut(tmp_path):
    text = built_with_kernel(tmp_path, KERNEL)
    assert "secret" not in text and "%%cuda copy" in text and '#error \\"sizing.1: bytes per token\\"' in text
    assert "own way" not in text


def test_a_kernel_in_parts_gets_a_stub_a_part_and_its_template_arguments(tmp_path):
    text = built_with_kernel(tmp_path, IN_PARTS, template=' template="float, 64"')
    notebook = nbformat.reads(text, as_version=4)
    stub = '{0}// YOUR CODE HERE\n{0}#error "sizing.1: bytes per token"\n'
    wanted = re.sub(r"( +)// BEGIN(.|\n)+?END SOLUTION\n", lambda part: stub.format(part[1]), IN_PARTS)
    cell = next(c for c in notebook.cells if c.source.startswith("%%cuda"))
    assert f"{cell.source}\n" == f'%%cuda copy --template "float, 64"\n{wanted}'
    assert wanted.count("#error") == 2 and "secret" not in text
    setup = next(c for c in notebook.cells if c.metadata.kvcourse.role == "setup")
    assert setup.source.endswith("\n\n%load_ext kvcourse.cuda")


def test_the_built_stub_of_a_kernel_is_not_started(tmp_path):
    built_with_kernel(tmp_path, IN_PARTS, template=' template="float, 64"')
    names = sources.stub_namespace(LESSONS[0], tmp_path)
    kernel = names["copy"]
    assert (kernel.name, kernel.template, kernel.first_line) == ("copy", "float, 64", 2)
    assert kernel.source.endswith("}\n") and kernel.source.count("#error") == 2
    for use in (lambda: kernel.signature, lambda: kernel.launch(1, 1), kernel.compile):
        with pytest.raises(NotImplementedError, match=r"^sizing\.1: bytes per token$"):
            use()


def test_a_kernel_without_marks_does_not_get_out(tmp_path):
    with pytest.raises(AssertionError, match=r"sizing\.1\.code: mark the solution"):
        built_with_kernel(tmp_path, KERNEL.replace("SOLUTION", "WORK"))


def test_a_missing_source_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="works inside a clone"):
        sources.read_script(LESSONS[0], tmp_path)
