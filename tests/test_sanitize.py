"""Rebuilding a submission from the release: what students do to notebooks, and what a grader must make of it."""

from __future__ import annotations

import json

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell
from toy_release import DONE, IDS, RELEASE, handed_in, run, sanitised, solved, source, works


def test_untouched_and_solved_notebooks_need_no_notes():
    assert sanitised(handed_in()) == (RELEASE, [])
    rebuilt, notes = sanitised(solved())
    assert notes == [] and works(rebuilt)


def test_metadata_of_the_submission_is_not_believed():
    notebook = solved()
    for cell in notebook.cells:
        cell.metadata = {"tags": ["skip-execution"], "nbgrader": {"grade": True, "points": 100, "grade_id": cell.id}}
    notebook.metadata = {"kernelspec": {"name": "evil"}, "kvcourse": {"key": "mine"}}
    rebuilt, _ = sanitised(notebook)
    assert works(rebuilt) and rebuilt.metadata == RELEASE.metadata
    assert all("tags" not in cell.metadata for cell in rebuilt.cells)


def test_changed_locked_cells_are_restored_and_named():
    rebuilt, notes = sanitised(handed_in(toy_1="print('passed')", given_1="class Given:\n    cheat = True"))
    assert notes == ["changed locked cells were restored: given-1, toy-1"]
    assert run(rebuilt)["Given"].__dict__.get("cheat") is None


def test_imports_added_to_the_setup_cell_are_kept():
    changed = "import sys, math\n!pip install x\nfrom kvcourse import check, hint\nNUMBER = 3\nsys = None\nprint('hi')"
    rebuilt, notes = sanitised(handed_in(setup_1=changed))
    assert notes == ["changed locked cells were restored: setup-1"]
    assert source(rebuilt, "extra-setup-1") == "import math\nfrom kvcourse import hint\nNUMBER = 3"


CUDA = "%%cuda one\n__global__ void one(int* x, int n) {\n  x[0] = n\n  % uv;\n}"


def test_a_kernel_is_found_by_the_name_in_its_first_line_and_kept_as_it_is():
    for cell in (CUDA, CUDA.replace("one", '--template "float, 64" one', 1), 'one = Kernel("...", "one")'):
        notebook = handed_in()
        notebook.cells[IDS.index("toy-1-code")] = new_code_cell(cell)
        rebuilt, notes = sanitised(notebook)
        assert source(rebuilt, "toy-1-code") == cell
        assert notes == ["cells without their id were found by what they define: toy-1-code"]


@pytest.mark.parametrize("missing", [["toy-1"], ["toy-1", "toy-2", "setup-1", "given-1"], ["text-1", "demo-1"]])
def test_deleted_cells_are_put_back(missing):
    notebook = solved()
    notebook.cells = [cell for cell in notebook.cells if cell.id not in missing]
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt)
    named = [name for name in IDS if name in missing and not name.startswith(("text", "demo"))]
    assert notes == ([f"missing cells were put back: {', '.join(named)}"] if named else [])


def test_a_deleted_solution_is_named_and_stays_a_stub():
    notebook = solved()
    notebook.cells = [cell for cell in notebook.cells if cell.id != "toy-2-code-a"]
    rebuilt, notes = sanitised(notebook)
    assert "raise NotImplementedError" in source(rebuilt, "toy-2-code-a") and "toy-2-code-a" in notes[0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_a_copied_solution_the_one_with_work_is_taken(order):
    notebook = solved()
    at = IDS.index("toy-1-code")
    copy = nbformat.from_dict({**RELEASE.cells[at], "id": "new"})
    notebook.cells[at : at + 1] = [[notebook.cells[at], copy][i] for i in order]
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt)
    assert notes == ["toy-1-code: the cell is there 2 times; the one with work in it was taken"]


def test_of_two_worked_copies_the_last_counts_as_in_the_notebook():
    notebook = handed_in(toy_1_code="def one(x):\n    return -1")
    at = IDS.index("toy-1-code")
    notebook.cells.insert(
        at + 1, nbformat.from_dict({**notebook.cells[at], "id": "b", "source": DONE.format(name="one")})
    )
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt, "one") and "the last one counts" in notes[0]


def test_a_split_locked_cell_keeps_what_the_student_added():
    """Colab copies a cell's metadata when it is split in two."""
    notebook = solved()
    at = IDS.index("given-1")
    notebook.cells.insert(
        at + 1, nbformat.from_dict({**notebook.cells[at], "id": "b", "source": "def mine():\n    return 5"})
    )
    rebuilt, notes = sanitised(notebook)
    assert run(rebuilt)["mine"]() == 5 and "Given" in run(rebuilt) and notes == []


def test_copied_check_cells_are_dropped():
    notebook = solved()
    notebook.cells.insert(0, nbformat.from_dict({**RELEASE.cells[IDS.index("toy-1")], "id": "copy"}))
    assert len(sanitised(notebook)[0].cells) == len(IDS)


@pytest.mark.parametrize("edited", [False, True])
def test_all_metadata_and_ids_lost(edited):
    notebook = solved()
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = {}, f"x{number}"
    if edited:
        notebook.cells[IDS.index("toy-1")].source = 'check( "toy.1" )  # mine'
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt)
    assert notes[0] == "cells without their id were found by what they define: toy-1-code, toy-2-code-a, toy-2-code-b"
    assert source(rebuilt, "toy-1-code") == DONE.format(name="one")


def test_swapped_ids_are_matched_by_content():
    notebook = solved()
    one, two = (notebook.cells[IDS.index(name)] for name in ("toy-1-code", "toy-2-code-a"))
    one.metadata, two.metadata, one.id, two.id = two.metadata, one.metadata, two.id, one.id
    checks = [notebook.cells[IDS.index(name)] for name in ("toy-1", "toy-2")]
    checks[0].metadata, checks[1].metadata = checks[1].metadata, checks[0].metadata
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt) and source(rebuilt, "toy-1-code") == DONE.format(name="one")
    assert notes[0].startswith("cell ids were mixed up")


def test_cells_moved_about_come_back_in_order():
    notebook = solved()
    notebook.cells.reverse()
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt) and notes == [] and len(rebuilt.cells) == len(IDS)


def test_a_function_written_in_a_cell_of_its_own():
    notebook = handed_in()
    at = IDS.index("toy-1-code")
    notebook.cells.insert(at, new_code_cell(DONE.format(name="one"), id="own"))  # above the stub, which would undo it
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt, "one") and "found by what they define: toy-1-code" in notes[0]


def test_several_functions_written_in_one_cell():
    both = DONE.format(name="one") + "\n\n" + DONE.format(name="two") + "\n\nclass More(Given):\n    pass"
    notebook = handed_in()
    notebook.cells.insert(IDS.index("demo-1"), new_code_cell(both, id="own"))
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt, "one", "two") and "More" in run(rebuilt)
    assert "toy-1-code, toy-2-code-a" in notes[0]


def test_a_syntax_error_hides_nothing():
    notebook = handed_in(toy_1_code="def one(x:\n    return x", toy_2_code_a=DONE.format(name="two"))
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = {}, f"x{number}"
    rebuilt, _ = sanitised(notebook)
    assert source(rebuilt, "toy-1-code").startswith("def one(x:") and works(rebuilt, "two")


def test_own_cells_stay_beside_their_neighbours():
    notebook = solved()
    notebook.cells[IDS.index("toy-2-code-a")].source = "K = helper(3)\ndef two(x):\n    return x + K - 3"
    notebook.cells.insert(IDS.index("toy-2-code-a"), new_code_cell("def helper(x):\n    return x", id="h"))
    notebook.cells.insert(IDS.index("toy-1"), new_markdown_cell("my own words", id="m"))
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt) and notes == []
    order = [cell.source for cell in rebuilt.cells]
    assert order.index("my own words") == order.index(DONE.format(name="one")) + 1


def test_own_cells_come_before_the_solution_that_follows_them_also_when_moved():
    notebook = solved()
    moved = notebook.cells.pop(IDS.index("toy-2-code-b"))
    helper = new_code_cell("BASE = 0", id="h")
    notebook.cells[IDS.index("toy-1-code")].source = "B = BASE\ndef one(x):\n    return x + B"
    at = IDS.index("toy-1-code")
    notebook.cells[at:at] = [moved, helper]
    assert works(sanitised(notebook)[0])


def test_a_changed_demo_is_the_students_own_cell_and_an_unchanged_one_stays_a_demo():
    demo = next(c for c in sanitised(handed_in(demo_1="print(one(2))"))[0].cells if c.id == "demo-1")
    assert demo.source == "print(one(2))" and demo.metadata.kvcourse.role == "extra"
    assert next(c for c in sanitised(handed_in())[0].cells if c.id == "demo-1").metadata.kvcourse.role == "demo"


def test_install_lines_are_not_run():
    notebook = handed_in(toy_1_code=f"%pip install numpy\n{DONE.format(name='one')}")
    notebook.cells.append(new_code_cell("if True:\n    !pip3 install torch", id="p"))
    rebuilt, notes = sanitised(notebook)
    assert works(rebuilt, "one") and notes == ["install lines were left out: %pip install numpy; !pip3 install torch"]
    exec(rebuilt.cells[-1].source, {})


def test_rebuilding_twice_changes_nothing():
    notebook = solved()
    notebook.cells.insert(3, new_code_cell("HELP = 1", id="h"))
    notebook.cells[IDS.index("toy-1")].source = "import os"
    once, _ = sanitised(notebook)
    twice, _ = sanitised(once)
    assert [cell.source for cell in twice.cells] == [cell.source for cell in once.cells]


@given(data=st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_whatever_is_done_to_a_notebook_the_spine_stands_and_work_counts(data):
    """Cells moved, copied, deleted, stripped of ids or metadata: what is still there works, and nothing raises."""
    notebook, lost = solved(), set()
    cells = list(data.draw(st.permutations(notebook.cells)))
    for cell in list(cells):
        what = data.draw(
            st.sampled_from(["keep", "keep", "keep", "delete", "copy", "no metadata", "no ids", "garbage"])
        )
        if what == "delete":
            cells.remove(cell)
            lost.add(cell.id)
        elif what == "copy":
            cells.insert(data.draw(st.integers(0, len(cells))), nbformat.from_dict({**cell}))
        elif what in ("no metadata", "garbage"):
            cell.metadata = {"nbgrader": 7, "id": [1]} if what == "garbage" else {}
        elif what == "no ids":
            cell.metadata, cell.id = {}, "other"
    notebook.cells = cells
    raw = json.dumps(notebook).encode()
    rebuilt, _ = sanitised(raw) if cells else (RELEASE, [])
    names = {"toy-1-code": "one", "toy-2-code-a": "two", "toy-2-code-b": "three"}
    assert works(rebuilt, *(name for cell, name in names.items() if cell not in lost))
