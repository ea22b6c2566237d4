"""Limits on the processes that hold a learner's code, and the hook for a sandbox around them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO

from kvcourse.cuda.errors import KernelError

USED_UP = "It was not run: the time for the kernels of this task was used up by the launches before it."


@dataclass(eq=False)
class Budget:
    """Seconds on the clock for all that launches and compilations under it take together."""

    left: float


@dataclass(frozen=True)
class Limits:
    """What one launch, and one compilation, may use.

    `prefix` goes in front of the command that runs a kernel, `compile_prefix` in front of the compiler: for example a
    bubblewrap command line. The first needs to read the cache folder, the second to write it.
    """

    seconds: float = 10.0  # processor time of a launch; on the clock it may take three times as long
    memory: int = 4 << 30  # bytes
    compile_seconds: float = 30.0
    prefix: tuple[str, ...] = ()
    compile_prefix: tuple[str, ...] = ()
    budget: Budget | None = None

    @contextlib.contextmanager
    def charged(self) -> Iterator[Limits]:
        """The limits cut to what is left of the budget, which pays until the end; KernelError when nothing is."""
        if self.budget is None:
            yield self
            return
        left, began = self.budget.left, time.monotonic()
        if left <= 0:
            raise KernelError(USED_UP)
        try:
            yield replace(self, seconds=min(self.seconds, left), compile_seconds=min(self.compile_seconds, left))
        finally:
            self.budget.left -= time.monotonic() - began


_default = Limits()


def default_limits() -> Limits:
    return _default


def set_limits(limits: Limits | None = None, **changes: object) -> Limits:
    """The limits of every later launch, as a whole or with single fields changed; gives back those before."""
    global _default
    before, _default = _default, limits or replace(_default, **changes)  # type: ignore[arg-type]
    return before


def start(
    command: Sequence[str], limits: Limits, *, address_space: bool, **options: IO | int | str | None
) -> subprocess.Popen:
    """Start `command` in a group of its own under memory, core and file limits.

    The shell sets the limits: between fork and exec Python code is not safe in a program with threads.
    """
    kilobytes = limits.memory >> 10
    # -d counts memory that can be written; a kernel's process reserves far more addresses than it uses
    memory = f"ulimit {'-v' if address_space else '-d'} {kilobytes}"
    script = f'ulimit -c 0; {memory}; exec "$@"'
    return subprocess.Popen(["/bin/sh", "-c", script, "sh", *command], start_new_session=True, **options)  # type: ignore[call-overload]
