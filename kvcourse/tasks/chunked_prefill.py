"""Public tests of chunked.5 and chunked.6: a chunk of queries over paged keys, and an 8-bit pool read in splits."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import torch

from kvcourse.tasks import kernel_gates as gates
from kvcourse.tasks import kernel_problems as problems
from kvcourse.tasks.api import task
from kvcourse.tasks.kernel_kit import Problem, launch, launch_on_gpu, with_arguments

HALF = torch.float16

# --- chunked.5


def seen(count: int, cached: int) -> Problem:
    """A chunk whose queries weigh all keys alike, over values that are 1 in one place: what comes out shows the mask.

    Number t of the answer of query i is 1 / (cached + i + 1) if the query sees key t, else 0.
    """
    keys, head_dim = cached + count, 64
    problem = problems.chunked_prefill(Random("seen"), count, cached, 1, 1, head_dim, block_size=8)
    v_pool, table = problem.arguments["v_pool"].clone(), problem.arguments["block_table"]
    want = torch.zeros(count, 1, head_dim, dtype=torch.float64)
    for t in range(keys):
        v_pool[table[t // 8], t % 8] = torch.eye(head_dim)[t]
    for i in range(count):
        want[i, 0, : cached + i + 1] = 1 / (cached + i + 1)
    changed = with_arguments(problem, query=torch.zeros(count, 1, head_dim), v_pool=v_pool)
    return replace(
        changed,
        want=lambda: {"out": want},
        words=f"{count} queries behind {cached} cached keys, query 0, value t is 1 in place t and 0 elsewhere",
        place=lambda _, at: f"query {at[0]} (position {cached + at[0]}), key {at[2]}",
    )


@task("chunked.5")
def test_a_short_prompt(student):
    """A short prompt in one chunk, nothing cached: 8 queries, 8 keys."""
    launch(
        student,
        problems.chunked_prefill(Random("short prompt"), 8, 0, heads=2, kv_heads=2, block_size=8),
        because="8 warps, one query each; query i sees the keys 0 .. i",
        tip="score = query x key x scale, softmax over the keys seen, then the mean of the values with these weights",
    )


@task("chunked.5")
def test_who_sees_whom(student):
    """Query i sees the keys up to its own position, which is cached + i: two queries behind two cached keys."""
    launch(
        student,
        seen(2, 2),
        because="query 0 sees keys 0, 1, 2, each weighs 1/3; query 1 sees keys 0, 1, 2, 3, each weighs 1/4",
        tip="compare the position of the key with cached + i, not with i",
    )


@task("chunked.5", after="test_a_short_prompt")
def test_a_chunk_behind_cached_keys(student):
    """A chunk behind cached keys attends over all of them, and begins inside a block."""
    launch(
        student,
        problems.chunked_prefill(Random("cached"), 8, 13, heads=2, kv_heads=2),
        because="13 keys are from chunks before, 8 are new; key t lies in block_table[t / block_size]",
        tip="loop from key 0, not from `cached`",
    )


@task("chunked.5", after="test_a_short_prompt")
def test_a_chunk_that_is_no_multiple_of_8(student):
    """A chunk ends anywhere: inside a block of the pool, with fewer than 8 queries for the last block of threads."""
    launch(
        student,
        problems.chunked_prefill(Random("eleven"), 11, 0, heads=2, kv_heads=2),
        because="slots behind the last key hold NaN, and 5 of the 16 warps have no query",
        tip="keys end at cached + count; a warp without a query loads and meets every barrier, but writes nothing",
    )


@task("chunked.5", after="test_a_short_prompt")
def test_more_keys_than_a_tile(student):
    """More keys than 32 come in several passes, and the softmax goes on from pass to pass."""
    launch(
        student,
        problems.chunked_prefill(Random("tiles"), 8, 62, heads=2, kv_heads=2),
        because="when the maximum rises, what was summed up so far belongs to the old one",
        tip="multiply the sum and the total with exp(old maximum - new maximum)",
    )


@task("chunked.5", after="test_a_short_prompt")
def test_keys_of_80_numbers_and_halves(student):
    """Keys of 80 numbers in half precision: 32 lanes go over them three times, and the last time half of them rest."""
    launch(
        student,
        problems.chunked_prefill(Random("eighty"), 8, 8, heads=2, kv_heads=2, head_dim=80, dtype=HALF),
        because="80 is no multiple of 32, and T is __half",
        tip="lane, lane + 32, ... while it is below D; convert to float when you load, to T when you write",
    )


@task("chunked.5", after="test_a_short_prompt")
def test_heads_that_share_keys(student):
    """Grouped heads: with 6 heads over 2 KV heads the first three read KV head 0."""
    launch(
        student,
        problems.chunked_prefill(Random("groups"), 8, 0, heads=6, kv_heads=2),
        because="neighbouring heads form a group",
        tip="kv_head = head / (heads / kv_heads)",
    )


@task("chunked.5", after="test_a_short_prompt")
def test_neighbours_load_neighbours(student):
    """Loads are coalesced: a warp asks for whole sectors of global memory."""
    problem = problems.chunked_prefill(Random("sectors"), 16, 48, heads=2, kv_heads=2)
    gates.coalesced(problem, launch(student, problem))


@task("chunked.5", after="test_neighbours_load_neighbours")
def test_a_tile_is_loaded_once(student):
    """The 8 queries of a block share what they load: keys and values come from global memory once for all of them."""
    problem = problems.chunked_prefill(Random("tile once"), 16, 48, heads=2, kv_heads=2)
    gates.tiled(problem, launch(student, problem))


@task("chunked.5", after="test_a_tile_is_loaded_once")
def test_no_bank_waits(student):
    """Shared memory without bank conflicts: one wave a request."""
    problem = problems.chunked_prefill(Random("banks"), 16, 48, heads=2, kv_heads=2)
    gates.without_conflicts(problem, launch(student, problem))


@task("chunked.5", gpu=True)
def test_prefill_on_a_gpu(student, gpu):
    """On a GPU the answers are the same, in single and in half precision."""
    rng = Random("prefill on a GPU")
    for dtype in (torch.float32, HALF):
        for count, cached, head_dim in ((11, 0, 64), (8, 62, 80), (70, 300, 128)):
            problem = problems.chunked_prefill(rng, count, cached, 6, 2, head_dim, dtype=dtype)
            launch_on_gpu(gpu, student, problem, because="on the CPU it is right")


# --- chunked.6


@task("chunked.6")
def test_one_split_is_attention(student):
    """One split over all tokens is plain attention over the numbers that the codes stand for."""
    launch(
        student,
        problems.paged_decode_int8(Random("one split"), [21], 32, heads=2, kv_heads=2, alike="kv"),
        because="every scale is 0.01 here: a code of -50 stands for -0.5",
        tip="signed char goes from -127 to 127; partial is divided by the total, lse = maximum + log(total)",
    )


@task("chunked.6", after="test_one_split_is_attention")
def test_scales_of_channels_and_tokens(student):
    """A key has a scale for every channel, a value one for every token and KV head."""
    launch(
        student,
        problems.paged_decode_int8(Random("scales"), [21], 32, heads=2, kv_heads=2, uneven=True),
        because="one channel of the keys is 100 times larger than the others: only a scale of its own can hold it",
        tip="k_scale[kv_head * D + d], v_scale[slot * kv_heads + kv_head]",
    )


@task("chunked.6", after="test_one_split_is_attention")
def test_splits_of_two_sequences(student):
    """Every split answers for its own tokens, with the logarithm of its sum; the last one may be shorter."""
    launch(
        student,
        problems.paged_decode_int8(Random("splits"), [40, 37], 16, heads=4, kv_heads=2),
        because="splits of 16 tokens: 0 .. 15, 16 .. 31, 32 .. 39 or 32 .. 36",
        tip="from blockIdx.z * split_tokens to the smaller of the next split's beginning and the context",
    )


@task("chunked.6", after="test_splits_of_two_sequences")
def test_a_split_without_tokens(student):
    """A split without tokens writes zeros, and -INFINITY for its logarithm."""
    launch(
        student,
        problems.paged_decode_int8(Random("empty"), [40, 5], 16, heads=2, kv_heads=2),
        because="the sequence of 5 tokens ends in its first split; 0 / 0 would be NaN",
        tip="log(0) is -INFINITY, and -INFINITY - -INFINITY is NaN: ask before you compute",
    )


@task("chunked.6", after="test_splits_of_two_sequences")
def test_a_byte_a_number(student):
    """The pool is read as 8-bit numbers: about a quarter of the sectors that floats would take."""
    problem = problems.paged_decode_int8(Random("bytes"), [96], 96, heads=2, kv_heads=1, head_dim=128, block_size=16)
    gates.eight_bits(problem, launch(student, problem))


@task("chunked.6", after="test_a_byte_a_number")
def test_splits_share_the_work(student):
    """A split reads its own tokens only: together the splits read the pool once."""
    problem = problems.paged_decode_int8(Random("share"), [256], 64, heads=2, kv_heads=1, head_dim=128, block_size=16)
    gates.shared_out(problem, launch(student, problem))


def by_hand() -> Problem:
    """Two splits of one head: all numbers of the first are 1, of the second 5; the second has three times the sum."""
    problem = problems.merge_splits(Random("by hand"), 1, 2, heads=1, head_dim=64)
    partial = torch.stack([torch.full((64,), 1.0), torch.full((64,), 5.0)]).view(1, 1, 2, 64)
    lse = torch.tensor([1.0, 3.0]).log().view(1, 1, 2)
    return replace(
        with_arguments(problem, partial=partial, lse=lse),
        want=lambda: {"out": torch.full((1, 1, 64), 4.0, dtype=torch.float64)},
        words="two splits: partial 1 with lse log(1), partial 5 with lse log(3)",
    )


@task("chunked.6")
def test_two_splits_by_hand(student):
    """Two splits are merged by their sums, not half and half."""
    launch(
        student,
        by_hand(),
        because="the sums are 1 and 3: (1 x 1 + 3 x 5) / (1 + 3) = 4",
        tip="the weight of a split is exp(lse - largest lse)",
    )


@task("chunked.6", after="test_two_splits_by_hand")
def test_splits_of_many_heads(student):
    """All heads and sequences are merged, also with splits that hold nothing."""
    launch(
        student,
        problems.merge_splits(Random("many heads"), 3, 5, heads=4, empty_splits=2),
        because="lse of -INFINITY is a weight of 0",
        tip="partial is [sequences, heads, splits, D]: sequence blockIdx.y, head blockIdx.x",
    )


@task("chunked.6", gpu=True)
def test_splits_on_a_gpu(student, gpu):
    """On a GPU splits and merged answers are the same, in single and in half precision."""
    rng = Random("splits on a GPU")
    for dtype in (torch.float32, HALF):
        for contexts, split, head_dim in (([21], 32, 64), ([300, 5, 130], 64, 128)):
            decode = problems.paged_decode_int8(rng, contexts, split, 6, 2, head_dim, dtype=dtype)
            merge = problems.merge_splits(rng, 3, 5, 6, head_dim, dtype, empty_splits=1)
            for problem in (decode, merge):
                launch_on_gpu(gpu, student, problem, because="on the CPU it is right")
