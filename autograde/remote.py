"""The student's functions as the tests see them in the grader: calls by value into the student's kernel.

Nothing that arrives is believed: it is read by `unpack` with limits on size and time, never evaluated, and never
unpickled. What goes wrong on the student's side becomes a StudentError (an exception, an answer that cannot be read) or
an Interrupted (no answer in time, the end of its process).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autograde.agent import receive, send
from autograde.limits import Limits
from autograde.link import Link
from kvcourse.check.student import SECONDS_PER_PROPERTY, Mark, Student, write_back
from kvcourse.check.values import BadValue, pack, unpack
from kvcourse.tasks.api import Interrupted, StudentError

WARM_SECONDS = 60.0  # imports of large packages
ENDED = "Your code ended its process (os._exit, a crash or out of memory)."
USED_UP = "Not called: the time for this task was used up by the calls before it."
TEXT = 500  # characters of an error's message
NAMES = 5000  # that a notebook may define, each at most 100 characters


class RemoteStudent:
    """The student's code for the tests of one task; every session is a process of its own."""

    def __init__(self, link: Link, limits: Limits) -> None:
        self.link, self.limits = link, limits
        self.left = limits.task_seconds  # of waiting for the student's code

    def names(self) -> list[str]:
        if self.link.known is None:
            with self.session() as student:
                assert isinstance(student.backend, RemoteBackend)
                try:
                    self.link.known = student.backend.names()
                except (StudentError, Interrupted):
                    self.link.known = []
        return self.link.known

    @contextmanager
    def session(self) -> Iterator[Student]:
        before = self.link.opening
        link = self.link.open()
        self.left -= self.link.opening - before
        backend = RemoteBackend(self, link)
        try:
            yield Student(backend)
        finally:
            backend.close()


class RemoteBackend:
    """One property's calls; see `Backend` in kvcourse/check/student.py."""

    def __init__(self, student: RemoteStudent, link: socket.socket | None) -> None:
        self.student, self.link = student, link
        self.closed = ENDED
        self.left = SECONDS_PER_PROPERTY  # of waiting: what the test and its imports take is not the student's
        self.called = False
        self.asked: list[dict[str, Any]] = []  # what was read before the first call, to read it again

    def names(self) -> list[str]:
        names = self._ask({"op": "names"}, [])
        names = names if type(names) is list else []
        return [name for name in names if type(name) is str and len(name) <= 100][:NAMES]

    def get(self, target: str | int, attribute: str | None) -> Any:
        ask = {"op": "get", "target": target, "attribute": attribute}
        self.asked.append(ask)
        return self._ask(ask, [])

    def call(self, target: str | int, attribute: str | None, args: tuple, kwargs: dict[str, Any]) -> Any:
        packed, buffers = pack([[_outgoing(a) for a in args], {k: _outgoing(v) for k, v in kwargs.items()}], _handle)
        self._warm(packed, buffers)
        ask = {"op": "call", "target": target, "attribute": attribute, "args": packed}
        answer = self._ask(ask, buffers)
        try:
            result, changed = answer
            originals, copies = zip(*((args[i], copy) for i, copy in changed), strict=True) if changed else ((), ())
            write_back(originals, copies)
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError):
            raise StudentError("BadValue", "the result cannot be read") from None
        return result

    def close(self) -> None:
        if self.link is not None:
            self.link.close()
        self.link = None

    def _warm(self, args: Any, buffers: list[bytes]) -> None:
        """Imports for arguments of a new kind are the course's time, not the function's; they happen once.

        They happen in the process that forks, before the first call; then a fresh child has them.
        """
        if self.called:
            return
        self.called, began = True, time.monotonic()
        if self.student.link.warm(args, buffers, min(WARM_SECONDS, max(self.student.left, 0.1))):
            self.close()
            self.link = self.student.link.fork()
            for ask in self.asked:
                self._ask(ask, [])
        took = time.monotonic() - began
        self.student.left -= took

    def _ask(self, ask: dict[str, Any], buffers: list[bytes]) -> Any:
        """The value of one answer."""
        if self.student.left <= 0:
            raise Interrupted(USED_UP)
        if self.link is None:
            raise Interrupted(self.closed)
        began = time.monotonic()
        seconds = min(self.student.limits.call_seconds, self.student.left, self.left)
        try:
            self.link.settimeout(max(seconds, 1e-3))
            send(self.link, ask, buffers)
            frame = receive(self.link, began + seconds, limited=True)
        except TimeoutError:
            self.closed = f"No answer after {max(seconds, 0):.3g} s: is there a loop that never ends?"
            self.close()
            raise Interrupted(self.closed) from None
        except OSError:
            frame = None
        except (BadValue, MemoryError) as error:
            self.close()
            raise StudentError("BadValue", f"the result cannot be read: {error}") from None
        finally:
            took = time.monotonic() - began
            self.left -= took
            self.student.left -= took
        if frame is None:
            self.close()
            raise Interrupted(ENDED)
        return _incoming(*frame)


class _Handle:
    """A handle on its way back to the student's side."""

    def __init__(self, number: int) -> None:
        self.number = number


def _outgoing(value: Any) -> Any:
    return _Handle(value.number) if isinstance(value, Mark) else value


def _handle(value: Any) -> int:
    if isinstance(value, _Handle):
        return value.number
    raise TypeError(f"a test passes a {type(value).__name__} to the student: pass plain values")


def _incoming(answer: Any, buffers: list[bytes]) -> Any:
    """The value of an answer; what does not follow the rules is a StudentError."""
    try:
        if type(answer) is dict and answer.keys() == {"error"}:
            kind, message, line = answer["error"]
            line = line if type(line) is int and 0 < line < 10**6 else None
            raise StudentError(_text(kind, 100), _text(message, TEXT), line)
        if type(answer) is dict and answer.keys() == {"ok"}:
            return unpack(answer["ok"], buffers, handle=_mark)
    except (BadValue, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise StudentError("BadValue", f"the result cannot be read: {_text(str(error), TEXT)}") from None
    raise StudentError("BadValue", "the result cannot be read")


def _mark(body: Any) -> Mark:
    number, kind, callable_ = body
    if type(number) is not int or number < 0 or type(kind) is not str or type(callable_) is not bool:
        raise BadValue("a broken handle")
    return Mark(number, _text(kind, 100), callable_)


def _text(value: Any, limit: int) -> str:
    return value[:limit].encode("utf-8", "replace").decode() if type(value) is str else ""
