"""Reading what was handed in as a notebook: Colab, old formats, missing keys, and what is no notebook."""

from __future__ import annotations

import json
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook
from toy_release import DONE, RELEASE, handed_in, sanitised, solved, works

from autograde.defines import added_definitions, defined_names
from autograde.reading import MAX_BYTES, Cell, Unreadable, read_cells
from autograde.sanitize import likeness, rebuild


def test_colab_saves_format_4_0_with_its_own_metadata():
    notebook = json.loads(nbformat.writes(solved()))
    notebook["nbformat_minor"] = 0
    notebook["metadata"] = {"colab": {"provenance": [], "toc_visible": True}, "accelerator": "GPU"}
    for cell in notebook["cells"]:
        cell["metadata"] |= {"id": cell.pop("id"), "colab_type": "code", "outputId": "1"}
    notebook["cells"].append({"cell_type": "code", "source": ["import math\n", "math.pi"], "metadata": {"id": "zz"}})
    rebuilt, notes = sanitised(json.dumps(notebook).encode())
    assert works(rebuilt) and rebuilt.cells[-1].source == "import math\nmath.pi"
    assert notes == []


def test_an_old_format_is_converted():
    old = nbformat.convert(solved(), 3)
    rebuilt, notes = sanitised(nbformat.writes(old, version=3).encode())
    assert works(rebuilt) and "old notebook format" in notes[0]


def test_missing_keys_are_filled_in():
    cells = [{"cell_type": "code", "source": DONE.format(name="one")}, {"cell_type": "code"}, "text", {"source": "x"}]
    rebuilt, notes = sanitised(json.dumps({"cells": cells}).encode())
    assert works(rebuilt, "one") and "structure were missing" in notes[0]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"[1, 2]", "not a notebook"),
        (b'{"a": 1}', "no list of cells"),
        (b'{"cells": []}', "no cells"),
        (b'{"nbformat": 9, "cells": []}', "unknown format"),
        (b'{"worksheets": [{"cells": 3}], "nbformat": 3}', "cannot be converted"),
        (json.dumps({"cells": [{"cell_type": "raw", "source": ""}] * 2001}).encode(), "2,001 cells"),
        (b" " * (MAX_BYTES + 1), "MB"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(raw, why):
    with pytest.raises(Unreadable, match=why):
        read_cells(raw)


def test_likeness_tells_work_from_stubs_and_strangers():
    def like(notebook: Any) -> tuple[int, int]:
        return likeness(read_cells(nbformat.writes(notebook).encode())[0], RELEASE)

    assert like(solved())[0] == 3 and like(handed_in())[0] == 0 and like(handed_in())[1] > 0
    stranger = new_notebook(cells=[new_code_cell("import sys", id="setup-1"), new_code_cell("1 + 1", id="given-1")])
    assert like(stranger) == (0, 0)
    bare = new_notebook(cells=[new_code_cell(DONE.format(name="three"))])
    assert like(bare) == (1, 1)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
    )
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_json_in_the_place_of_cells_is_read_or_refused(value):
    for entry in (value, [value], [{"cell_type": "code", "source": value, "metadata": value, "id": value}]):
        try:
            rebuild(read_cells(json.dumps({"cells": entry, "nbformat": 4}).encode())[0], RELEASE)
        except Unreadable:
            continue


def test_names_a_cell_defines():
    assert defined_names("x = 1\n@d\ndef f(): pass\nclass C: pass\nif 1:\n    def g(): pass") == {"f", "C"}
    assert defined_names("%time f()\n!ls\ndef f(): pass") == {"f"}
    assert defined_names("async def f(: pass\nclass D(") == {"f", "D"}
    assert defined_names("%%cuda paged_decode\nvoid f() {}") == {"paged_decode"}
    assert defined_names('%%cuda --template "float, 64" write_kv axpy\nvoid f() {}') == {"write_kv", "axpy"}
    assert defined_names('import cuda\naxpy = cuda.Kernel("", "axpy")\nb: Kernel = Kernel(c)') == {"axpy", "b"}
    assert defined_names('a = "__global__ void a() {}"\nb = "text"\nc, d = f(), g()') == {"a"}
    assert defined_names("%%bash\ndef") == frozenset()
    assert defined_names("(" * 100_000) == frozenset()


def test_added_definitions_keep_decorators_and_lose_what_the_release_has():
    given = "from typing import NamedTuple\nclass A: pass"
    mine = "from typing import NamedTuple, Any\nfrom dataclasses import dataclass\n"
    mine += "@dataclass\nclass B:\n    x: int\nclass A: y = 1"
    added = added_definitions(mine, given)
    assert added == "from typing import Any\nfrom dataclasses import dataclass\n@dataclass\nclass B:\n    x: int"
    assert added_definitions("def broken(", given) == ""


def test_cells_are_plain_data():
    cells, _ = read_cells(
        json.dumps({"cells": [{"cell_type": "code", "source": "a\r\nb\ud800", "metadata": 3}]}).encode()
    )
    assert cells == [Cell("code", "a\nb?")]
