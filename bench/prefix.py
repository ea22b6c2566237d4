"""How fast the reference PrefixCache of lesson 2 replays a real trace, beside kvcache-simulator's Python path.

    python bench/prefix.py         needs the Mooncake conversation trace (see kvcourse.workload.find_trace)
    pip install kvcache-simulator==0.1.3   adds the peer's row; without it that row is left out

A block event is one block id of one request: 288,500 of them, at 10,000 blocks. Our cache sees tokens, one a block: it
hashes every block, counts users, evicts and publishes. The peer and the plain LRU see block ids. Seconds are CPU
seconds of one core; the rows are measured in turn and the best of several rounds counts, so that neighbours on the
machine matter little. The hits of every row are checked.
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

from autograde.sources import solution_namespace
from kvcourse.engine.reference import PrefixCache as EngineCache
from kvcourse.tasks.course import find_lesson
from kvcourse.workload import LRU, load_trace, replay_cache, replay_trace, truth
from kvcourse.workload.download import find_trace

CAPACITY = 10_000
ROUNDS = 9
OUT = Path(__file__).parent / "results" / "prefix.json"


def main() -> None:
    trace, want = load_trace("mooncake_conversation"), truth.CONVERSATION
    lesson = solution_namespace(find_lesson("prefix"))
    cache_class, block_keys = lesson["PrefixCache"], lesson["block_keys"]
    prompts = [list(request.block_ids) for request in trace]
    hits = want.engine_both_a[CAPACITY]

    def drive(cache) -> int:
        for number, tokens in enumerate(prompts):
            cache.allocate(number, tokens)
            cache.free(number)
        return cache.stats()["hit_tokens"]

    work: dict[str, tuple[Callable[[], int], int]] = {
        "PrefixCache of the lesson": (lambda: drive(cache_class(CAPACITY, 1)), hits),
        "the same, through replay_cache": (lambda: replay_cache(cache_class(CAPACITY, 1), trace).hit_blocks, hits),
        "its block keys alone": (lambda: sum(len(block_keys(tokens, 1)) for tokens in prompts), trace.blocks),
        "the engine's own PrefixCache": (lambda: drive(EngineCache(CAPACITY, 1)), hits),
        "plain LRU of block ids": (lambda: replay_trace(LRU(CAPACITY), trace).hit_blocks, want.lru_a[CAPACITY]),
        **_peer(want.last_half_lru[CAPACITY]),
    }
    seconds = dict.fromkeys(work, float("inf"))
    for _ in range(ROUNDS):
        for name, (call, result) in work.items():
            seconds[name] = min(seconds[name], _timed(call, result))
    rows = [
        {"name": name, "seconds": round(s, 4), "million_events_per_second": round(trace.blocks / s / 1e6, 2)}
        for name, s in seconds.items()
    ]
    for row in rows:
        print(f"{row['name']:<44}{row['seconds']:8.3f} s {row['million_events_per_second']:7.2f} M block events/s")
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} shared cores, 1 used",
        "versions": {"python": platform.python_version(), "kvcache-simulator": _version("kvcache-simulator")},
        "capacity_blocks": CAPACITY,
        "seconds": f"CPU, best of {ROUNDS}",
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
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _peer(tokens: int) -> dict[str, tuple[Callable[[], int], int]]:
    """kvcache-simulator's own LRU in Python on the same trace; it counts the tokens of the later half."""
    try:
        from kvcache_sim.plan import build_execution_plan
        from kvcache_sim.policies import simulate_policy
        from kvcache_sim.trace import parse_trace_file
    except ImportError:
        print("kvcache-simulator is not installed: its row is left out", file=sys.stderr)
        return {}
    parsed = parse_trace_file(find_trace("mooncake_conversation"), block_size=512)
    plan = build_execution_plan(parsed, warmup_fraction=0.5)
    return {"kvcache-simulator, Python LRU": (lambda: simulate_policy(plan, "lru", CAPACITY).hitTokens, tokens)}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
