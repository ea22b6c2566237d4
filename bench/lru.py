"""How fast the block-id oracles are, beside the Python and the C++ path of kvcache-simulator, in one run.

    python bench/lru.py            needs the Mooncake conversation trace (see kvcourse.workload.find_trace)
    pip install kvcache-simulator==0.1.3   adds the peer's rows; without it they are left out

A block event is one block id of one request. All rows replay the same 288,500 events; the result of each is checked.
Seconds are CPU seconds of one core, child processes included, so that neighbours on the machine matter little.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kvcourse.workload import FIFO, LRU, generate, load_trace, optimal, read_trace, replay_trace, truth
from kvcourse.workload.download import find_trace

CAPACITY = 10_000
REPEATS = 5
OUT = Path(__file__).parent / "results" / "lru.json"


def main() -> None:
    trace, want = load_trace("mooncake_conversation"), truth.CONVERSATION
    half, rows = len(trace) // 2, []
    best = optimal(trace)

    def measure(name: str, work: Callable[[], int], result: int, events: int = trace.blocks) -> None:
        seconds = min(_timed(work, result) for _ in range(REPEATS))
        rows.append(
            {"name": name, "seconds": round(seconds, 4), "million_events_per_second": round(events / seconds / 1e6, 2)}
        )
        print(f"{name:<44}{seconds:8.3f} s {rows[-1]['million_events_per_second']:7.2f} M block events/s", flush=True)

    def hits(cache) -> Callable[[], int]:
        return lambda: replay_trace(cache(CAPACITY), trace).hit_blocks

    measure("LRU", hits(LRU), want.lru_a[CAPACITY])
    measure("FIFO", hits(FIFO), want.fifo_a[CAPACITY])
    measure("Belady", hits(best), hits(best)())
    measure("LRU, 9 capacities", lambda: sum(replay_trace(LRU(c), trace).hit_blocks for c in truth.CAPACITIES),
            sum(want.lru_a[c] for c in truth.CAPACITIES), 9 * trace.blocks)  # fmt: skip
    for name, work, events in _peer(half):
        measure(name, work, want.last_half_lru[CAPACITY], events)
    measure("read the trace (gzip, JSON)", lambda: read_trace(find_trace("mooncake_conversation")).blocks, trace.blocks)
    measure("generate the default synthetic trace", lambda: generate().blocks, truth.GENERATED.blocks_a,
            truth.GENERATED.blocks_a)  # fmt: skip
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} shared cores, 1 used",
        "versions": {"python": platform.python_version(), "kvcache-simulator": _version("kvcache-simulator")},
        "capacity_blocks": CAPACITY,
        "seconds": f"CPU, best of {REPEATS}",
        "rows": rows,
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(result, indent=1) + "\n")


def _timed(work: Callable[[], int], want: int) -> float:
    start = _cpu()
    got = work()
    seconds = _cpu() - start
    assert got == want, f"{got} instead of {want}"
    return seconds


def _cpu() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in usage)


def _peer(half: int) -> list[tuple[str, Callable[[], int], int]]:
    """kvcache-simulator's own LRU on the same trace; its counts are tokens in the later half of the requests."""
    try:
        from kvcache_sim.cpp_backend import run_cpp_sweep
        from kvcache_sim.plan import build_execution_plan
        from kvcache_sim.policies import simulate_policy
        from kvcache_sim.trace import parse_trace_file
    except ImportError:
        print("kvcache-simulator is not installed: its rows are left out", file=sys.stderr)
        return []
    trace = parse_trace_file(find_trace("mooncake_conversation"), block_size=512)
    plan = build_execution_plan(trace, warmup_fraction=0.5)

    def native() -> int:
        swept = run_cpp_sweep(trace, capacities=[CAPACITY], policies=["lru"], warmup_requests=half, progress=None)
        return swept.results[("lru", CAPACITY)].hitTokens

    native()  # compiles
    return [
        ("kvcache-simulator, Python LRU", lambda: simulate_policy(plan, "lru", CAPACITY).hitTokens, len(trace.ids)),
        ("kvcache-simulator, C++ LRU and its plan", native, len(trace.ids)),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
