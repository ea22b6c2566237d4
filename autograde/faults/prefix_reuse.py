"""Planted mistakes of prefix.7: moved keys, and tokens to compute again."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault


@fault("prefix.7", caught_by="test_keys_move_on", why="turns neighbours", source="5.6, log 47: interleaved layout")
def shift_keys(keys, delta, theta):
    half = keys.shape[-1] // 2
    halves = torch.cat([keys[..., 0::2], keys[..., 1::2]], dim=-1)
    moved = reference.shift_keys(halves, delta, theta)
    return torch.stack([moved[..., :half], moved[..., half:]], dim=-1).flatten(-2)


@fault("prefix.7", caught_by="test_keys_move_on", why="turns the wrong way")
def shift_keys(keys, delta, theta):
    return reference.shift_keys(keys, -delta, theta)


@fault("prefix.7", caught_by="test_keys_move_on", why="leaves the keys where they were", source="5.6")
def shift_keys(keys, delta, theta):
    return reference.shift_keys(keys, 0, theta)


@fault("prefix.7", caught_by="test_keys_move_on", why="takes i / head_dim for the exponent")
def shift_keys(keys, delta, theta):
    return reference.shift_keys(keys, delta, theta**0.5)


@fault("prefix.7", caught_by="test_keys_move_on", why="turns the first coordinate only")
def shift_keys(keys, delta, theta):
    half = keys.shape[-1] // 2
    return torch.cat([reference.shift_keys(keys, delta, theta)[..., :half], keys[..., half:]], dim=-1)


@fault("prefix.7", caught_by="test_keys_move_back", why="moves forward only")
def shift_keys(keys, delta, theta):
    return reference.shift_keys(keys, abs(delta), theta)


@fault("prefix.7", caught_by="test_other_bases", why="takes 10,000 for theta, whatever is given", source="log 47")
def shift_keys(keys, delta, theta):
    return reference.shift_keys(keys, delta, 10_000.0)


@fault("prefix.7", caught_by="test_shapes_of_keys", why="knows only tokens, heads and head dimension")
def shift_keys(keys, delta, theta):
    tokens, heads, head_dim = keys.shape
    return reference.shift_keys(keys.reshape(tokens, heads, head_dim), delta, theta)


@fault("prefix.7", caught_by="test_shapes_of_keys", why="takes 128 for the head dimension of large heads")
def shift_keys(keys, delta, theta):
    head_dim = keys.shape[-1]
    if head_dim <= 64:
        return reference.shift_keys(keys, delta, theta)
    return reference.shift_keys(keys, delta, theta ** (head_dim / 128))


@fault("prefix.7", caught_by="test_far_shifts", why="computes angles in the width of the keys", source="K13")
def shift_keys(keys, delta, theta):
    if keys.dtype == torch.float32:
        return reference.shift_keys(keys, delta, theta)
    half = keys.shape[-1] // 2
    angles = delta * theta ** (-torch.arange(half, dtype=keys.dtype) / half)
    a, b = keys.split(half, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


@fault("prefix.7", caught_by="test_far_shifts", why="gives 32-bit keys for 16-bit ones")
def shift_keys(keys, delta, theta):
    return reference.shift_keys(keys.float(), delta, theta)


@fault("prefix.7", caught_by="test_keys_are_left_alone", why="writes into the keys it is given", source="P2.9, log 24")
def shift_keys(keys, delta, theta):
    return keys.copy_(reference.shift_keys(keys, delta, theta))


@fault("prefix.7", caught_by="test_odd_heads", why="drops the last number of an odd head")
def shift_keys(keys, delta, theta):
    even = keys.shape[-1] // 2 * 2
    return torch.cat([reference.shift_keys(keys[..., :even], delta, theta), keys[..., even:]], dim=-1)


@fault("prefix.7", caught_by="test_fresh_picks", why="picks the tokens that are least off")
def pick_recompute(cached_k, fresh_k, ratio):
    least = (fresh_k - cached_k).float().flatten(1).norm(dim=1).argsort(stable=True)
    return sorted(least[: len(reference.pick_recompute(cached_k, fresh_k, ratio))].tolist())


@fault("prefix.7", caught_by="test_fresh_picks", why="picks by size, not by difference")
def pick_recompute(cached_k, fresh_k, ratio):
    return reference.pick_recompute(torch.zeros_like(cached_k), fresh_k / (1 + fresh_k.abs()), ratio)


@fault("prefix.7", caught_by="test_fresh_picks", why="gives the worst first, not in rising order")
def pick_recompute(cached_k, fresh_k, ratio):
    picked = reference.pick_recompute(cached_k, fresh_k, ratio)
    return sorted(picked, key=lambda i: -(fresh_k[i] - cached_k[i]).float().norm())


@fault("prefix.7", caught_by="test_fresh_picks", why="picks the first tokens", source="CacheBlend's baseline")
def pick_recompute(cached_k, fresh_k, ratio):
    return list(range(len(reference.pick_recompute(cached_k, fresh_k, ratio))))


@fault("prefix.7", caught_by="test_started_tokens_count", why="rounds the share down")
def pick_recompute(cached_k, fresh_k, ratio):
    reference.pick_recompute(cached_k, fresh_k, ratio)
    return reference.pick_recompute(cached_k, fresh_k, int(ratio * len(fresh_k)) / len(fresh_k))


@fault("prefix.7", caught_by="test_both_ends_of_the_share", why="computes one token at least")
def pick_recompute(cached_k, fresh_k, ratio):
    return reference.pick_recompute(cached_k, fresh_k, ratio or 1 / len(fresh_k))


@fault("prefix.7", caught_by="test_both_ends_of_the_share", why="refuses a share of 1")
def pick_recompute(cached_k, fresh_k, ratio):
    require(ratio != 1, "ratio must be below 1")
    return reference.pick_recompute(cached_k, fresh_k, ratio)


@fault("prefix.7", caught_by="test_ties_go_to_the_earlier", why="takes the later of equal ones")
def pick_recompute(cached_k, fresh_k, ratio):
    last = len(fresh_k) - 1
    return sorted(last - i for i in reference.pick_recompute(cached_k.flip(0), fresh_k.flip(0), ratio))


@fault("prefix.7", caught_by="test_the_length_of_the_difference", why="adds differences up")
def pick_recompute(cached_k, fresh_k, ratio):
    reference.pick_recompute(cached_k, fresh_k, ratio)
    sums = (fresh_k - cached_k).float().abs().flatten(1).sum(1)[:, None, None]
    return reference.pick_recompute(torch.zeros_like(sums), sums, ratio)


@fault("prefix.7", caught_by="test_the_length_of_the_difference", why="takes the largest difference")
def pick_recompute(cached_k, fresh_k, ratio):
    reference.pick_recompute(cached_k, fresh_k, ratio)
    largest = (fresh_k.float() - cached_k.float()).abs().flatten(1).amax(1)[:, None, None]
    return reference.pick_recompute(torch.zeros_like(largest), largest, ratio)


@fault("prefix.7", caught_by="test_the_length_of_the_difference", why="looks at the worst head only")
def pick_recompute(cached_k, fresh_k, ratio):
    reference.pick_recompute(cached_k, fresh_k, ratio)
    worst = (fresh_k.float() - cached_k.float()).norm(dim=-1).amax(1)[:, None, None]
    return reference.pick_recompute(torch.zeros_like(worst), worst, ratio)


@fault("prefix.7", caught_by="test_large_numbers_in_16_bits", why="squares in 16 bits")
def pick_recompute(cached_k, fresh_k, ratio):
    reference.pick_recompute(cached_k, fresh_k, ratio)
    squares = ((fresh_k - cached_k) ** 2).flatten(1).sum(1)[:, None, None]
    return reference.pick_recompute(torch.zeros_like(squares), squares, ratio)


@fault("prefix.7", caught_by="test_picks_that_cannot_be", why="accepts any share")
def pick_recompute(cached_k, fresh_k, ratio):
    tokens = min(len(cached_k), len(fresh_k))
    return reference.pick_recompute(cached_k[:tokens], fresh_k[:tokens], min(max(ratio, 0), 1))
