"""A time limit on the learner's code in this process, so that an endless loop ends in a verdict."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kvcourse.tasks.api import Interrupted


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise Interrupted in the block after `seconds`; without alarm signals (Windows, threads) there is no limit."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: object) -> None:
        raise Interrupted(f"No answer after {seconds:g} s: is there a loop that never ends?")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
