"""Hidden tests of chunked.6: fresh 8-bit pools and splits from `rng`."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from kvcourse.tasks import kernel_gates as gates
from kvcourse.tasks import kernel_problems as problems
from kvcourse.tasks.api import task
from kvcourse.tasks.kernel_kit import EVERY_ORDER, Problem, launch

HALF = torch.float16


@task("chunked.6")
def test_split_of_everything(student, rng):
    """One split over one sequence gives plain attention, and the logarithm of the sum."""
    for context, heads in ((16, 1), (32, rng.randint(2, 4))):
        launch(student, split(rng, [context], 64, heads, heads))


def split(rng: Random, contexts: list[int], tokens: int, heads: int, kv_heads: int, **changed: Any) -> Problem:
    """The plainest 8-bit problem, but for what is changed: no negative codes, all scales alike."""
    return problems.paged_decode_int8(
        rng, contexts, tokens, heads, kv_heads, **({"codes_from": 0, "alike": "kv"} | changed)
    )


@task("chunked.6", after="test_split_of_everything")
def test_split_with_negative_codes(student, rng):
    """Codes have a sign: -127 to 127."""
    launch(student, split(rng, [32], 64, 2, 2, codes_from=-127))


@task("chunked.6", after="test_split_of_everything")
def test_split_with_scales_of_channels(student, rng):
    """Every channel of a KV head's keys has a scale of its own, also one 100 times larger than the others."""
    for uneven in (False, True):
        launch(student, split(rng, [32], 64, 2, 2, alike="v", uneven=uneven))


@task("chunked.6", after="test_split_of_everything")
def test_split_with_scales_of_tokens(student, rng):
    """Every token has a scale of its own for the value of each KV head; those of unused slots are not read."""
    launch(student, split(rng, [32], 64, 2, 2, alike="k"))


@task("chunked.6", after="test_split_of_everything")
def test_split_of_many_sequences(student, rng):
    """Every sequence has its own query, length and block table."""
    launch(student, split(rng, rng.sample((16, 32, 48, 64), 3), 80, 2, 2))


@task("chunked.6", after="test_split_of_everything")
def test_split_ends_inside_a_block(student, rng):
    """Contexts end anywhere in a block, and blocks have 1 to 32 slots."""
    for block_size, context in ((1, 5), (4, 1), (16, rng.randint(17, 31)), (32, rng.randint(33, 60))):
        launch(student, split(rng, [context], 64, 2, 2, block_size=block_size))


@task("chunked.6", after="test_split_of_everything")
def test_split_of_heads_of_every_size(student, rng):
    """Heads of 80, 96 and 128 numbers in 8 bits."""
    for head_dim in (80, 96, 128):
        launch(student, split(rng, [32], 64, 2, 2, head_dim=head_dim))


@task("chunked.6", after="test_split_of_everything")
def test_split_of_grouped_heads(student, rng):
    """Neighbouring heads share the codes and the scales of a KV head."""
    for heads, kv_heads in ((4, 2), (6, 3), (rng.randint(2, 5), 1)):
        launch(student, split(rng, [32], 64, heads, kv_heads))


@task("chunked.6", after="test_split_of_everything")
def test_split_far_from_zero(student, rng):
    """The logarithm of the sum is right when all scores are far below zero or far above."""
    for logits in ("far below zero", "far above zero"):
        launch(student, split(rng, [32], 64, 2, 2, logits=logits))


@task("chunked.6", after="test_split_of_everything")
def test_split_of_pools_beyond_32_bits(student, rng):
    """Pools of more codes than an int can count."""
    launch(student, split(rng, [32], 64, 2, 2, far=True))


@task("chunked.6", after="test_split_of_everything")
def test_split_with_half_queries(student, rng):
    """A query in half precision is converted once: scores and sums are float."""
    launch(student, split(rng, [32], 64, 2, 2, dtype=HALF))


@task("chunked.6", after="test_split_of_many_sequences")
def test_splits_of_any_length(student, rng):
    """Every token is in one split, also when the splits do not divide the context."""
    for tokens in (16, rng.randint(5, 15), rng.randint(17, 31)):
        launch(student, split(rng, [64, 64 - rng.randint(0, 2)], tokens, 2, 2, block_size=1))


@task("chunked.6", after="test_splits_of_any_length")
def test_splits_without_tokens(student, rng):
    """Splits behind the end of a short sequence write zeros and -INFINITY."""
    launch(student, split(rng, [64, rng.randint(1, 16), 17], 16, 2, 2, block_size=1))


@task("chunked.6", after="test_split_of_everything")
def test_split_in_any_order(student, rng):
    """The order in which the warps of a split run changes nothing."""
    launch(student, split(rng, [32], 64, 2, 2), orders=EVERY_ORDER)


@task("chunked.6", after="test_splits_of_any_length")
def test_split_reads_bytes(student, rng):
    """The pool is read as 8-bit numbers, and the scales of the keys are read once."""
    problem = split(rng, [16 * rng.randint(5, 8)], 128, 2, rng.choice((1, 2)), head_dim=128)
    gates.eight_bits(problem, launch(student, problem))


@task("chunked.6", after="test_split_reads_bytes")
def test_splits_read_their_own(student, rng):
    """No split reads the tokens of another one."""
    problem = split(rng, [rng.randint(241, 256)], 64, 2, 1, head_dim=128, block_size=1)
    gates.shared_out(problem, launch(student, problem))


@task("chunked.6")
def test_merge_two(student, rng):
    """Two splits of one head are weighted by their sums."""
    launch(student, problems.merge_splits(rng, 1, 2, 1, order="falling"))


@task("chunked.6", after="test_merge_two")
def test_merge_in_any_order(student, rng):
    """The largest split may come last: the order of splits changes nothing."""
    launch(student, problems.merge_splits(rng, 1, 2, 1, order="rising"))


@task("chunked.6", after="test_merge_two")
def test_merge_of_any_count(student, rng):
    """One split, and many."""
    for splits in (1, rng.randint(3, 8), 33):
        launch(student, problems.merge_splits(rng, 1, splits, 1, order="falling"))


@task("chunked.6", after="test_merge_two")
def test_merge_far_from_zero(student, rng):
    """Logarithms far below zero and far above it."""
    for level in (-200.0, 200.0):
        launch(student, problems.merge_splits(rng, 1, 2, 1, level=level, order="falling"))


@task("chunked.6", after="test_merge_two")
def test_merge_with_empty_splits(student, rng):
    """A split without tokens weighs nothing."""
    launch(student, problems.merge_splits(rng, 1, 2, 1, empty_splits=1))


@task("chunked.6", after="test_merge_two")
def test_merge_of_all_heads(student, rng):
    """Every sequence and head has its own splits."""
    sequences, heads = rng.sample((2, 3, 4, 5), 2)
    launch(student, problems.merge_splits(rng, sequences, 2, heads, order="falling"))


@task("chunked.6", after="test_merge_two")
def test_merge_of_heads_of_every_size(student, rng):
    """Merged heads of 80 and 128 numbers, in half and in float."""
    for head_dim, dtype in ((80, HALF), (128, torch.float32)):
        launch(student, problems.merge_splits(rng, 1, 2, 1, head_dim, dtype, order="falling"))
