"""A small lesson with a kernel, on which the two verdicts are tested: a CPU property and properties for a GPU."""

from __future__ import annotations

import sys
from typing import Any

import torch
from nbformat.v4 import new_code_cell, new_notebook

from kvcourse.cuda import Kernel, KernelError
from kvcourse.tasks.api import GpuUnavailable, Test, expect, task, tests_of
from kvcourse.tasks.course import Lesson, Task

HINTS = ("one", "two", "three")
LESSON = Lesson(
    1,
    "small",
    "01_small",
    "small",
    "A lesson with a kernel",
    (
        Task("small.1", "double on a GPU", 2.0, ("double", "number"), HINTS),
        Task("small.2", "double a number", 3.0, ("twice",), HINTS),
    ),
)
TASK = LESSON.tasks[0]
GOOD = """__global__ void double_all(float* out, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i];
}
"""
FIRST_BLOCK = GOOD.replace("blockIdx.x * blockDim.x + ", "")  # right as long as one block does it all
WRONG = GOOD.replace("2.0f", "3.0f")


@task("small.1", gpu=True)
def test_many_blocks(student, gpu):
    """Several blocks share the work."""
    doubled(gpu, student.double.source, 50, because="blockIdx counts the blocks")


@task("small.1", gpu=True, after="test_many_blocks")
def test_nothing_else_is_written(student, gpu, rng):
    """Nothing behind the end is written."""
    doubled(gpu, student.double.source, rng.randrange(33, 64))


@task("small.1")
def test_one_block(student):
    """Every number is doubled."""
    x, out = torch.arange(5.0), torch.zeros(5)
    Kernel(student.double.source, "double_all", first_line=student.double.first_line).launch(1, 32, out, x, 5)
    assert out.tolist() == [0, 2, 4, 6, 8]


@task("small.1")
def test_number(student):
    """The other name of the task is no kernel."""
    expect(student.number, 1).equals(1)


@task("small.2")
def test_two(student):
    """Two becomes four."""
    expect(student.twice, 2).equals(4)


def doubled(gpu: Any, source: str, n: int, because: str = "") -> None:
    x, out = torch.arange(float(n)), torch.full((64,), -1.0)
    after = gpu.launch(source, "double_all", None, 2, 32, [out, x, n])
    assert after[2] is None and torch.equal(after[1], x) and out.tolist() == [-1.0] * 64, "the test keeps its tensors"
    want = torch.cat([2 * x, torch.full((64 - n,), -1.0)])
    expect(lambda: after[0]).equals(want, because=because)


class FakeGpu:
    """Says what a GPU would say, and counts."""

    def __init__(self, says: Any = None) -> None:
        self.says, self.launched = says, 0

    def launch(self, source: str, name: str, template: Any, grid: Any, block: Any, arguments: list, shared: int = 0):
        self.launched += 1
        if self.says is not None:
            raise self.says
        out, x, n = (a.clone() if isinstance(a, torch.Tensor) else a for a in arguments)
        out[:n] = 2 * x[:n]
        return [out, x, None]


BROKEN, FAULT = GpuUnavailable("the driver is gone"), KernelError("double_all failed on the GPU: illegal address")


class Given:
    """A kernel as a notebook has it."""

    def __init__(self, source: str = GOOD) -> None:
        self.source, self.first_line = source, 2


def names(source: str = GOOD) -> dict[str, Any]:
    return {"double": Given(source), "number": lambda x: x, "twice": lambda x: 2 * x}


def gpu_tests(about: Task) -> list[Test]:
    """All hidden, so that a GPU property would count if it could."""
    return tests_of(sys.modules[__name__], about.name, hidden=True)


def public_tests(*_: Any) -> list[Test]:
    """What `check` shows of the first task."""
    return [test for test in gpu_tests(TASK) if test.name != "test_nothing_else_is_written"]


def notebook(source: str = GOOD) -> Any:
    kernel = f"from kvcourse.cuda import Kernel\ndouble = Kernel({source!r}, 'double_all', first_line=2)"
    cells = {
        "small.1": f"{kernel}\ndef number(x):\n    return x",
        "small.2": "def twice(x):\n    return 2 * x",
    }
    return new_notebook(
        cells=[
            new_code_cell(code, id=name.replace(".", "-"), metadata={"kvcourse": {"role": "solution", "task": name}})
            for name, code in cells.items()
        ]
    )
