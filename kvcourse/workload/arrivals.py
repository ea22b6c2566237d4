"""When requests come: evenly, at random, in bursts, or as a trace recorded it. Times are seconds from the start.

Burstiness is the coefficient of variation (CV) of the gaps between arrivals: 0 is a metronome, 1 is Poisson, and
Azure's code trace of 2023 has 13.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice, pairwise
from random import Random

from kvcourse.workload.trace import Trace

EVEN, MOST_BURSTY = 1e-6, 1000  # CVs: below the first all gaps are equal


def poisson_arrivals(count: int, rate: float, seed: int = 0) -> list[float]:
    """`count` arrivals at `rate` a second, each independent of the others (CV 1)."""
    return gamma_arrivals(count, rate, 1.0, seed)


def gamma_arrivals(count: int, rate: float, cv: float, seed: int = 0) -> list[float]:
    """`count` arrivals at `rate` a second whose gaps are gamma distributed with the given CV."""
    return list(islice(accumulate(gaps(rate, cv, Random(seed))), count))


def gaps(rate: float, cv: float, rng: Random) -> Iterator[float]:
    """Endless gaps with mean 1/rate and standard deviation cv/rate; ValueError unless rate > 0 and 0 <= cv <= 1000."""
    if not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"rate {rate!r} is not a positive number of requests a second")
    if not 0 <= cv <= MOST_BURSTY:
        raise ValueError(f"cv {cv!r} is not a number from 0 to {MOST_BURSTY}")
    while True:
        yield rng.gammavariate(1 / cv**2, cv**2 / rate) if cv > EVEN else 1 / rate


def replayed_arrivals(trace: Trace, speed: float = 1.0) -> list[float]:
    """The trace's own arrivals, in order and from 0, `speed` times as fast."""
    if not (math.isfinite(speed) and speed > 0):
        raise ValueError(f"speed {speed!r} is not a positive number")
    times = sorted(request.arrival for request in trace)
    return [(time - times[0]) / speed for time in times]


def with_arrivals(trace: Trace, times: Sequence[float]) -> Trace:
    """The same requests at other times: the n-th request of the trace comes at `times[n]`."""
    if len(times) != len(trace):
        raise ValueError(f"{len(times)} arrivals for {len(trace)} requests")
    moved = (replace(request, arrival=time) for request, time in zip(trace, times, strict=True))
    return replace(trace, requests=tuple(moved))


def gap_cv(times: Sequence[float]) -> float:
    """The CV of the gaps between these arrivals (in order); nan for fewer than two gaps or when all come at once."""
    steps = [later - earlier for earlier, later in pairwise(times)]
    if len(steps) < 2 or times[-1] == times[0]:
        return math.nan
    mean = math.fsum(steps) / len(steps)
    return math.sqrt(math.fsum((step - mean) ** 2 for step in steps) / len(steps)) / mean
