"""How a test is written: `@task` names it, `expect` calls the learner's function and explains what went wrong.

A test is a plain function whose docstring's first line is the property in plain words. It sees values only, so the
same test serves the notebook (in process) and the grader (the learner's code in a sandbox, reached by value).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

from kvcourse.tasks.show import show, show_call

REFUSALS = ("ValueError", "TypeError")


class StudentError(Exception):
    """An exception inside the learner's code: `kind` is its class name, `line` the line of the cell if known."""

    def __init__(self, kind: str, message: str, line: int | None = None) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message, self.line = kind, message, line


class MissingAttribute(StudentError, AttributeError):
    """An attribute that the learner's object does not have."""


class NotStarted(Exception):
    """The learner's stub is still in place."""


class Interrupted(BaseException):
    """The learner's code did not come back (time limit, end of its process); no `except Exception` swallows this."""


class GpuUnavailable(BaseException):
    """The GPU cannot be used (none, busy, broken); says nothing about the learner's kernel, so nothing is judged."""


class Failure(AssertionError):
    """A property that does not hold, with the smallest example: call, expected, got, why, and what to try."""

    def __init__(self, call: str, expected: str, got: str, because: str = "", tip: str = "") -> None:
        super().__init__(f"{call}: expected {expected}, got {got}. {because}")
        self.call, self.expected, self.got, self.because, self.tip = call, expected, got, because, tip


@dataclass(frozen=True)
class Test:
    """One property of one task."""

    __test__ = False  # not a pytest class
    task: str
    fn: Callable[..., None]
    after: str | None = None
    weight: float = 1.0
    hidden: bool = False
    gpu: bool = False

    @property
    def name(self) -> str:
        return self.fn.__name__

    @property
    def title(self) -> str:
        return (self.fn.__doc__ or "").strip().splitlines()[0].strip()


def task(
    name: str, *, after: str | None = None, weight: float = 1.0, gpu: bool = False
) -> Callable[[Callable], Callable]:
    """Mark a test function as a property of task `name`; it counts only when the property `after` passed.

    With `gpu` it runs on a GPU, after all others and only if they hold: its verdict is shown beside the task's and
    carries no points. It reads the kernels' sources from `student`, and its fixture `gpu` has one method,
    `launch(source, name, template, grid, block, arguments, shared=0)`: see kvcourse/check/gpu.py.
    """

    def mark(fn: Callable[..., None]) -> Callable[..., None]:
        assert (fn.__doc__ or "").strip(), f"{fn.__name__} needs a docstring: the property in plain words"
        fn.kvcourse_test = Test(name, fn, after, weight, gpu=gpu)  # type: ignore[attr-defined]
        return fn

    return mark


def tests_of(module: ModuleType, name: str, hidden: bool = False) -> list[Test]:
    """The tests of task `name` in a module, in the order they are written."""
    marked = (getattr(value, "kvcourse_test", None) for value in vars(module).values())
    return [replace(t, hidden=hidden) for t in marked if t is not None and t.task == name]


def expect(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Expectation:
    """Call the learner's function now; say what should have come back with the methods of the result."""
    call = show_call(getattr(fn, "__name__", "function"), args, kwargs)
    try:
        return Expectation(call, value=fn(*args, **kwargs))
    except StudentError as error:
        return Expectation(call, error=error)


@dataclass
class Expectation:
    """What one call gave back: a value, or the error it raised."""

    call: str
    error: StudentError | None = None
    value: Any = field(default=None, repr=False)

    def equals(self, want: Any, because: str = "", tip: str = "") -> Any:
        """Exactly `want`: whole numbers must be ints, containers agree item by item."""
        problem = _difference(self._result(show(want), because, tip), want)
        if problem is not None:
            raise Failure(self.call, show(want), show(self.value), " ".join(filter(None, [problem, because])), tip)
        return self.value

    def close(self, want: Any, rtol: float = 1e-6, atol: float = 0.0, because: str = "", tip: str = "") -> Any:
        """Numbers, arrays or tensors within `atol + rtol * |want|`, of the same shape."""
        got = self._result(show(want), because, tip)
        problem = _distance(got, want, rtol, atol)
        if problem:
            raise Failure(self.call, show(want), show(got), " ".join(filter(None, [problem, because])), tip)
        return got

    def refused(self, naming: Iterable[str] = (), because: str = "", tip: str = "") -> None:
        """A ValueError or TypeError whose message names what is wrong."""
        naming = (naming,) if isinstance(naming, str) else tuple(naming)
        want = "a ValueError" + (f" that names {', '.join(naming)}" if naming else "")
        if self.error is None:
            raise Failure(self.call, want, show(self.value), because, tip)
        missing = [word for word in naming if word.lower() not in self.error.message.lower()]
        if self.error.kind not in REFUSALS or missing or not self.error.message:
            raise Failure(self.call, want, str(self.error), because, tip)

    def satisfies(self, predicate: Callable[[Any], bool], want: str, because: str = "", tip: str = "") -> Any:
        """Any condition on the value; `want` says it in words."""
        got = self._result(want, because, tip)
        try:
            holds = bool(predicate(got))
        except (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError):
            holds = False  # a value of the wrong kind is a wrong answer, not a broken test
        if not holds:
            raise Failure(self.call, want, show(got), because, tip)
        return got

    def _result(self, want: str, because: str, tip: str) -> Any:
        if self.error is not None:
            where = f" (line {self.error.line} of your cell)" if self.error.line else ""
            raise Failure(self.call, want, f"{self.error}{where}", because, tip)
        return self.value


def _difference(got: Any, want: Any) -> str | None:
    """None when equal, else a short reason ("" when the values speak for themselves)."""
    if isinstance(want, bool) or want is None or isinstance(want, str | bytes):
        return None if type(got) is type(want) and got == want else ""
    if isinstance(want, int):
        if type(got) is int:
            return None if got == want else ""
        return f"The result is a {type(got).__name__}; return a whole number (int)."
    if isinstance(want, float):
        return None if type(got) in (int, float) and (got == want or (math.isnan(got) and math.isnan(want))) else ""
    if isinstance(want, dict):
        if not isinstance(got, dict) or got.keys() != want.keys():
            return ""
        return _first(_difference(got[key], want[key]) for key in want)
    if hasattr(want, "shape"):
        return _distance(got, want, 0.0, 0.0) or None
    if isinstance(want, set | frozenset):
        return None if isinstance(got, set | frozenset) and got == want else ""
    got_items, want_items = _items(got), _items(want)
    assert want_items is not None, f"expect().equals cannot compare with {type(want).__name__}"
    if got_items is None:
        return f"The result is a {type(got).__name__}, not a list."
    if len(got_items) != len(want_items):
        return f"It has {len(got_items)} items instead of {len(want_items)}."
    return _first(_difference(a, b) for a, b in zip(got_items, want_items, strict=True))


def _items(value: Any) -> list | None:
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__") or hasattr(value, "shape"):
        return None
    return list(value)


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)


def _distance(got: Any, want: Any, rtol: float, atol: float) -> str:
    try:
        a, b = _numbers(got), _numbers(want)
    except (TypeError, ValueError):
        return f"The result is a {type(got).__name__}, not numbers."
    if a.shape != b.shape:
        return f"Its shape is {tuple(a.shape)} instead of {tuple(b.shape)}."
    near = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if near.all():
        return ""
    if a.ndim == 0:
        return "Too far off."
    at = tuple(int(i) for i in np.argwhere(~near)[0])
    return f"The first difference is at index {list(at)}: {a[at]:.6g} instead of {b[at]:.6g}."


def _numbers(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    array = np.asarray(value, dtype=np.float64)
    return array
