"""Hidden tests of chunked.5: fresh chunks and pools from `rng`."""

from __future__ import annotations

from dataclasses import replace

import torch

from kvcourse.tasks import kernel_gates as gates
from kvcourse.tasks import kernel_problems as problems
from kvcourse.tasks.api import task
from kvcourse.tasks.kernel_kit import EVERY_ORDER, Problem, launch, with_arguments

HALF = torch.float16
PROMPT = 48  # tokens that chunks of every size must answer alike
CHUNK_SIZES = (1, 7, 16, 48)


@task("chunked.5")
def test_prompts_of_8(student, rng):
    """A prompt of 8 tokens in one chunk gives plain causal attention."""
    for heads in (1, rng.randint(2, 4)):
        launch(student, problems.chunked_prefill(rng, 8, 0, heads, heads, block_size=8))


@task("chunked.5", after="test_prompts_of_8")
def test_small_blocks(student, rng):
    """Blocks of fewer slots than the chunk has queries, in any order in the pool."""
    for block_size in (1, 2, 4):
        launch(student, problems.chunked_prefill(rng, 8, 0, 2, 2, block_size=block_size))


@task("chunked.5", after="test_small_blocks", weight=3.0)
def test_behind_cached_keys(student, rng):
    """A chunk behind cached keys sees all of them, wherever in a block it begins."""
    for cached in (8, 16, rng.randint(1, 7), rng.randint(9, 15)):
        block_size = max(size for size in (1, 2, 4, 8, 16) if (cached + 8) % size == 0)
        launch(student, problems.chunked_prefill(rng, 8, cached, 2, 2, block_size=block_size))
    launch(student, problems.chunked_prefill(rng, 8, 24, 2, 2, block_size=32))


@task("chunked.5", after="test_behind_cached_keys")
def test_many_queries(student, rng):
    """A chunk of more than 8 queries takes several blocks of threads."""
    for count in (16, 24, 32):
        launch(student, problems.chunked_prefill(rng, count, 0, 2, 2, block_size=8))


@task("chunked.5", after="test_many_queries")
def test_ends_inside_a_block(student, rng):
    """Slots behind the end of the chunk are not read, and nothing is written for queries that it has not."""
    for count in (1, 7, rng.randint(2, 6), 9, rng.choice((17, 25))):
        for block_size in (1, 16, 32):
            launch(student, problems.chunked_prefill(rng, count, 0, 2, 2, block_size=block_size))


@task("chunked.5", after="test_ends_inside_a_block")
def test_many_keys(student, rng):
    """Any number of keys: one more than 32, several times 32, and in between."""
    for count, cached in ((33, 0), (9, 55), (8, rng.randint(60, 90)), (rng.randint(2, 7), 120)):
        launch(student, problems.chunked_prefill(rng, count, cached, 2, 2, block_size=rng.choice((1, 4, 16, 32))))


@task("chunked.5", after="test_prompts_of_8")
def test_heads_of_every_size(student, rng):
    """Heads of 80, 96 and 128 numbers."""
    for head_dim in (80, 96, 128):
        launch(student, problems.chunked_prefill(rng, 8, 0, 2, 2, head_dim, block_size=8))


@task("chunked.5", after="test_prompts_of_8", weight=3.0)
def test_grouped_queries(student, rng):
    """Neighbouring heads share a KV head, in groups of any size."""
    for heads, kv_heads in ((4, 2), (6, 2), (6, 3), (rng.randint(2, 5), 1)):
        launch(student, problems.chunked_prefill(rng, 8, 0, heads, kv_heads, block_size=8))


@task("chunked.5", after="test_prompts_of_8")
def test_scores_far_from_zero(student, rng):
    """Scores far below zero or far above it give the same weights as scores around it."""
    for logits in ("far below zero", "far above zero", "wide"):
        launch(student, problems.chunked_prefill(rng, 8, 0, 2, 2, block_size=8, logits=logits))


@task("chunked.5", after="test_many_keys")
def test_scores_that_rise_or_fall(student, rng):
    """The largest score may stand in the last tile or in the first one."""
    for logits in ("rising", "falling"):
        launch(student, problems.chunked_prefill(rng, 8, rng.choice((56, 88)), 2, 2, block_size=8, logits=logits))


@task("chunked.5", after="test_prompts_of_8")
def test_pools_beyond_32_bits(student, rng):
    """Pools of more numbers than an int can count."""
    launch(student, problems.chunked_prefill(rng, 8, 0, 2, 2, block_size=8, far=True))


@task("chunked.5", after="test_many_keys")
def test_sums_are_floats(student, rng):
    """Keys and values in half precision, sums in float: many values around 150 add up to more than a half can hold."""
    launch(student, problems.chunked_prefill(rng, 8, 0, 2, 2, block_size=8, dtype=HALF))
    launch(student, problems.chunked_prefill(rng, 8, 592, 1, 1, block_size=8, dtype=HALF, value_level=150.0))


@task("chunked.5", after="test_many_keys")
def test_chunks_agree(student, rng):
    """Chunks of 1, 7, 16 and 48 tokens give a prompt the same answers as one chunk does."""
    prompt = problems.chunked_prefill(rng, PROMPT, 0, 1, 1, block_size=16)
    answer = prompt.want()["out"]
    for chunk_size in CHUNK_SIZES:
        for start in range(0, PROMPT, chunk_size):
            launch(
                student,
                part_of(prompt, answer, start, min(start + chunk_size, PROMPT)),
                because=f"a prompt of {PROMPT} tokens in chunks of {chunk_size}",
            )


def part_of(prompt: Problem, answer: torch.Tensor, start: int, stop: int) -> Problem:
    """The chunk start .. stop - 1 of a prompt: slots that later chunks fill hold NaN still."""
    arguments = prompt.arguments
    count, size, table = stop - start, arguments["block_size"], arguments["block_table"]
    pools = {name: arguments[name].clone() for name in ("k_pool", "v_pool")}
    later = torch.arange(stop, PROMPT)
    for pool in pools.values():
        pool[table[later // size].long(), later % size] = float("nan")
    rows = slice(start, stop)
    changed = with_arguments(
        prompt,
        out=arguments["out"][rows].clone(),
        query=arguments["query"][rows].clone(),
        count=count,
        cached=start,
        **pools,
    )
    return replace(
        changed,
        grid=(arguments["heads"], -(-count // problems.ROWS)),
        want=lambda: {"out": answer[rows]},
        words=f"{count} queries behind {start} cached keys",
        place=lambda _, at: f"query {at[0]} (position {start + at[0]}), head {at[1]}, number {at[2]}",
    )


@task("chunked.5", after="test_prompts_of_8")
def test_warps_in_any_order(student, rng):
    """The order in which warps run changes nothing."""
    launch(student, problems.chunked_prefill(rng, 8, 0, 2, 2, block_size=8), orders=EVERY_ORDER)


@task("chunked.5", after="test_many_keys")
def test_sectors_are_used(student, rng):
    """Whole sectors of global memory are used, in float and in half."""
    for dtype in (torch.float32, HALF):
        problem = problems.chunked_prefill(rng, 8, 0, *[rng.randint(2, 4)] * 2, block_size=8, dtype=dtype)
        gates.coalesced(problem, launch(student, problem))


@task("chunked.5", after="test_sectors_are_used", weight=2.0)
def test_queries_share_tiles(student, rng):
    """Every key and value is read once for a block of 8 queries and a head."""
    problem = problems.chunked_prefill(rng, 16, 48, *[rng.randint(2, 4)] * 2)
    gates.tiled(problem, launch(student, problem))


@task("chunked.5", after="test_queries_share_tiles")
def test_banks_are_spread(student, rng):
    """Shared memory answers without waiting."""
    problem = problems.chunked_prefill(rng, 16, 48, *[rng.randint(2, 4)] * 2)
    gates.without_conflicts(problem, launch(student, problem))
