"""Cuts the learner's notebooks from the scripts under `solutions/`, through nbgrader's own generate_assignment."""

from __future__ import annotations

import json
import logging
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import nbformat
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.preprocessors import ClearSolutions, SaveCells
from traitlets.config import Config

from autograde.sources import ROOT, Cell, notebook_path, read_script
from kvcourse.tasks.course import Lesson, load_course

TEMPLATE = Path(__file__).with_name("setup_cell.py.txt")
PYTHON_KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LOAD_CUDA = "%load_ext kvcourse.cuda"  # in the setup cell of a lesson with kernels; Python could not import it
ID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")


class StubSolutions(ClearSolutions):
    """nbgrader's solution cutter with a stub that names the task, in the language of the cell."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, cell_index: int) -> tuple[NotebookNode, dict]:
        about = cell.metadata.get("kvcourse", {})
        if about.get("role") == "solution":
            self.code_stub = {"python": stub_text(cell.source, about["task"], about["title"])}
        return super().preprocess_cell(cell, resources, cell_index)


def stub_text(source: str, task: str, title: str) -> str:
    """What stands where the solution was: an error that names the task, in Python, CUDA C++ or shell."""
    magic = source.split(maxsplit=1)[0] if source.startswith("%%") else ""
    if magic == "%%cuda":
        return f'// YOUR CODE HERE\n#error "{task}: {title}"'
    if magic in ("%%bash", "%%sh"):
        return f'# YOUR CODE HERE\necho "{task}: {title}" >&2; exit 1'
    return f'# YOUR CODE HERE\nraise NotImplementedError("{task}: {title}")'


def source_notebook(lesson: Lesson, root: Path = ROOT) -> NotebookNode:
    """The lesson with solutions and nbgrader metadata: what nbgrader calls the source version."""
    titles = {task.name: task for task in lesson.tasks}
    cells, script = [_title_cell(lesson, root)], read_script(lesson, root)
    extension = f"\n\n{LOAD_CUDA}" if any(cell.source.startswith("%%cuda ") for cell in script) else ""
    for cell in script:
        about: dict[str, Any] = {"role": cell.role}
        if cell.task:
            assert cell.task in titles, (
                f"{lesson.notebook}.py has a cell of {cell.task}, which course.toml does not list"
            )
            about |= {"task": cell.task, "title": titles[cell.task].title}
        marked = cell.role != "solution" or not cell.source.startswith("%%") or "BEGIN SOLUTION" in cell.source
        assert marked, f"{cell.id}: mark the solution, so that the cell keeps its first line"
        make = new_markdown_cell if cell.role == "text" else new_code_cell
        source = TEMPLATE.read_text(encoding="utf-8").strip() if cell.role == "setup" else cell.source
        if cell.role == "setup":
            source = source.replace("{repository}", repository(root)) + _own_imports(cell.source) + extension
        node = make(source, id=cell_id(cell), metadata={"kvcourse": about})
        grading = _nbgrader_metadata(cell, titles)
        if grading:
            node.metadata["nbgrader"] = grading
        cells.append(node)
    checks = [cell.metadata.kvcourse.task for cell in cells if cell.metadata.kvcourse.role == "check"]
    assert checks == list(titles), f"{lesson.notebook}.py checks {checks}, course.toml lists {list(titles)}"
    return new_notebook(cells=cells, metadata={"kernelspec": PYTHON_KERNEL, "language_info": {"name": "python"}})


def learner_notebook(lesson: Lesson, root: Path = ROOT) -> NotebookNode:
    """The release: solutions and hidden tests cut, no outputs, nbgrader's ids, points and checksums in place."""
    with tempfile.TemporaryDirectory(prefix="kvgrade-build-") as folder:
        course = Path(folder)
        write_source(lesson, course, root)
        generate_assignment(lesson, course)
        made = nbformat.read(course / "release" / lesson.name / f"{lesson.notebook}.ipynb", as_version=4)
    for cell in made.cells:
        assert "SOLUTION" not in cell.source.upper() or cell.cell_type == "markdown", f"a marker is left in {cell.id}"
        assert "HIDDEN TEST" not in cell.source.upper(), f"a hidden test is left in {cell.id}"
    return made


def write_source(lesson: Lesson, course: Path, root: Path = ROOT) -> Path:
    """Put the source version where nbgrader expects it in a course folder."""
    path = course / "source" / lesson.name / f"{lesson.notebook}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(canonical(source_notebook(lesson, root)), encoding="utf-8")
    return path


def generate_assignment(lesson: Lesson, course: Path) -> None:
    """Run nbgrader's generate_assignment on a course folder, in process and without a gradebook."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory

    config = assignment_config()
    config.CourseDirectory.root = str(course)
    config.CourseDirectory.assignment_id = lesson.name
    converter = GenerateAssignment(coursedir=CourseDirectory(config=config), config=config)
    converter.log = logging.getLogger("kvgrade.nbgrader")
    converter.force = converter.no_database = True
    converter.preprocessors = [step for step in config.GenerateAssignment.preprocessors if step is not SaveCells]
    converter.start()


def assignment_config() -> Config:
    """nbgrader's configuration for cutting notebooks: its own steps, with our stub."""
    from nbgrader.converters import GenerateAssignment

    steps = [StubSolutions if step is ClearSolutions else step for step in GenerateAssignment.preprocessors.default()]
    config = Config()
    config.GenerateAssignment.preprocessors = steps
    return config


def build(check: bool = False, worked: bool = False, root: Path = ROOT) -> int:
    """Write every learner notebook, or with `check` only compare; `worked` also executes the solved ones."""
    drift = []
    for lesson in load_course():
        path, text = notebook_path(lesson, root), canonical(learner_notebook(lesson, root))
        if check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                drift.append(path.relative_to(root))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"built {path.relative_to(root)}")
        if worked:
            print(f"worked {build_worked(lesson, root).relative_to(root)}")
    for path in drift:
        print(f"{path} does not match its source: run `kvgrade build` and commit the result.")
    return 1 if drift else 0


def build_worked(lesson: Lesson, root: Path = ROOT, timeout: int = 600) -> Path:
    """Execute the solved notebook from top to bottom into `build/solutions/`; any error stops with the cell's error."""
    from nbclient import NotebookClient

    notebook = source_notebook(lesson, root)
    config = Config(KernelManager={"transport": "ipc"})  # no open port
    resources = {"metadata": {"path": str(root)}}
    NotebookClient(notebook, timeout=timeout, kernel_name="python3", resources=resources, config=config).execute()
    path = root / "build" / "solutions" / lesson.folder / f"{lesson.notebook}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def canonical(notebook: NotebookNode) -> str:
    """One text for one notebook: sorted keys, cell ids kept, no outputs, no execution counts, a final newline."""
    clean = json.loads(nbformat.writes(notebook, version=4))
    clean["nbformat"], clean["nbformat_minor"] = 4, 5
    for cell in clean["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(clean, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def cell_id(cell: Cell) -> str:
    """Both the notebook's cell id and nbgrader's grade_id: "sizing-2" for sizing.2, as neither may hold a dot."""
    return ID_CHARACTERS.sub("-", cell.id)


def repository(root: Path = ROOT) -> str:
    """`owner/name` of the course's public repository, from pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["urls"]["Repository"].removeprefix("https://github.com/")


def _title_cell(lesson: Lesson, root: Path) -> NotebookNode:
    where = f"{repository(root)}/blob/main/notebooks/{lesson.folder}/{lesson.notebook}.ipynb"
    badge = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    text = f"# {lesson.number:02d} {lesson.title}\n\n{badge}(https://colab.research.google.com/github/{where})"
    return new_markdown_cell(text, id="title", metadata={"kvcourse": {"role": "text"}})


def _own_imports(source: str) -> str:
    """The script's own imports of its setup cell, below the template (which already brings kvcourse's names)."""
    lines = [line for line in source.splitlines() if "from kvcourse import" not in line and "__future__" not in line]
    text = "\n".join(lines).strip()
    return f"\n\n{text}" if text else ""


def _nbgrader_metadata(cell: Cell, tasks: dict) -> dict[str, Any] | None:
    base = {"schema_version": 3, "grade": False, "solution": False, "locked": True, "task": False}
    base["grade_id"] = cell_id(cell)
    if cell.role == "solution":
        return base | {"solution": True, "locked": False}
    if cell.role == "check":
        return base | {"grade": True, "points": tasks[cell.task].points}
    return base if cell.role in ("setup", "given") else None
