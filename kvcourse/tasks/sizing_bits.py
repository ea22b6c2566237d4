"""Public tests of sizing.6: a few numbers, quantised by hand."""

from __future__ import annotations

from typing import Any

from kvcourse.tasks.api import expect, task


@task("sizing.6")
def test_four_numbers_in_two_bits(student):
    """The smallest number of a group gets code 0, the largest the highest code, and the codes are evenly spaced."""
    tip = "zero is the minimum, scale is (maximum - minimum) / (2**bits - 1), codes are rounded"
    expect(student.quantize, tensor([[0, 1, 2, 3]]), 2, 1, 4).equals(
        (codes([[0, 1, 2, 3]]), tensor([[1]]), tensor([[0]])), because="3 steps of 1 from 0 to 3", tip=tip
    )
    expect(student.quantize, tensor([[-1, 0.4, 0.6, 5]]), 2, 1, 4).equals(
        (codes([[0, 1, 1, 3]]), tensor([[2]]), tensor([[-1]])),
        because="3 steps of 2 from -1 to 5; 1.4 / 2 and 1.6 / 2 are near 1",
        tip=tip,
    )


@task("sizing.6")
def test_codes_become_numbers(student):
    """`dequantize` turns codes back into numbers, every group with its own scale and zero."""
    expect(student.dequantize, codes([[0, 3, 0, 3]]), tensor([[1, 2]]), tensor([[0, 10]]), 1, 2).close(
        tensor([[0, 3, 10, 16]]),
        because="code x scale + zero: the first two numbers use scale 1 and zero 0, the others 2 and 10",
        tip="repeat each scale and zero `group` times in a row, along the axis",
    )


@task("sizing.6")
def test_the_axis_of_keys_and_values(student):
    """Axis 0 groups the tokens of one channel (keys), axis 1 the channels of one token (values)."""
    x = tensor([[0, 0], [3, 300]])
    expect(student.quantize, x, 2, 0, 2).equals(
        (codes([[0, 0], [3, 3]]), tensor([[1, 100]]), tensor([[0, 0]])),
        because="axis 0: each column has a scale of its own, so the large second channel does not blur the first",
        tip="take minimum and maximum along `axis`, group by group",
    )
    expect(student.quantize, x, 2, 1, 2).equals(
        (codes([[0, 0], [0, 3]]), tensor([[1], [99]]), tensor([[0], [3]])),
        because="axis 1: each row has a scale of its own; a constant row may use scale 1",
        tip="take minimum and maximum along `axis`, group by group",
    )


@task("sizing.6")
def test_equal_numbers_come_back_exactly(student):
    """A group of equal numbers comes back exactly."""
    x = tensor([[7, 7, 7, 7]])
    quantized = expect(student.quantize, x, 4, 1, 2).satisfies(
        is_triple, want="codes, scale and zero without nan", tip="avoid 0 / 0"
    )
    expect(student.dequantize, *quantized, 1, 2).equals(
        x, because="there is nothing to round", tip="use scale 1 where max = min"
    )


@task("sizing.6")
def test_the_error_is_half_a_step(student):
    """No number moves by more than half a step of its group."""
    x = tensor([[0.1, 0.9, 2.2, 3.0], [-8.0, -1.0, 0.0, 7.0]])
    for bits, step in (
        (2, tensor([[2.9 / 3], [5.0]])),
        (4, tensor([[2.9 / 15], [1.0]])),
        (8, tensor([[2.9 / 255], [15 / 255]])),
    ):
        quantized = expect(student.quantize, x, bits, 1, 4).satisfies(
            is_triple, want="three tensors: codes, scale and zero"
        )
        expect(student.dequantize, *quantized, 1, 4).satisfies(
            lambda back, step=step: bool(((back - x).abs() <= 0.5001 * step).all()),
            want=f"every number within half a step, {show_steps(step)}, of the {bits}-bit codes",
            because=f"x = {x.tolist()}",
            tip="round to the nearest code; do not cut off",
        )


@task("sizing.6")
def test_scales_and_zeros_cost_bits(student):
    """Scales and zeros cost bits too."""
    expect(student.quantized_bits, 2, 32).close(3.0, because="2 + (16 + 16) / 32", tip="add 2 x meta_bits / group")
    expect(student.quantized_bits, 4, 64).close(4.5, because="4 + (16 + 16) / 64")
    expect(student.quantized_bits, 8, 64, meta_bits=32).close(9.0, because="8 + (32 + 32) / 64", tip="use meta_bits")


@task("sizing.6", after="test_the_error_is_half_a_step")
def test_groups_that_do_not_fit_are_refused(student):
    """A group that does not divide the axis is refused, and so is an unknown width."""
    x, tip = tensor([[0, 1, 2]]), "raise ValueError with a sentence that names the argument"
    expect(student.quantize, x, 4, 1, 2).refused(naming="group", because="3 numbers are no whole groups of 2", tip=tip)
    expect(student.quantize, x, 4, 1, 0).refused(naming="group", because="a group has numbers", tip=tip)
    expect(student.quantize, x, 5, 1, 3).refused(
        naming="bits", because="codes of 2, 4 or 8 bits fit into bytes", tip=tip
    )


def tensor(rows: list) -> Any:
    import torch

    return torch.tensor(rows, dtype=torch.float32)


def codes(rows: list) -> Any:
    import torch

    return torch.tensor(rows, dtype=torch.uint8)


def is_triple(value: Any) -> bool:
    """Codes, scale and zero: three tensors of finite numbers, the codes in bytes."""
    q, scale, zero = value
    return str(q.dtype) == "torch.uint8" and bool(scale.isfinite().all()) and bool(zero.isfinite().all())


def show_steps(step: Any) -> str:
    return " and ".join(f"{float(value) / 2:.3g}" for value in step.reshape(-1))
