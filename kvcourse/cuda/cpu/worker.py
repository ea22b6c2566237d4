"""The processes that kernels run in.

One process a compiled kernel stays alive between launches and forks for each, so launches start in a millisecond and
always from the same state. A launch that does not come back costs its process, nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from kvcourse.cuda.cpu.limits import Limits, start
from kvcourse.cuda.errors import KernelError

MOST_WORKERS = 8
LONGEST_REPLY = 64 << 20  # bytes of JSON


@dataclass(frozen=True)
class Memory:
    """A stretch of memory that one or more tensors of a launch lie in; a kernel sees it as one buffer."""

    name: str
    start: int
    size: int
    lead: int  # bytes from the last multiple of 512 to its start, as the tensor's storage has it
    writes: bool
    unset: bool
    before: int = 0  # bytes of a huge array that the kernel believes to lie ahead of it (see Slice)

    def view(self) -> memoryview:
        return memoryview((ctypes.c_ubyte * self.size).from_address(self.start)).cast("B")


_workers: OrderedDict[tuple[str, ...], Worker] = OrderedDict()
_lock = threading.RLock()


def ask(command: list[str], request: bytes, memories: list[Memory], limits: Limits) -> dict[str, Any]:
    """Send a launch to the process of `command`, started if need be; gives its reply (see reply.h).

    Memory that the kernel may write is changed in place. KernelError when the process ends or takes too long.
    """
    key = (*command, str(limits.memory))
    with _lock:
        worker = _workers.pop(key, None)
        if worker is None or not worker.alive:
            worker = Worker(command, limits)
        _workers[key] = worker
        while len(_workers) > MOST_WORKERS:
            _workers.popitem(last=False)[1].close()
        return worker.ask(request, memories, limits)


def close_workers() -> None:
    """End every process."""
    with _lock:
        while _workers:
            _workers.popitem()[1].close()


atexit.register(close_workers)


class Worker:
    """The process that holds one compiled kernel."""

    def __init__(self, command: list[str], limits: Limits) -> None:
        self.owner = os.getpid()
        self.process = start(
            command,
            limits,
            address_space=False,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.to, self.back = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.to, False)
        os.set_blocking(self.back, False)

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def ask(self, request: bytes, memories: list[Memory], limits: Limits) -> dict[str, Any]:
        """One launch; KernelError when the process ends or takes too long."""
        deadline = time.monotonic() + 3 * limits.seconds + 5
        try:
            with contextlib.suppress(BrokenPipeError):  # refused before all was sent: the reply says why
                self._send([memoryview(request), *(m.view() for m in memories if m.size)], deadline)
            length = int(self._line(deadline))
            assert length <= LONGEST_REPLY
            text = bytearray(length)
            self._receive(memoryview(text), deadline)
            reply = json.loads(text)
            if reply["error"]:
                raise KernelError(_refusal(reply["error"], limits))
            for memory in memories:
                if memory.writes and memory.size:
                    self._receive(memory.view(), deadline)
            return reply
        except TimeoutError:
            raise KernelError(
                f"The kernel did not come back within {3 * limits.seconds + 5:g} s and was stopped."
            ) from None
        except (EOFError, ValueError):
            raise KernelError(self._obituary(limits)) from None
        except BaseException:
            self.close()
            raise
        finally:
            if self.process.poll() is not None:
                self.close()

    def close(self) -> None:
        if self.owner != os.getpid():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _send(self, parts: list[memoryview], deadline: float) -> None:
        for part in parts:
            while part:
                _wait([], [self.to], deadline)
                with contextlib.suppress(BlockingIOError):
                    part = part[os.write(self.to, part) :]

    def _receive(self, into: memoryview, deadline: float) -> None:
        while into:
            _wait([self.back], [], deadline)
            with contextlib.suppress(BlockingIOError):
                count = os.readv(self.back, [into])
                if count == 0:
                    raise EOFError
                into = into[count:]

    def _line(self, deadline: float) -> bytes:
        line = bytearray()
        one = bytearray(1)
        while not line.endswith(b"\n"):
            self._receive(memoryview(one), deadline)
            line += one
            if len(line) > 20:
                raise ValueError("no length")
        return bytes(line)

    def _obituary(self, limits: Limits) -> str:
        self.process.stdin.close()  # type: ignore[union-attr]
        try:
            code = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL, 128 + signal.SIGABRT):
            return f"The kernel was stopped: it needed more than {limits.memory >> 20:,} MB of memory."
        if code > 128:
            return f"The kernel crashed ({signal.Signals(code - 128).name})."
        return f"The process that runs the kernel ended (code {code})."


def _wait(readable: list[int], writable: list[int], deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0 or not any(select.select(readable, writable, [], left)):
        raise TimeoutError


def _refusal(error: str, limits: Limits) -> str:
    if error == "out-of-memory":
        return f"The launch needs more than {limits.memory >> 20:,} MB of memory, or a tensor of more than 512 MB."
    return f"The runtime did not take the launch: {error}."
