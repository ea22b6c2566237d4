"""A toy release of three functions, as nbgrader would make it, on which the teacher's side is tested."""

from __future__ import annotations

from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograde.reading import read_cells
from autograde.sanitize import rebuild

STUB = "def {name}(x):\n    # YOUR CODE HERE\n    raise NotImplementedError"
DONE = "def {name}(x):\n    return x"


def released(role: str, source: str, name: str, task: str = "") -> Any:
    about = {"role": role, **({"task": task} if task else {})}
    if role == "text":
        return new_markdown_cell(source, id=name, metadata={"kvcourse": about})
    cell = new_code_cell(source, id=name, metadata={"kvcourse": about})
    if role != "demo":
        graded, solved = role == "check", role == "solution"
        cell.metadata["nbgrader"] = {"grade": graded, "solution": solved, "locked": not solved, "grade_id": name}
        cell.metadata["nbgrader"] |= {"schema_version": 3, "task": False, **({"points": 2} if graded else {})}
    return cell


RELEASE = new_notebook(
    cells=[
        released("text", "# Toy", "title"),
        released("setup", "import sys\nfrom kvcourse import check", "setup-1"),
        released("given", "class Given:\n    pass", "given-1"),
        released("solution", STUB.format(name="one"), "toy-1-code", "toy.1"),
        released("check", 'check("toy.1")', "toy-1", "toy.1"),
        released("text", "Look:", "text-1"),
        released("demo", "print(one(1))", "demo-1"),
        released("solution", STUB.format(name="two"), "toy-2-code-a", "toy.2"),
        released("solution", STUB.format(name="three"), "toy-2-code-b", "toy.2"),
        released("check", 'check("toy.2")', "toy-2", "toy.2"),
    ],
    metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
)
IDS = [cell.id for cell in RELEASE.cells]


def handed_in(**sources: str) -> Any:
    """The release as a student saves it, with the named cells (`toy_1_code=...`) filled in."""
    notebook = nbformat.reads(nbformat.writes(RELEASE), as_version=4)
    for cell in notebook.cells:
        cell.source = sources.get(cell.id.replace("-", "_"), cell.source)
    return notebook


def solved() -> Any:
    names = {"toy_1_code": "one", "toy_2_code_a": "two", "toy_2_code_b": "three"}
    return handed_in(**{cell: DONE.format(name=name) for cell, name in names.items()})


def sanitised(notebook: Any) -> tuple[Any, list[str]]:
    cells, notes = read_cells(nbformat.writes(notebook).encode() if not isinstance(notebook, bytes) else notebook)
    rebuilt, more = rebuild(cells, RELEASE)
    nbformat.validate(rebuilt)
    assert [cell.id for cell in rebuilt.cells if cell.id in IDS] == IDS, "the release is the spine"
    for cell in rebuilt.cells:
        if cell.id in IDS:
            original = RELEASE.cells[IDS.index(cell.id)]
            assert cell.metadata.get("nbgrader") == original.metadata.get("nbgrader")
            if cell.metadata.kvcourse.role in ("setup", "given", "check"):
                assert cell.source == original.source
    return rebuilt, notes + more


def source(notebook: Any, name: str) -> str:
    return next(cell.source for cell in notebook.cells if cell.id == name)


def run(notebook: Any) -> dict[str, Any]:
    """The names that the student's cells leave behind, run in order, errors skipped as in a kernel."""
    names: dict[str, Any] = {"check": lambda task: None}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.metadata.kvcourse.role not in ("check", "setup"):
            try:
                exec(cell.source, names)
            except Exception:
                continue
    return names


def works(notebook: Any, *names: str) -> bool:
    found = run(notebook)
    return all(found[name](7) == 7 for name in names or ("one", "two", "three"))
