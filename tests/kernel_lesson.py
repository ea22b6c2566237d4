"""A small lesson with CUDA kernels on which their grading is tested, so that no real lesson can break those tests."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
from nbformat.v4 import new_code_cell, new_notebook

from autograde.grade import Graded, Limits, grade_notebook
from kvcourse.tasks.api import Test, task, tests_of
from kvcourse.tasks.course import Lesson, Task
from kvcourse.tasks.kernel_kit import EVERY_ORDER, Problem, launch

HINTS = ("one", "two", "three")
LESSON = Lesson(
    1,
    "scales",
    "01_scales",
    "scales",
    "A small lesson with kernels",
    (
        Task("scales.1", "multiply by a number", 4.0, ("scale",), HINTS),
        Task("scales.2", "add one", 2.0, ("next_one",), HINTS),
        Task("scales.3", "add one by hand", 1.0, ("by_hand",), HINTS),
    ),
)
SCALE = """template <typename T>
__global__ void scale(T* out, const T* x, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (T)(a * (float)x[i]);
}"""
BODY = SCALE[SCALE.index("const int i") : SCALE.rindex("\n}")]
RIGHT = BODY.split("\n  ")[1]
NEXT = "__global__ void next_one(int* x) {\n  x[threadIdx.x] += 1;\n}"
HAND = "def by_hand(x):\n    return x + 1"
MAGIC = '%%cuda scale --template "float"\n'
CODE = {"scales.1": MAGIC + SCALE, "scales.2": f"%%cuda next_one\n{NEXT}", "scales.3": HAND}
STUB = SCALE[: SCALE.index("\n  const")] + '\n  // YOUR CODE HERE\n  #error "scales.1: multiply by a number"\n}'


def scaled(x: torch.Tensor, a: float, **changed: Any) -> Problem:
    arguments = {"out": torch.full_like(x, torch.nan), "x": x, "a": a, "n": len(x)}
    parameters, blocks = ("T*", "const T*", "float", "int"), (len(x) + 63) // 64
    problem = Problem(
        "scale", "float", blocks, 64, parameters, arguments, lambda: {"out": x.double() * a}, f"{len(x)} numbers",
        lambda name, at: f"{name}[{at[0]}]", empty=("out",),
    )  # fmt: skip
    return replace(problem, **changed)


@task("scales.1")
def test_one_block(student, rng):
    """Every number of a block is multiplied."""
    launch(student, scaled(torch.randn(64), rng.random()))


@task("scales.1")
def test_odd_lengths(student, rng):
    """Lengths that fill no block are right, in every order of threads."""
    launch(student, scaled(torch.randn(rng.randrange(65, 127)), 2.5), orders=EVERY_ORDER)


@task("scales.1")
def test_called_again(student):
    """The second launch is like the first."""
    for _ in range(2):
        launch(student, scaled(torch.randn(100), -1.0))


@task("scales.2")
def test_all_are_raised(student, rng):
    """Every number is one more."""
    x = torch.arange(32, dtype=torch.int32) + rng.randrange(100)
    where = lambda name, at: f"{name}[{at[0]}]"  # noqa: E731
    launch(student, Problem("next_one", None, 1, 32, ("int*",), {"x": x}, lambda: {"x": x + 1}, "32 numbers", where))


@task("scales.3")
def test_by_hand(student):
    """Python goes on beside the kernels."""
    assert student.by_hand(2) == 3


def scale_tests(about: Task) -> list[Test]:
    return tests_of(sys.modules[__name__], about.name, hidden=True)


def notebook(*extra: str, **code: str) -> Any:
    """The lesson's notebook; `scales_1=...` replaces the cell of a task."""
    cells = [_cell("setup-1", "from kvcourse import check\n\n%load_ext kvcourse.cuda", role="setup")]
    cells += [_cell(f"extra-{i}", source, role="given") for i, source in enumerate(extra)]
    for name, source in CODE.items():
        place = name.replace(".", "-")
        cells.append(_cell(f"{place}-code", code.get(name.replace(".", "_"), source), role="solution", task=name))
        cells.append(_cell(place, f'check("{name}")', role="check", task=name))
    return new_notebook(cells=cells)


def _cell(name: str, source: str, **about: str) -> Any:
    return new_code_cell(source, id=name, metadata={"kvcourse": about})


def grade(*extra: str, limits: Limits | None = None, level: str = "L2", **code: str) -> Graded:
    nb = notebook(*extra, **code)
    return grade_notebook(
        nb, LESSON, student_id="ann", seed=b"class", level=level, limits=limits or Limits(), tests=scale_tests,
        solution=dict, release=notebook(),
    )  # fmt: skip


def points(graded: Graded) -> dict[str, float]:
    return {about.name: about.points * (graded.tasks[about.name].fraction() or 0.0) for about in LESSON.tasks}


FULL = {"scales.1": 4.0, "scales.2": 2.0, "scales.3": 1.0}
OTHERS = {"scales.1": 0.0, "scales.2": 2.0, "scales.3": 1.0}
