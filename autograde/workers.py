"""Long-lived worker processes, one job each at a time; a worker that dies takes only its own job along."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

DIED = "the grading process ended unexpectedly"
STUCK = "the grading process did not answer within {:.0f} s"
NO_START = "no grading process could be started; see the log"
START_SECONDS = 180.0
MAX_FAILED_STARTS = 3
READY = "ready"
TRIES = 2


@dataclass
class Lost:
    """In place of a result: what happened to the process."""

    reason: str


@dataclass
class _Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    since: float
    ready: bool = False
    job: int | None = None


def run_jobs(
    work: Callable[..., Any], jobs: list[tuple], workers: int, seconds: float, log: Path | None = None
) -> Iterator[tuple[int, Any]]:
    """(index of the job, what `work(*job)` gave, or Lost) as they end; a lost job is tried once more.

    `work` is a module-level function that gives plain data and raises nothing. What a worker prints goes to the file
    `log`. Closing the iterator ends the workers.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core a worker
    context = multiprocessing.get_context("spawn")
    waiting, left = deque(range(len(jobs))), len(jobs)
    attempts, failed_starts = [0] * len(jobs), 0
    pool = [_start(context, work, log) for _ in range(min(workers, len(jobs)))]
    try:
        while left and failed_starts < MAX_FAILED_STARTS:
            for worker in pool:
                if worker.ready and worker.job is None and waiting:
                    worker.job, worker.since = waiting.popleft(), time.monotonic()
                    attempts[worker.job] += 1
                    with contextlib.suppress(OSError):  # it has died already: seen below
                        worker.pipe.send(jobs[worker.job])
            for place, worker, answer in _answers(pool, seconds):
                job, worker.job = worker.job, None
                if answer == READY:
                    worker.ready, failed_starts = True, 0
                    continue
                if isinstance(answer, Lost):
                    failed_starts += not worker.ready
                    _stop([worker], at_once=True)
                    pool[place] = _start(context, work, log)
                    if job is not None and attempts[job] < TRIES:
                        waiting.append(job)
                        continue
                if job is not None:
                    left -= 1
                    yield job, answer
        yield from ((job, Lost(NO_START)) for job in waiting)
    finally:
        _stop(pool)


def default_workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _answers(pool: list[_Worker], seconds: float) -> Iterable[tuple[int, _Worker, Any]]:
    """What the workers sent, and Lost for those that died or are over their time."""
    ready = wait([worker.pipe for worker in pool], timeout=1.0)
    now = time.monotonic()
    for place, worker in enumerate(pool):
        limit = seconds if worker.ready else START_SECONDS
        if worker.pipe in ready:
            try:
                yield place, worker, worker.pipe.recv()
            except (EOFError, OSError):
                yield place, worker, Lost(DIED)
        elif (worker.job is not None or not worker.ready) and now - worker.since > limit:
            yield place, worker, Lost(STUCK.format(limit))


def _start(context: Any, work: Callable[..., Any], log: Path | None) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work, log))
    process.start()
    theirs.close()
    return _Worker(process, ours, time.monotonic())


def _serve(pipe: Connection, work: Callable[..., Any], log: Path | None) -> None:
    """The worker: answers jobs until its parent hangs up. Ctrl-C is for the parent to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # unwinds, so that the sandbox is removed
    if log is not None:
        with open(log, "ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(READY)
        while True:
            pipe.send(work(*pipe.recv()))


def _stop(pool: list[_Worker], at_once: bool = False) -> None:
    """Hang up on idle workers, which ends them; end the others."""
    for worker in pool:
        worker.pipe.close()
        if at_once or worker.job is not None or not worker.ready:
            worker.process.terminate()
    for worker in pool:
        worker.process.join(timeout=5.0)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
