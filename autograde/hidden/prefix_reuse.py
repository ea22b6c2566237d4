"""Hidden tests of prefix.7: rotary keys in 64 bits to compare with, and deviations of random keys."""

from __future__ import annotations

from random import Random
from typing import Any

from kvcourse.tasks.api import expect, task

DRAWS = 3


def numbers(rng: Random, *shape: int) -> Any:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(rng.getrandbits(32)), dtype=torch.float64)


def rotated(keys: Any, positions: Any, theta: float) -> Any:
    """Keys [tokens, heads, head_dim] as a model with rotary embeddings caches them at these positions."""
    import torch

    half = keys.shape[-1] // 2
    angles = torch.as_tensor(positions, dtype=torch.float64)[:, None, None] * theta ** (
        -torch.arange(half, dtype=torch.float64) / half
    )
    a, b = keys[..., :half], keys[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def moves(student: Any, rng: Random, delta: int, theta: float, shape: tuple = (5, 2, 16), start: int = 200) -> None:
    import torch

    keys = numbers(rng, *shape)
    positions = torch.arange(start, start + shape[0])
    want = rotated(keys, positions + delta, theta).float()
    expect(student.shift_keys, rotated(keys, positions, theta).float(), delta, theta).close(
        want, rtol=0.0, atol=2e-3, because=f"positions {start} to {start + shape[0] - 1} moved by {delta}"
    )


@task("prefix.7")
def test_keys_move_on(student, rng):
    """Keys that were cached at one position become those of a later one."""
    for _ in range(DRAWS):
        moves(student, rng, rng.randint(1, 100), 10_000.0)


@task("prefix.7", after="test_keys_move_on")
def test_keys_move_back(student, rng):
    """A negative shift moves keys to earlier positions."""
    for _ in range(DRAWS):
        moves(student, rng, -rng.randint(1, 200), 10_000.0)


@task("prefix.7", after="test_keys_move_on")
def test_other_bases(student, rng):
    """The angles follow the theta that is given."""
    for theta in (100.0, 500_000.0, 1_000_000.0):
        moves(student, rng, rng.randint(20, 100), theta)


@task("prefix.7", after="test_keys_move_on")
def test_shapes_of_keys(student, rng):
    """Any number of tokens and heads may stand in front of the head dimension, and that may be any even number."""
    import torch

    moves(student, rng, 7, 10_000.0, shape=(3, 1, 2))
    moves(student, rng, 7, 10_000.0, shape=(1, 3, 80))
    keys = rotated(numbers(rng, 4, 3, 8), torch.arange(4), 10_000.0).float()
    moved = expect(student.shift_keys, keys.clone(), 5, 10_000.0).satisfies(
        lambda got: tuple(got.shape) == (4, 3, 8), want="a tensor of shape [4, 3, 8]"
    )
    expect(student.shift_keys, keys.permute(1, 0, 2)[None].contiguous(), 5, 10_000.0).close(
        moved.permute(1, 0, 2)[None], atol=1e-4, because="heads before tokens, and one more dimension"
    )


@task("prefix.7", after="test_keys_move_on")
def test_far_shifts(student, rng):
    """A shift of many thousand positions is exact, also for keys in 16 bits."""
    import torch

    delta, theta = rng.randint(20_000, 60_000), 10_000.0
    keys, positions = numbers(rng, 4, 2, 16), torch.arange(4)
    start, want = rotated(keys, positions, theta), rotated(keys, positions + delta, theta)
    expect(student.shift_keys, start.to(torch.bfloat16), delta, theta).satisfies(
        lambda got: got.dtype == torch.bfloat16 and float((got.double() - want).abs().max()) < 0.06,
        want="bfloat16 keys, no further off than bfloat16 is",
        because=f"moved by {delta:,}",
    )


@task("prefix.7", after="test_keys_move_on")
def test_keys_are_left_alone(student, rng):
    """The keys that are given stay as they were."""
    keys = numbers(rng, 3, 2, 8).float()
    before = keys.clone()
    student.shift_keys(keys, 9, 10_000.0)
    assert bool((keys == before).all()), "shift_keys changed the tensor it was given"


@task("prefix.7", after="test_keys_move_on")
def test_odd_heads(student, rng):
    """An odd head dimension is refused by name."""
    expect(student.shift_keys, numbers(rng, 3, 2, 7).float(), 1, 10_000.0).refused(naming="keys")


def deviations(rng: Random, lengths: list[float], heads: int = 1, head_dim: int = 4) -> tuple[Any, Any]:
    """Cached and fresh keys; token i is off by lengths[i], in one number of one head."""
    import torch

    cached = numbers(rng, len(lengths), heads, head_dim).float()
    fresh = cached.clone()
    for i, length in enumerate(lengths):
        fresh[i, rng.randrange(heads), rng.randrange(head_dim)] += length * rng.choice((-1, 1))
    assert torch.isfinite(fresh).all()
    return cached, fresh


def picks(student: Any, want: list[int], cached: Any, fresh: Any, ratio: float, because: str) -> None:
    expect(student.pick_recompute, cached, fresh, ratio).equals(sorted(want), because=because)


@task("prefix.7")
def test_fresh_picks(student, rng):
    """The tokens that are furthest off are picked, in rising order."""
    for _ in range(DRAWS):
        lengths = [float(length) for length in rng.sample(range(1, 60), 16)]
        worst = sorted(range(16), key=lambda i: -lengths[i])
        picks(student, worst[:4], *deviations(rng, lengths), 0.25, "4 of 16 tokens")


@task("prefix.7", after="test_fresh_picks")
def test_started_tokens_count(student, rng):
    """A share that is not a whole number of tokens is rounded up."""
    for ratio, number in ((0.0625, 1), (0.125, 2), (0.375, 5), (0.5, 6)):
        lengths = [float(length) for length in rng.sample(range(1, 60), 11)]
        worst = sorted(range(11), key=lambda i: -lengths[i])
        picks(student, worst[:number], *deviations(rng, lengths), ratio, f"{ratio} x 11 tokens, rounded up")


@task("prefix.7", after="test_fresh_picks")
def test_both_ends_of_the_share(student, rng):
    """A share of 1 picks every token, in order, and a share of 0 none."""
    lengths = [float(length) for length in rng.sample(range(1, 60), 9)]
    cached, fresh = deviations(rng, lengths)
    picks(student, list(range(9)), cached, fresh, 1.0, "all of them")
    picks(student, [], cached, fresh, 0.0, "none of them")


@task("prefix.7", after="test_fresh_picks")
def test_ties_go_to_the_earlier(student, rng):
    """Of tokens that are equally far off the earlier ones are picked."""
    for _ in range(DRAWS):
        lengths = [4.0] * 40
        large = rng.sample(range(40), 3)
        for i in large:
            lengths[i] = 8.0
        rest = [i for i in range(40) if i not in large]
        cached, fresh = deviations(rng, lengths)
        cached, fresh = cached.round(), fresh + (cached.round() - cached)
        fresh = cached + (fresh - cached).round()
        picks(student, large + rest[:7], cached, fresh, 0.25, "10 of 40 tokens, all but 3 of them equally far off")


@task("prefix.7", after="test_fresh_picks")
def test_the_length_of_the_difference(student, rng):
    """The length of the difference decides, all heads and numbers together."""
    import torch

    cached = numbers(rng, 4, 2, 4).float()
    fresh = cached.clone()
    one, spread, two = rng.sample(range(4), 3)
    fresh[one, 0, 0] += 5.0  # length 5, sum 5, largest 5
    fresh[spread] += 1.5 * torch.tensor([1.0, -1.0, 1.0, -1.0])  # length 4.24, sum 12, largest 1.5
    fresh[two, 0, 1] += 4.0
    fresh[two, 1, 1] -= 4.0  # length 5.66, sum 8, largest 4, less than 5 in each head
    picks(student, [two], cached, fresh, 0.25, "the square root of the sum of squares is largest there")
    picks(student, [one, two], cached, fresh, 0.5, "then the one that is off by 5 in a single number")


@task("prefix.7", after="test_fresh_picks")
def test_large_numbers_in_16_bits(student, rng):
    """Large differences of 16-bit keys do not run over."""
    import torch

    lengths = sorted(rng.sample(range(300, 900, 50), 8))
    cached = torch.zeros(8, 1, 4, dtype=torch.float16)
    fresh = cached.clone()
    for i, length in enumerate(lengths):
        fresh[i, 0, rng.randrange(4)] = length
    worst = sorted(range(8), key=lambda i: -lengths[i])
    picks(student, worst[:2], cached, fresh, 0.25, "300 x 300 is too large for 16 bits")


@task("prefix.7", after="test_fresh_picks")
def test_picks_that_cannot_be(student, rng):
    """Shares outside 0..1 and keys of different shapes are refused by name."""
    cached, fresh = deviations(rng, [1.0, 2.0, 3.0])
    expect(student.pick_recompute, cached, fresh, 1 + rng.random()).refused(naming="ratio")
    expect(student.pick_recompute, cached, fresh, -rng.random() - 0.1).refused(naming="ratio")
    expect(student.pick_recompute, cached, fresh[:2], 0.5).refused(naming="shape")
