"""Public tests of prefix.7: keys turned by hand, deviations counted by hand."""

from __future__ import annotations

import math
from typing import Any

from kvcourse.tasks.api import expect, task


@task("prefix.7")
def test_one_point_turns(student):
    """With a head dimension of 2 a shift by one position turns the key by one radian."""
    sin, cos = math.sin(1), math.cos(1)
    tip = "first * cos - second * sin, and second * cos + first * sin"
    expect(student.shift_keys, tensor([[1, 0]]), 1, 10_000.0).close(
        tensor([[cos, sin]]), atol=1e-5, because="the angle of the first pair is 1 for each position", tip=tip
    )
    expect(student.shift_keys, tensor([[0, 1]]), 1, 10_000.0).close(
        tensor([[-sin, cos]]), atol=1e-5, because="the second coordinate turns with the first", tip=tip
    )
    expect(student.shift_keys, tensor([[3, 4]]), 0, 10_000.0).close(
        tensor([[3, 4]]), atol=1e-5, because="no shift, no turn", tip=tip
    )


@task("prefix.7")
def test_halves_belong_together(student):
    """Number i belongs to number i + half, and every pair has an angle of its own."""
    sin, cos = math.sin(1), math.cos(1)
    expect(student.shift_keys, tensor([[1, 0, 0, 0]]), 1, 10_000.0).close(
        tensor([[cos, 0, sin, 0]]), atol=1e-5, because="0 and 2 are a pair, not 0 and 1", tip="split into two halves"
    )
    expect(student.shift_keys, tensor([[0, 1, 0, 0]]), 10, 100.0).close(
        tensor([[0, cos, 0, sin]]),
        atol=1e-5,
        because="with theta 100 the second pair turns by 100 ** (-2 / 4) = 0.1 for each position",
        tip="the angle of pair i is delta * theta ** (-2 * i / head_dim)",
    )


@task("prefix.7")
def test_there_and_back(student):
    """A shift and the same shift back give the old keys; several tokens and heads are shifted at once."""
    keys = tensor([[[1, 2, 3, 4], [5, 6, 7, 8]], [[-1, 0, 2, 1], [0, 0, 0, 1]]])
    moved = expect(student.shift_keys, keys, 7, 100.0).satisfies(
        lambda got: got.shape == keys.shape and str(got.dtype) == "torch.float32",
        want="a float32 tensor of shape [2, 2, 4]",
        tip="work on the last dimension, keep the others",
    )
    expect(student.shift_keys, moved, -7, 100.0).close(keys, atol=1e-4, because="seven there, seven back")


@task("prefix.7")
def test_the_worst_are_picked(student):
    """The tokens that deviate most are picked, as many as the share says, rounded up, in rising order."""
    cached = tensor([[[0, 0]], [[0, 0]], [[0, 0]], [[0, 0]]])
    fresh = tensor([[[9, 9]], [[1, 0]], [[0, 2]], [[8, 8]]])
    expect(student.pick_recompute, cached, fresh, 0.5).equals(
        [0, 3], because="the keys of tokens 0 and 3 are off by 12.7 and 11.3", tip="norm of fresh - cached, then sort"
    )
    expect(student.pick_recompute, cached, fresh, 0.6).equals(
        [0, 2, 3], because="0.6 x 4 = 2.4 tokens, rounded up", tip="math.ceil"
    )
    expect(student.pick_recompute, fresh, fresh + cached, 0.25).equals(
        [0], because="nothing deviates: of equal ones the earlier", tip="a stable sort keeps the order of equal ones"
    )


@task("prefix.7")
def test_none_and_all(student):
    """A share of 0 picks nothing, a share of 1 everything."""
    cached = tensor([[[0, 0]], [[0, 0]], [[0, 0]]])
    fresh = tensor([[[1, 0]], [[3, 0]], [[2, 0]]])
    expect(student.pick_recompute, cached, fresh, 1).equals([0, 1, 2], because="everything is computed again")
    expect(student.pick_recompute, cached, fresh, 0).equals([], because="everything is reused as it is")


@task("prefix.7", after="test_the_worst_are_picked")
def test_shares_that_cannot_be(student):
    """A share outside 0..1, an odd head dimension and different shapes are refused by name."""
    keys, tip = tensor([[[1, 2]]]), "raise ValueError with a sentence that names it"
    expect(student.pick_recompute, keys, keys, 1.5).refused(naming="ratio", because="more than all of it", tip=tip)
    expect(student.pick_recompute, keys, tensor([[[1, 2]], [[3, 4]]]), 1).refused(
        naming="shape", because="1 and 2 tokens", tip=tip
    )
    expect(student.shift_keys, tensor([[1, 2, 3]]), 1, 100.0).refused(
        naming="keys", because="3 numbers have no two halves", tip=tip
    )


def tensor(values: list) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.float32)
