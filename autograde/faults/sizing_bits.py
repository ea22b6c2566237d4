"""Planted mistakes of sizing.6, quantisation."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault


@fault("sizing.6", caught_by="test_fresh_keys", why="quantises keys per token", source="KIVI")
class per_token_keys:
    def quantize(x, bits, axis, group):
        return reference.quantize(x, bits, 1, group)

    def dequantize(q, scale, zero, axis, group):
        return reference.dequantize(q, scale, zero, 1, group)


@fault("sizing.6", caught_by="test_fresh_keys", why="gives a channel one scale for all its tokens")
def quantize(x, bits, axis, group):
    right = reference.quantize(x, bits, axis, group)
    if axis == 1:
        return right
    q, scale, zero = reference.quantize(x, bits, 0, x.shape[0])
    return q, scale.repeat(x.shape[0] // group, 1), zero.repeat(x.shape[0] // group, 1)


@fault("sizing.6", caught_by="test_fresh_values", why="quantises values per channel", source="KIVI")
class per_channel_values:
    def quantize(x, bits, axis, group):
        reference.quantize(x, bits, axis, group)
        return reference.quantize(x, bits, 0, group)

    def dequantize(q, scale, zero, axis, group):
        return reference.dequantize(q, scale, zero, 0, group)


@fault("sizing.6", caught_by="test_fresh_keys", why="cuts off in place of rounding")
def quantize(x, bits, axis, group):
    _, scale, zero = reference.quantize(x, bits, axis, group)
    wide_scale, wide_zero = scale.repeat_interleave(group, axis), zero.repeat_interleave(group, axis)
    return ((x - wide_zero) / wide_scale).to(torch.uint8), scale, zero


@fault("sizing.6", caught_by="test_fresh_keys", why="centres the codes on 0")
def quantize(x, bits, axis, group):
    reference.quantize(x, bits, axis, group)
    groups = x.unflatten(axis, (-1, group))
    largest = groups.abs().amax(axis + 1).clamp(min=1e-9)
    scale, zero = 2 * largest / (2**bits - 1), -largest
    codes = (groups - zero.unsqueeze(axis + 1)) / scale.unsqueeze(axis + 1)
    return codes.round().to(torch.uint8).flatten(axis, axis + 1), scale, zero


@fault("sizing.6", caught_by="test_fresh_keys", why="has one scale for the whole tensor")
def quantize(x, bits, axis, group):
    _, scale, zero = reference.quantize(x, bits, axis, group)
    low, step = x.min(), (x.max() - x.min()) / (2**bits - 1)
    codes = ((x - low) / step.clamp(min=1e-9)).round().to(torch.uint8)
    return codes, torch.full_like(scale, step), torch.full_like(zero, low)


@fault("sizing.6", caught_by="test_fresh_keys", why="takes scale 1 whatever the data", source="vLLM #11906")
def quantize(x, bits, axis, group):
    _, scale, zero = reference.quantize(x, bits, axis, group)
    codes = (x - zero.repeat_interleave(group, axis)).round().clamp(0, 2**bits - 1)
    return codes.to(torch.uint8), torch.ones_like(scale), zero


@fault("sizing.6", caught_by="test_fresh_keys", why="divides by 2**bits, so the largest code overflows")
def quantize(x, bits, axis, group):
    _, scale, zero = reference.quantize(x, bits, axis, group)
    scale = scale * (2**bits - 1) / 2**bits
    codes = (x - zero.repeat_interleave(group, axis)) / scale.repeat_interleave(group, axis)
    return codes.round().to(torch.int32).remainder(2**bits).to(torch.uint8), scale, zero


@fault("sizing.6", caught_by="test_fresh_keys", why="repeats the scales in turns, not in a row")
def dequantize(q, scale, zero, axis, group):
    times = (group, 1) if axis == 0 else (1, group)
    return q * scale.repeat(times) + zero.repeat(times)


@fault("sizing.6", caught_by="test_fresh_keys", why="forgets the zero")
def dequantize(q, scale, zero, axis, group):
    return q * scale.repeat_interleave(group, axis)


@fault("sizing.6", caught_by="test_outlier_channel", why="clips at 448 as an 8-bit float does", source="vLLM #11906")
def quantize(x, bits, axis, group):
    return reference.quantize(x.clamp(-448, 448), bits, axis, group)


@fault("sizing.6", caught_by="test_codes_fit_their_bits", why="uses all 8 bits of a code")
def quantize(x, bits, axis, group):
    reference.quantize(x, bits, axis, group)
    return reference.quantize(x, 8, axis, group)


@fault("sizing.6", caught_by="test_ends_come_back", why="puts codes in the middle of their steps")
def quantize(x, bits, axis, group):
    _, scale, low = reference.quantize(x, bits, axis, group)
    groups = x.unflatten(axis, (-1, group))
    constant = groups.amax(axis + 1) == groups.amin(axis + 1)
    scale = scale * (2**bits - 1) / 2**bits
    codes = ((groups - low.unsqueeze(axis + 1)) / scale.unsqueeze(axis + 1)).floor().clamp(0, 2**bits - 1)
    return codes.to(torch.uint8).flatten(axis, axis + 1), scale, torch.where(constant, low, low + scale / 2)


@fault("sizing.6", caught_by="test_constant_groups", why="loses groups without a spread")
def quantize(x, bits, axis, group):
    q, scale, zero = reference.quantize(x, bits, axis, group)
    groups = x.unflatten(axis, (-1, group))
    return q, scale, torch.where(groups.amax(axis + 1) == groups.amin(axis + 1), 0.0, zero)


@fault("sizing.6", caught_by="test_one_scale_a_group", why="stores a scale and a zero for every number", source="P1.16")
class full_size_scales:
    def quantize(x, bits, axis, group):
        q, scale, zero = reference.quantize(x, bits, axis, group)
        return q, scale.repeat_interleave(group, axis), zero.repeat_interleave(group, axis)

    def dequantize(q, scale, zero, axis, group):
        if scale.shape != q.shape:
            return reference.dequantize(q, scale, zero, axis, group)
        return q * scale + zero


@fault("sizing.6", caught_by="test_codes_from_elsewhere", why="takes zero for a code, not for a number")
class zero_points:
    def quantize(x, bits, axis, group):
        q, scale, zero = reference.quantize(x, bits, axis, group)
        return q, scale, -zero / scale

    def dequantize(q, scale, zero, axis, group):
        return (q - zero.repeat_interleave(group, axis)) * scale.repeat_interleave(group, axis)


@fault("sizing.6", caught_by="test_fresh_costs", why="forgets that zeros are stored", source="P1.16")
def quantized_bits(bits, group, meta_bits=16):
    return bits + meta_bits / group


@fault("sizing.6", caught_by="test_fresh_costs", why="forgets scales and zeros", source="P1.16")
def quantized_bits(bits, group, meta_bits=16):
    return float(bits)


@fault("sizing.6", caught_by="test_fresh_costs", why="knows 16-bit scales only", source="P1.16")
def quantized_bits(bits, group, meta_bits=16):
    return bits + 32 / group


@fault("sizing.6", caught_by="test_input_is_left_alone", why="writes the rounded numbers into its input")
def quantize(x, bits, axis, group):
    q, scale, zero = reference.quantize(x, bits, axis, group)
    x.copy_(reference.dequantize(q, scale, zero, axis, group))
    return q, scale, zero


@fault("sizing.6", caught_by="test_groups_that_cannot_be", why="leaves out the numbers of a group that is not whole")
def quantize(x, bits, axis, group):
    group = max(group, 1)
    return reference.quantize(x.narrow(axis, 0, x.shape[axis] // group * group), bits, axis, group)
