"""The learner's code as tests see it: `student.name(...)` calls by value and keeps a log of the calls.

The same proxy serves two backends: `LocalBackend` (the notebook's own names, in process) and the grader's remote.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvcourse.check.limit import time_limit
from kvcourse.check.values import BadValue, pack, unpack
from kvcourse.tasks.api import Interrupted, MissingAttribute, NotStarted, StudentError
from kvcourse.tasks.show import show, show_call

KEEP_CALLS = 200
SECONDS_PER_PROPERTY = 20.0  # of waiting for the learner's code; what the test itself takes is not counted


class Backend(Protocol):
    """Where the learner's objects live. A target is a name (str) or a handle number (int)."""

    def names(self) -> list[str]: ...

    def call(self, target: str | int, attribute: str | None, args: tuple, kwargs: dict[str, Any]) -> Any: ...

    def get(self, target: str | int, attribute: str | None) -> Any: ...


@dataclass(frozen=True)
class Mark:
    """Stands for an object that stayed on the learner's side."""

    number: int
    type_name: str
    callable: bool = False


@dataclass
class Student:
    """The learner's names: functions are called, classes made, values read."""

    backend: Backend
    calls: list[tuple[str, str]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _wrap(self, self.backend.get(name, None), name)

    def _call(self, text_name: str, target: str | int, attribute: str | None, args: tuple, kwargs: dict) -> Any:
        text = show_call(text_name, args, kwargs)
        plain_args = tuple(_plain(arg) for arg in args)
        plain_kwargs = {key: _plain(value) for key, value in kwargs.items()}
        try:
            value = _wrap(self, self.backend.call(target, attribute, plain_args, plain_kwargs), text_name)
        except StudentError as error:
            self._log(text, str(error))
            if error.kind == "NotImplementedError":
                raise NotStarted(error.message) from None
            raise
        self._log(text, show(value))
        return value

    def _log(self, call: str, result: str) -> None:
        self.calls.append((call, result))
        del self.calls[:-KEEP_CALLS]


class Handle:
    """A learner's object that is no plain value: attributes, calls, length and items go to it; comparing raises."""

    def __init__(self, student: Student, mark: Mark, name: str) -> None:
        self.__dict__.update(_student=student, _mark=mark, _name=name)

    @property
    def __name__(self) -> str:
        return self._name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._student._call(self._name, self._mark.number, None, args, kwargs)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        student, mark = self._student, self._mark
        try:
            value = student.backend.get(mark.number, attribute)
        except StudentError as error:
            if error.kind == "AttributeError":
                raise MissingAttribute(error.kind, error.message, error.line) from None
            raise
        if isinstance(value, Mark) and value.callable:
            return Method(student, mark, f"{self._name}.{attribute}", attribute)
        return _wrap(student, value, f"{self._name}.{attribute}")

    def __len__(self) -> int:
        return self._student._call(f"len({self._name})", self._mark.number, "__len__", (), {})

    def __getitem__(self, key: Any) -> Any:
        return self._student._call(f"{self._name}.__getitem__", self._mark.number, "__getitem__", (key,), {})

    def __eq__(self, other: object) -> bool:
        raise TypeError(f"{self._name} is a {self._mark.type_name}, not a plain value: compare values")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError(f"{self._name} is a {self._mark.type_name}, not a plain value: compare values")

    def __repr__(self) -> str:
        return f"<{self._mark.type_name}>"


class Method(Handle):
    """A bound method of a handle."""

    def __init__(self, student: Student, mark: Mark, name: str, attribute: str) -> None:
        super().__init__(student, mark, name)
        self.__dict__["_attribute"] = attribute

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._student._call(self._name, self._mark.number, self._attribute, args, kwargs)


def _wrap(student: Student, value: Any, name: str) -> Any:
    """Marks become handles, also inside lists, tuples, dicts and records."""
    if isinstance(value, Mark):
        return Handle(student, value, name)
    if type(value) is list:
        return [_wrap(student, item, f"{name}[{i}]") for i, item in enumerate(value)]
    if type(value) is tuple:
        return tuple(_wrap(student, item, f"{name}[{i}]") for i, item in enumerate(value))
    if type(value) is dict:
        return {key: _wrap(student, item, f"{name}[{key!r}]") for key, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    """A handle given back as an argument travels as its mark."""
    return value._mark if isinstance(value, Handle) else value


@dataclass
class LocalBackend:
    """The learner's names in this process; arguments and results are copied as if they had travelled."""

    namespace: Mapping[str, Any]
    kept: list[Any] = field(default_factory=list)
    left: float = field(default_factory=lambda: SECONDS_PER_PROPERTY)

    def names(self) -> list[str]:
        return [name for name in self.namespace if not name.startswith("_")]

    def get(self, target: str | int, attribute: str | None) -> Any:
        return self._out(self._find(target, attribute))

    def call(self, target: str | int, attribute: str | None, args: tuple, kwargs: dict[str, Any]) -> Any:
        function = self._find(target, attribute)
        own_args = tuple(self._in(arg) for arg in args)
        own_kwargs = {key: self._in(value) for key, value in kwargs.items()}
        began = time.monotonic()
        try:
            with time_limit(max(self.left, 0.01)):
                result = function(*own_args, **own_kwargs)
        except (KeyboardInterrupt, Interrupted):
            raise
        except BaseException as error:
            raise student_error(error) from None
        finally:
            self.left -= time.monotonic() - began
        write_back(args, own_args)
        return self._out(result)

    def _find(self, target: str | int, attribute: str | None) -> Any:
        if isinstance(target, str):
            if target not in self.namespace:
                raise StudentError("NameError", f"{target} is not defined")
            found = self.namespace[target]
        else:
            found = self.kept[target]
        if attribute is None:
            return found
        try:
            return getattr(found, attribute)
        except AttributeError as error:
            raise StudentError("AttributeError", str(error)) from None

    def _in(self, value: Any) -> Any:
        if isinstance(value, Mark):
            return self.kept[value.number]
        data, buffers = pack(value, keep=lambda item: item)  # configs are rebuilt, test doubles pass as they are
        return unpack(data, buffers, handle=lambda item: item, rebuild=True)

    def _out(self, value: Any) -> Any:
        try:
            data, buffers = pack(value, keep=self._keep)
        except (BadValue, RecursionError) as error:
            raise StudentError("BadValue", f"the result cannot be read: {error}") from None
        return unpack(data, buffers, handle=lambda mark: Mark(*mark))

    def _keep(self, value: Any) -> list:
        self.kept.append(value)
        return [len(self.kept) - 1, type(value).__name__, callable(value)]


class LocalStudent:
    """Opens sessions on a namespace of this process: one session a property."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self.namespace = namespace

    def names(self) -> list[str]:
        return LocalBackend(self.namespace).names()

    @contextmanager
    def session(self) -> Iterator[Student]:
        yield Student(LocalBackend(self.namespace))


def student_error(error: BaseException) -> StudentError:
    """The learner's exception as kind, message and the line inside the cell that raised it."""
    if isinstance(error, StudentError):
        return error
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "ipykernel" in f.filename or "<ipython" in f.filename
    ]
    return StudentError(type(error).__name__, str(error)[:500], frames[-1].lineno if frames else None)


def write_back(originals: tuple, copies: tuple) -> None:
    """In-place changes of arrays, tensors and lists come back to the caller, as in an ordinary call."""
    for original, copy in zip(originals, copies, strict=True):
        if type(original) is list and type(copy) is list:
            original[:] = copy
        elif hasattr(original, "copy_") and original.shape == copy.shape:
            original.copy_(copy)
        elif type(original).__name__ == "ndarray" and original.shape == copy.shape:
            original[...] = copy
