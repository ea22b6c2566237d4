"""The kernels of a task as text: read once from the student's code, kept with the grade, shown to GPU tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvcourse.check.runner import Opens
from kvcourse.check.student import LocalStudent
from kvcourse.tasks.api import Interrupted, StudentError
from kvcourse.tasks.course import Task

MAX_SOURCE = 200_000  # characters
MAX_LINE = 1000
UNREAD = "the kernel's text could not be read from the notebook"


@dataclass(frozen=True)
class KeptKernel:
    """What a test sees of a kernel: the fields of kvcourse.cuda.Kernel that are text and number."""

    source: str
    first_line: int = 1


@dataclass
class KernelReader:
    """The kernels among a task's names, read when its CPU properties hold."""

    task: Task
    student: Opens
    sources: dict[str, str] = field(default_factory=dict)

    def read(self) -> Opens | str:
        """A student that has just these kernels; or why there is none."""
        try:
            with self.student.session() as view:
                found = {name: _source(getattr(view, name)) for name in self.task.names}
        except (StudentError, Interrupted):
            return UNREAD
        self.sources = {name: source for name, source in found.items() if source is not None}
        return kept_kernels(self.sources) if self.sources else UNREAD


def kept_kernels(sources: Mapping[str, str]) -> LocalStudent:
    """A student's names for GPU tests: kernels as text, nothing that runs here."""
    return LocalStudent({name: KeptKernel(source) for name, source in sources.items()})


def _source(value: Any) -> str | None:
    """The kernel's text with its lines counted as in the cell; None for what is no kernel or too long to keep."""
    text, line = value, 1
    if not isinstance(value, str):
        try:
            text, line = value.source, value.first_line
        except AttributeError:  # a function
            return None
    if not isinstance(text, str) or len(text) > MAX_SOURCE:
        return None
    return "\n" * (line - 1 if type(line) is int and 1 <= line <= MAX_LINE else 0) + text
