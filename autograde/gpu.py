"""The grader's GPU: kernels run in a process of its own, one launch at a time on this machine.

Kernels come here only when the CPU's properties of their task hold. Without a GPU their verdict is "not run": points
come from the CPU properties alone, so they are the same on every machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from autograde.agent import receive, send
from autograde.gpu_worker import READY, UNUSABLE
from kvcourse.check.gpu import NO_GPU, Size
from kvcourse.check.values import BadValue, pack, unpack
from kvcourse.cuda import CompileError, KernelError, LaunchError
from kvcourse.tasks.api import GpuUnavailable

SWITCH = "KVGRADE_GPU"  # in the environment, so that grading processes and nbgrader's own commands see it
CHOICES = ("auto", "off")
OFF = "the GPU was switched off for grading"
BUSY = "the GPU was in use by other submissions"
USED_UP = "the time on the GPU for one submission was used up"
START_SECONDS = 120.0  # torch and CUDA, on a slow disk
LAUNCH_SECONDS = 60.0
SUBMISSION_SECONDS = 300.0  # of waiting and launching together: a class gets its points in time
KINDS = {kind.__name__: kind for kind in (CompileError, LaunchError, KernelError)}
ROOT = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def switched(choice: str | None) -> Iterator[None]:
    """Grading processes that start within use a GPU or not; None: as the environment says."""
    before = os.environ.get(SWITCH)
    if choice is not None:
        os.environ[SWITCH] = choice
    try:
        yield
    finally:
        if choice is not None:
            os.environ.pop(SWITCH)
            os.environ.update({SWITCH: before} if before is not None else {})


def grading_gpu() -> GpuRunner | str:
    """This machine's GPU with the time of one submission, or why there is none.

    Imports torch, so ask only for a task that needs it.
    """
    if os.environ.get(SWITCH) == "off":
        return OFF
    import torch

    if not torch.cuda.is_available():
        return NO_GPU
    runner = _shared()
    runner.left = SUBMISSION_SECONDS
    return runner


class GpuRunner:
    """Launches kernels in a process that is started when first needed, and again after a kernel has broken it."""

    def __init__(
        self,
        device: str = "cuda",
        *,
        start_seconds: float = START_SECONDS,
        launch_seconds: float = LAUNCH_SECONDS,
        command: Sequence[str] = (sys.executable, "-P", "-m", "autograde.gpu_worker"),
        lock: Path | None = None,
    ) -> None:
        self.device, self.start_seconds, self.launch_seconds = device, start_seconds, launch_seconds
        self.command = command
        self.lock = lock or Path(tempfile.gettempdir()) / f"kvgrade-gpu-{os.getuid()}.lock"
        self.unusable = ""  # once it could not be started, the next task need not wait for it again
        self.left = float("inf")  # seconds of waiting and launching for this submission
        self._process: subprocess.Popen | None = None
        self._link: socket.socket | None = None
        self._stuck: set[bytes] = set()  # kernels that did not come back

    def launch(
        self,
        source: str,
        name: str,
        template: str | None,
        grid: Size,
        block: Size,
        arguments: Sequence[Any],
        shared: int = 0,
    ) -> list[Any]:
        """See `Launcher` in kvcourse/check/gpu.py."""
        kernel = hashlib.sha256(f"{name}\0{template}\0{source}".encode("utf-8", "replace")).digest()
        if kernel in self._stuck:
            raise KernelError(f"{name} did not come back from a launch before this one.")
        packed, buffers = pack([source, name, template, grid, block, list(arguments), shared])
        with self._turn():
            link = self._started()
            try:
                link.settimeout(self.launch_seconds)
                send(link, packed, buffers)
                frame = receive(link, time.monotonic() + self.launch_seconds)
            except TimeoutError:
                self._stuck.add(kernel)
                self.close()
                raise KernelError(
                    f"{name} did not come back within {self.launch_seconds:g} s: "
                    "is there a loop that never ends, or a barrier that not all threads reach?"
                ) from None
            except (OSError, BadValue, MemoryError):
                frame = None
            if frame is None:
                self.close()
                raise KernelError(f"{name} ended the process that launched it.")
            return self._result(*frame)

    def close(self) -> None:
        """End the process; the next launch starts another."""
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._link = self._process = None

    def _result(self, answer: Any, buffers: list) -> list[Any]:
        kind, body = answer
        if kind == "ok":
            return unpack(body, buffers)
        if kind in ("KernelError", UNUSABLE):
            self.close()  # what comes after a fault in the same process would fail, too
        raise GpuUnavailable(body) if kind == UNUSABLE else KINDS[kind](body)

    def _started(self) -> socket.socket:
        """The way to a process that is ready; GpuUnavailable when there is none."""
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it ended between two launches, so no kernel is to blame
        if self._link is None and not self.unusable:
            self.unusable = self._start()
        if self.unusable:
            self.close()
            raise GpuUnavailable(self.unusable)
        assert self._link is not None
        return self._link

    def _start(self) -> str:
        """Start the process; "" when it is ready, else what went wrong."""
        self._link, theirs = socket.socketpair()
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [*self.command, str(theirs.fileno()), self.device],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            )
        try:
            frame = receive(self._link, time.monotonic() + self.start_seconds)
        except TimeoutError:
            return f"the GPU was not ready within {self.start_seconds:g} s"
        except (OSError, BadValue):
            frame = None
        if frame is None:
            return "the process for the GPU ended while it started; see the log"
        kind, problem = frame[0]
        assert kind in (READY, UNUSABLE)
        return problem

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the machine's GPU for one launch; grading processes take turns."""
        import fcntl

        if self.left <= 0:
            raise GpuUnavailable(USED_UP)
        began = time.monotonic()
        number = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() - began > self.left:
                        raise GpuUnavailable(BUSY) from None
                    time.sleep(0.02)
            yield
        finally:
            os.close(number)
            self.left -= time.monotonic() - began


@cache
def _shared() -> GpuRunner:
    """One for all submissions of this process: starting it takes seconds."""
    import atexit

    runner = GpuRunner()
    atexit.register(runner.close)
    return runner
