"""Published and recorded hit counts, reproduced exactly.

The published traces are not part of the project. They are looked for in $KVCOURSE_TRACES, in ../shared/traces and among
the downloads; a test without its trace is skipped. The generated trace is always there.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from statistics import fmean, median_high

import pytest

from kvcourse.tasks.course import UserError
from kvcourse.workload import (
    FIFO,
    LRU,
    TINY,
    Trace,
    as_engine,
    find_trace,
    generate,
    load_trace,
    optimal,
    read_trace,
    replay_trace,
    reuse_ceiling,
    session_ratios,
    trace_statistics,
    truth,
)
from kvcourse.workload.trace import broken_chains

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "traces"
if BESIDE.is_dir():
    os.environ.setdefault("KVCOURSE_TRACES", str(BESIDE))

MOONCAKE = {"mooncake_conversation": truth.CONVERSATION, "mooncake_synthetic": truth.SYNTHETIC_MOONCAKE}
LONGEST = {"mooncake_conversation": 247, "mooncake_synthetic": 374}
UNIQUE = {"mooncake_conversation": 182_790, "mooncake_synthetic": 43_924}


@pytest.fixture(params=[*MOONCAKE, "generated"])
def known(request) -> tuple[Trace, truth.Truth]:
    """Each trace with a table of figures."""
    if request.param == "generated":
        return generated(), truth.GENERATED
    return published(request.param), MOONCAKE[request.param]


@cache
def generated() -> Trace:
    return generate()


def published(name: str, **options: str) -> Trace:
    try:
        return _published(name, **options)
    except UserError as missing:
        pytest.skip(str(missing))


@cache
def _published(name: str, **options: str) -> Trace:
    return read_trace(find_trace(name), **options) if options else load_trace(name)


def test_lru_all_blocks(known):
    """Convention A at every capacity: blocks to the block, tokens to the sixth digit."""
    trace, want = known
    assert trace.blocks == want.blocks_a
    replays = {capacity: replay_trace(LRU(capacity), trace) for capacity in want.lru_a}
    assert {capacity: replay.hit_blocks for capacity, replay in replays.items()} == want.lru_a
    assert {capacity: round(replay.token_ratio, 6) for capacity, replay in replays.items()} == want.ratio_a


def test_lru_full_blocks(known):
    """Convention F at every capacity."""
    trace, want = known[0].convention("F"), known[1]
    assert trace.blocks == want.blocks_f
    assert {capacity: replay_trace(LRU(capacity), trace).hit_blocks for capacity in want.lru_f} == want.lru_f


def test_last_token_recomputed(known):
    """Without a limit and with at least one token computed."""
    trace, want = known
    capped = replay_trace(LRU(), trace, recompute_last=True)
    assert (capped.hit_blocks, capped.hit_tokens) == want.capped
    assert trace_statistics(trace, trace.block_size).reuse.whole_prompts == want.whole_prompts


def test_other_rules(known):
    """Heads before tails, first in first out, and Belady's rule where it is recorded in blocks."""
    trace, want = known
    for capacity, hits in want.head_first_a.items():
        assert replay_trace(LRU(capacity, "head_first"), trace).hit_blocks == hits
    for capacity, hits in want.fifo_a.items():
        assert replay_trace(FIFO(capacity), trace).hit_blocks == hits
    best = optimal(trace)
    for capacity, hits in want.optimal_a.items():
        assert replay_trace(best(capacity), trace).hit_blocks == hits


@pytest.mark.parametrize("name", MOONCAKE)
def test_engine_rules(name):
    """With a last block as an engine has it, a few blocks less are hit."""
    trace, want = published(name), MOONCAKE[name]
    for copies, figures in (("first", want.engine_first_a), ("both", want.engine_both_a)):
        for capacity, hits in figures.items():
            assert replay_trace(as_engine(trace, copies)(capacity), trace).hit_blocks == hits
    full = trace.convention("F")
    for capacity, hits in want.engine_f.items():
        assert replay_trace(as_engine(full)(capacity), full).hit_blocks == hits


@pytest.mark.parametrize("name", MOONCAKE)
def test_later_half(name):
    """Token hits in the later half of the requests: LRU, FIFO and optimal equal kvcache-simulator's."""
    trace, want = published(name), MOONCAKE[name]
    half, best = len(trace) // 2, optimal(trace)
    for maker, figures in ((LRU, want.last_half_lru), (FIFO, want.last_half_fifo), (best, want.last_half_optimal)):
        for capacity, tokens in figures.items():
            replay = replay_trace(maker(capacity), trace, skip=half)
            assert (replay.hit_tokens, replay.tokens) == (tokens, want.last_half_tokens)


@pytest.mark.parametrize("name", MOONCAKE)
def test_ids_are_prefixes(name):
    """No id stands under two parents or twice in a prompt, and the counts are the published ones."""
    trace = published(name)
    assert broken_chains(trace) == []
    reuse = trace_statistics(trace, trace.block_size).reuse
    assert (reuse.longest, reuse.distinct) == (LONGEST[name], UNIQUE[name])
    if name == "mooncake_conversation":
        assert reuse.first_block_share == 1.0


def test_agentic_in_order():
    """Conversations one after the other, without a limit: blocks, tokens, and the spread over conversations."""
    trace = published("agentic_sample", nested_clock="written")
    assert (len(trace), trace.block_size, trace.partial_last) == (3_295, 64, False)
    ceiling = reuse_ceiling(trace)
    assert (ceiling.hit_blocks, ceiling.blocks) == (truth.AGENTIC_HIT_BLOCKS, truth.AGENTIC_BLOCKS)
    assert (ceiling.hit_tokens, ceiling.tokens) == (truth.AGENTIC_HIT_TOKENS, truth.AGENTIC_TOKENS)
    reused: dict[str, list[int]] = {}  # hit tokens, tokens; ids are local, so each conversation has its own ceiling
    for request, hits in zip(trace, ceiling.hits, strict=True):
        entry = reused.setdefault(request.session, [0, 0])
        entry[0], entry[1] = entry[0] + hits * 64, entry[1] + request.input_tokens
    ratios = [hit / tokens for hit, tokens in reused.values()]
    assert (len(ratios), round(fmean(ratios), 4)) == (58, truth.AGENTIC_SESSION_MEAN)
    assert round(median_high(ratios), 4) == truth.AGENTIC_SESSION_MEDIAN
    first = next(iter(reused))
    alone = session_ratios(Trace("first", trace.sessions()[first].requests, 64))
    assert alone == {first: ratios[0]}


@pytest.mark.slow
def test_agentic_merged():
    """All conversations at once, by the times as written: LRU at four capacities, and its later half."""
    trace = published("agentic_sample", nested_clock="written").by_arrival()
    half, longest = len(trace) // 2, max(len(request.block_ids) for request in trace)
    assert longest == 13_097 and broken_chains(trace) == []
    for capacity, blocks in truth.AGENTIC_MERGED_LRU.items():
        replay = replay_trace(LRU(capacity), trace)
        assert replay.hit_blocks == blocks
        if capacity in truth.AGENTIC_MERGED_LAST_HALF:
            assert sum(replay.hits[half:]) * 64 == truth.AGENTIC_MERGED_LAST_HALF[capacity]
    blocks = sum(len(request.block_ids) for request in trace.requests[half:])
    assert blocks * 64 == truth.AGENTIC_MERGED_LAST_HALF_TOKENS


@pytest.mark.slow
def test_agentic_nested_clock():
    """Sub-agents' requests on the clock of their conversation come later than as written, and a little else is hit."""
    written, moved = (
        published("agentic_sample", nested_clock=clock).by_arrival() for clock in ("written", "conversation")
    )
    assert sum(request.kind == "subagent" for request in moved) == 44
    assert replay_trace(LRU(50_000), written).hit_blocks == truth.AGENTIC_MERGED_LRU[50_000]
    assert replay_trace(LRU(50_000), moved).hit_blocks == 5_709_662


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("azure_code_2023", (8_819, 2_048, 28, 7_436, 7_437, 2.57, 13.2)),
        ("azure_conv_2023", (19_366, 1_155, 211, 4_142, 14_050, 5.53, 1.1)),
    ],
)
def test_azure(name, want):
    """Lengths and arrivals as published: mean in and out, p99 and longest prompt, rate, burstiness."""
    stats = trace_statistics(published(name), 0)
    got = (round(stats.input.mean), round(stats.output.mean), stats.input.p99, stats.input.most)
    assert (stats.requests, *got, round(stats.rate, 2), round(stats.gap_cv, 1)) == want
    assert stats.reuse is None


def test_tiny():
    """The trace for engines on a CPU, too."""
    trace = generate(TINY)
    hits = {capacity: replay_trace(LRU(capacity), trace).hit_blocks for capacity in truth.GENERATED_TINY_LRU_A}
    assert hits == truth.GENERATED_TINY_LRU_A
