"""Paged pools as an engine leaves them, with a trap in every unused place, and queries for given kinds of scores.

Block numbers are shuffled and every slot that no token owns holds NaN, so that a kernel which reads one number too many
cannot pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor

from kvcourse.cuda import Slice
from kvcourse.tasks.kernel_kit import UNTOUCHED

Logits = Literal["usual", "far below zero", "far above zero", "wide", "rising", "falling", "cancelling", "equal"]
NO_BLOCK = -1
SPARE_BLOCKS = 3
HIGH = 150.0  # a score so far from zero that exp(HIGH) and exp(-HIGH) are no floats
STEERED = 3e-4  # tolerance where scores are large: a float near 150 is rounded to 0.00001


@dataclass(frozen=True)
class Pool:
    """Keys and values of some sequences in blocks.

    dense[s] is what sequence s holds, [context, kv_heads, head_dim]; slots[s] is where that lies in the pools.
    """

    k_pool: Tensor
    v_pool: Tensor
    block_tables: Tensor
    contexts: tuple[int, ...]
    dense: tuple[tuple[Tensor, Tensor], ...]
    slots: tuple[Tensor, ...]
    block_size: int


def paged(
    rng: Random,
    contexts: Sequence[int],
    kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    *,
    shared_blocks: int = 0,
    first_block: int = 0,
    spread: float = 1.0,
    value_level: float = 0.0,
) -> Pool:
    """A pool with shuffled block numbers; unused slots hold NaN, block tables hold NO_BLOCK behind their end.

    shared_blocks: so many leading blocks are the same for all sequences (a shared prefix).
    first_block: the number of the pool's first block, for pools that are a part of a huge one.
    spread: the standard deviation of keys; value_level: the number that all values lie around.
    """
    needs = [-(-context // block_size) for context in contexts]
    assert shared_blocks * block_size <= min(contexts), "only full blocks are shared"
    num_blocks = shared_blocks + sum(need - shared_blocks for need in needs) + SPARE_BLOCKS
    order = rng.sample(range(num_blocks), num_blocks)
    shape = (num_blocks, block_size, kv_heads, head_dim)
    k_pool, v_pool = nan(*shape, dtype=dtype), nan(*shape, dtype=dtype)
    tables = torch.full((len(contexts), max(needs)), NO_BLOCK, dtype=torch.int32)
    common, used, dense, places = order[:shared_blocks], shared_blocks, [], []
    for s, (context, need) in enumerate(zip(contexts, needs, strict=True)):
        table = common + order[used : used + need - shared_blocks]
        used += need - shared_blocks
        tables[s, :need] = torch.tensor(table, dtype=torch.int32) + first_block
        known = shared_blocks * block_size if s else 0
        slots = torch.tensor([table[t // block_size] * block_size + t % block_size for t in range(context)])
        flat_k, flat_v = k_pool.flatten(0, 1), v_pool.flatten(0, 1)
        flat_k[slots[known:]] = numbers(rng, context - known, kv_heads, head_dim, dtype=dtype, spread=spread)
        flat_v[slots[known:]] = numbers(rng, context - known, kv_heads, head_dim, dtype=dtype) + value_level
        dense.append((flat_k[slots], flat_v[slots]))
        places.append(slots)
    return Pool(k_pool, v_pool, tables, tuple(contexts), tuple(dense), tuple(places), block_size)


def attention(query: Tensor, keys: Tensor, values: Tensor, scale: float, hidden: Tensor | None = None) -> Tensor:
    """Plain attention in double precision: query [q, heads, d], keys and values [t, kv_heads, d], hidden [q, t]."""
    groups = query.shape[1] // keys.shape[1]
    k, v = (x.double().repeat_interleave(groups, 1) for x in (keys, values))
    scores = torch.einsum("qhd,thd->hqt", query.double(), k) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.einsum("hqt,thd->qhd", scores.softmax(-1), v)


def steered(rng: Random, count: int, heads: int, pool: Pool, logits: Logits) -> tuple[Tensor, Pool, float]:
    """Queries, and keys changed so that the scores (query x key x scale) lie where `logits` says."""
    head_dim, dtype = pool.k_pool.shape[3], pool.k_pool.dtype
    query, scale = numbers(rng, count, heads, head_dim, dtype=dtype), head_dim**-0.5
    if logits == "wide":
        return query * 8, pool, scale
    if logits in ("rising", "falling"):  # as below, but the first number of the keys goes from -20 to 20 or back
        for (keys, _), slots in zip(pool.dense, pool.slots, strict=True):
            steps = torch.linspace(-20, 20, len(keys)) * (1 if logits == "rising" else -1)
            keys[..., 0] = steps.to(dtype)[:, None]
            pool.k_pool.flatten(0, 1)[slots] = keys
        query[..., 0] = HIGH / (20.0 * scale)
        return query, pool, scale
    if logits == "cancelling":  # scores are small sums of large products of both signs: half precision loses them
        signs = torch.tensor(rng.sample([1.0, -1.0] * (head_dim // 2), head_dim))
        for (keys, _), slots in zip(pool.dense, pool.slots, strict=True):
            keys += (200 * signs).to(dtype)
            pool.k_pool.flatten(0, 1)[slots] = keys
        return query.fill_(3.0), pool, scale
    if logits == "equal":  # all weights are equal; what is summed up is large in between, and small in the end
        for (_, values), slots in zip(pool.dense, pool.slots, strict=True):
            some = len(values) // 6
            values[:some], values[len(values) - some :] = 500.0, -500.0
            pool.v_pool.flatten(0, 1)[slots] = values
        return query.fill_(0.0), pool, scale
    if logits != "usual":  # the first number of all keys is 20, of all queries so large that it decides
        level = -HIGH if logits == "far below zero" else HIGH
        pool.k_pool[..., 0] = torch.where(pool.k_pool[..., 0].isnan(), pool.k_pool[..., 0], 20.0)
        for keys, _ in pool.dense:
            keys[..., 0] = 20.0
        query[..., 0] = level / (20.0 * scale)
    return query, pool, scale


def tolerance_for(logits: Logits, dtype: torch.dtype) -> float | None:
    return STEERED if logits != "usual" and dtype == torch.float32 else None


def placed(tensor: Tensor, start: int) -> Any:
    return Slice(tensor, start) if start else tensor


def numbers(rng: Random, *shape: int, dtype: torch.dtype = torch.float32, spread: float = 1.0) -> Tensor:
    """Random numbers around 0."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return (spread * torch.randn(*shape, generator=generator)).to(dtype)


def nan(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full(shape, float("nan") if dtype.is_floating_point else UNTOUCHED, dtype=dtype)


def decode_words(pool: Pool, heads: int, kv_heads: int, shared_blocks: int, logits: Logits, first_block: int) -> str:
    contexts = pool.contexts
    lengths = ", ".join(map(str, contexts))
    words = f"{counted(len(contexts), 'sequence')} of {lengths} token{'s' * (contexts != (1,))}, "
    words += f"{counted(heads, 'head')} over {counted(kv_heads, 'KV head')}"
    words += f", blocks of {pool.block_size}" + (f", {shared_blocks} of them shared" if shared_blocks else "")
    return words + logits_words(logits) + (f", block numbers from {first_block:,} on" if first_block else "")


def logits_words(logits: Logits) -> str:
    known = {"usual": "", "wide": ", scores far apart", "rising": ", scores rising", "falling": ", scores falling"}
    known |= {"cancelling": ", products that nearly cancel", "equal": ", equal scores, large values that cancel"}
    return known.get(logits, f", all scores {logits}")


def counted(number: int, what: str) -> str:
    """ "1 token", "2 tokens"."""
    return f"{number:,} {what}{'s' * (number != 1)}"
