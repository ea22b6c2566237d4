"""Hidden tests of sizing.6: random keys and values, quantised and back."""

from __future__ import annotations

from random import Random
from typing import Any

from kvcourse.tasks.api import expect, task

DRAWS = 3


def numbers(rng: Random, tokens: int, channels: int) -> Any:
    """Random numbers around a random centre for each channel, as keys have."""
    import torch

    seeded = torch.Generator().manual_seed(rng.getrandbits(32))
    return torch.randn(tokens, channels, generator=seeded) + 2 * torch.randn(channels, generator=seeded)


def half_steps(x: Any, bits: int, axis: int, group: int) -> Any:
    """Half the distance between two codes, for every number of `x`, with room for rounding."""
    groups = x.double().unflatten(axis, (-1, group))
    step = (groups.amax(axis + 1) - groups.amin(axis + 1)) / (2**bits - 1)
    return step.repeat_interleave(group, axis) / 2 * 1.001 + 1e-6 * x.abs().max()


def is_quantized(value: Any) -> bool:
    """Codes in bytes, finite scales and zeros."""
    q, scale, zero = value
    return str(q.dtype) == "torch.uint8" and bool(scale.isfinite().all()) and bool(zero.isfinite().all())


def quantized(student: Any, x: Any, bits: int, axis: int, group: int) -> tuple:
    """What `quantize` gives for a copy of x: what happens to the copy must not move the target."""
    want = "three tensors: codes (uint8), finite scales, finite zeros"
    return tuple(expect(student.quantize, x.clone(), bits, axis, group).satisfies(is_quantized, want=want))


def comes_back(student: Any, x: Any, bits: int, axis: int, group: int) -> None:
    """Round trip: no number moves by more than half a step."""
    allowed = half_steps(x, bits, axis, group)
    q, scale, zero = quantized(student, x, bits, axis, group)
    expect(student.dequantize, q, scale, zero, axis, group).satisfies(
        lambda back: back.shape == x.shape and bool(((back.double() - x).abs() <= allowed).all()),
        want=f"numbers within half a {bits}-bit step of {x.shape[0]} x {x.shape[1]} random ones",
        because=f"axis {axis}, groups of {group}",
    )


@task("sizing.6")
def test_fresh_keys(student, rng):
    """Keys come back within half a step, one scale per channel and group of tokens."""
    for bits in (2, 4, 8):
        comes_back(student, numbers(rng, 48, 32), bits, 0, rng.choice((4, 8, 16)))


@task("sizing.6")
def test_fresh_values(student, rng):
    """Values come back within half a step, one scale per token and group of channels."""
    for bits in (2, 4, 8):
        comes_back(student, numbers(rng, 48, 32).T.contiguous(), bits, 1, rng.choice((4, 8, 16)))


@task("sizing.6", after="test_fresh_keys")
def test_outlier_channel(student, rng):
    """A channel with very large numbers is not clipped and does not blur the others."""
    x = numbers(rng, 32, 16)
    x[:, rng.randrange(16)] *= 1000
    comes_back(student, x, 8, 0, 8)


@task("sizing.6", after="test_fresh_keys")
def test_codes_fit_their_bits(student, rng):
    """Codes run from 0 to 2**bits - 1 and have the shape of the input."""
    for bits in (2, 4):
        x, top = numbers(rng, 32, 16), 2**bits - 1
        expect(student.quantize, x, bits, 0, 8).satisfies(
            lambda value, x=x, top=top: value[0].shape == x.shape and list(value[0].aminmax()) == [0, top],
            want=f"codes of the shape of x, from 0 to {top}",
        )


@task("sizing.6", after="test_fresh_keys")
def test_ends_come_back(student, rng):
    """The smallest and the largest number of a group come back as they were."""
    x = numbers(rng, 32, 16)
    q, scale, zero = quantized(student, x, 2, 0, 8)
    ends = x.unflatten(0, (-1, 8)).aminmax(dim=1)
    expect(student.dequantize, q, scale, zero, 0, 8).satisfies(
        lambda back: all(
            bool(((a - b).abs() <= 1e-5 * x.abs().max()).all())
            for a, b in zip(back.unflatten(0, (-1, 8)).aminmax(dim=1), ends, strict=True)
        ),
        want="the minimum and maximum of every group of 8 tokens, unchanged",
    )


@task("sizing.6", after="test_fresh_keys")
def test_constant_groups(student, rng):
    """Groups of equal numbers come back exactly, beside groups that vary."""
    x = numbers(rng, 32, 16)
    x[8:16] = x[8]
    x[:, 3] = 0.0
    q, scale, zero = quantized(student, x, 4, 0, 8)
    expect(student.dequantize, q, scale, zero, 0, 8).satisfies(
        lambda back: bool((back[8:16] == x[8:16]).all()) and bool((back[:, 3] == 0).all()),
        want="tokens 8 to 15 and channel 3 exactly as they were",
    )


@task("sizing.6", after="test_fresh_values")
def test_one_scale_a_group(student, rng):
    """There is one scale and one zero for every group, no more."""
    for axis, shape in ((0, (4, 16)), (1, (32, 2))):
        expect(student.quantize, numbers(rng, 32, 16), 4, axis, 8).satisfies(
            lambda value, shape=shape: value[1].shape == shape and value[2].shape == shape,
            want=f"scale and zero of shape {list(shape)}",
        )


@task("sizing.6", after="test_fresh_values")
def test_codes_from_elsewhere(student, rng, solution):
    """`dequantize` reads codes that somebody else wrote: code x scale + zero."""
    for axis in (0, 1):
        q, scale, zero = solution.quantize(numbers(rng, 32, 16), 4, axis, 8)
        want = solution.dequantize(q, scale, zero, axis, 8)
        expect(student.dequantize, q, scale, zero, axis, 8).close(want, rtol=1e-5, atol=1e-5)


@task("sizing.6")
def test_fresh_costs(student, rng):
    """A number costs its bits and its share of a scale and a zero."""
    for _ in range(DRAWS):
        bits, group, meta = rng.choice((2, 4, 8)), rng.choice((16, 32, 64, 128)), rng.choice((8, 32))
        expect(student.quantized_bits, bits, group).close(bits + 32 / group, because="16 bits for each of two")
        expect(student.quantized_bits, bits, group, meta_bits=meta).close(
            bits + 2 * meta / group, because=f"{meta} bits each"
        )


@task("sizing.6", after="test_fresh_keys")
def test_input_is_left_alone(student, rng):
    """The numbers that are quantised stay as they were."""
    x = numbers(rng, 16, 8)
    before = x.clone()
    student.quantize(x, 4, 0, 8)
    assert bool((x == before).all()), "quantize changed the tensor it was given"


@task("sizing.6", after="test_fresh_keys")
def test_groups_that_cannot_be(student, rng):
    """Groups that do not divide the axis and unknown widths are refused by name."""
    x = numbers(rng, 24, 16)
    expect(student.quantize, x, 4, 0, rng.choice((5, 7, 9, 16))).refused(naming="group")
    expect(student.quantize, x, 4, 1, rng.choice((3, 5, 12, 24))).refused(naming="group")
    expect(student.quantize, x, 4, 0, -rng.randint(0, 8)).refused(naming="group")
    expect(student.quantize, x, rng.choice((0, 3, 5, 16)), 0, 8).refused(naming="bits")
