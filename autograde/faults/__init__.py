"""Planted wrong solutions: each names the property that must catch it, so that the tests are tested.

A fault is a function under `@fault`, or a class of functions that belong together. Its source replaces names of the
reference solution; what it replaces stays within reach as `reference.<name>`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

Wrong = TypeVar("Wrong", bound=Callable)


@dataclass(frozen=True)
class Fault:
    """A mistake: its task, the property that must fail, where it was seen, and the code that makes it."""

    task: str
    caught_by: str
    why: str
    source: str
    code: str

    def plant(self, namespace: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the solution's namespace with this mistake in it."""
        planted = {"__name__": "fault", "reference": SimpleNamespace(**namespace), "edited": edited}
        planted |= {name: _rebound(value, planted) for name, value in namespace.items() if not name.startswith("__")}
        exec(compile(self.code, f"<{self.why}>", "exec"), planted)
        return planted


def fault(task: str, *, caught_by: str, why: str, source: str = "") -> Callable[[Wrong], Wrong]:
    """Mark a wrong solution. All arguments are plain strings: `load_faults` reads them from the file."""
    return lambda wrong: wrong


def load_faults(lesson: str) -> list[Fault]:
    """The faults of a lesson, from `<lesson>.py` and its parts `<lesson>_*.py`, in the order they are written.

    They are read, not imported: a module that defines the same function many times keeps only the last.
    """
    folder = Path(__file__).parent
    faults = []
    for path in [folder / f"{lesson}.py", *sorted(folder.glob(f"{lesson}_*.py"))]:
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            for mark in getattr(node, "decorator_list", []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "fault":
                    faults.append(Fault(**_arguments(mark), code=_code(text, node)))
    return faults


def edited(kernel: Any, old: str, new: str) -> str:
    """A kernel's source with one place changed, for faults in kernels; `kernel` is one, or the source of one."""
    source = kernel if isinstance(kernel, str) else kernel.source
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in the kernel"
    return source.replace(old, new)


def _rebound(value: Any, planted: dict[str, Any]) -> Any:
    """A function of the solution that looks its names up in the planted namespace, so that it calls the fault."""
    if not inspect.isfunction(value):
        return value
    copy = type(value)(value.__code__, planted, value.__name__, value.__defaults__, value.__closure__)
    copy.__kwdefaults__ = value.__kwdefaults__
    return copy


def _arguments(mark: ast.Call) -> dict[str, str]:
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in mark.keywords}
    return {"task": ast.literal_eval(mark.args[0]), "source": ""} | given


def _code(text: str, node: ast.stmt) -> str:
    """The source without its decorator; of a class, the functions in it."""
    first = node.body[0].lineno if isinstance(node, ast.ClassDef) else node.lineno
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
