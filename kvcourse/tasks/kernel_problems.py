"""Launches of the kernels of lesson 5 with fresh inputs, and their answers: plain attention in double precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor

from kvcourse.cuda import Slice
from kvcourse.tasks.kernel_inputs import (
    HIGH,
    SPARE_BLOCKS,
    Logits,
    attention,
    counted,
    decode_words,
    logits_words,
    nan,
    numbers,
    paged,
    placed,
    steered,
    tolerance_for,
)
from kvcourse.tasks.kernel_kit import Problem

CPP = {torch.float32: "float", torch.float16: "__half"}
DTYPES = tuple(CPP)
FAR = 2**33  # elements: an index that no `int` holds
ROWS = 8  # queries of a block of chunked_prefill
THREADS = 128


def axpy(rng: Random, n: int) -> Problem:
    """n numbers, in blocks of 128 threads."""
    x, y, a = numbers(rng, n), numbers(rng, n), round(rng.uniform(-3, 3), 2)
    return Problem(
        "axpy", None, -(-n // THREADS), THREADS,
        ("float*", "const float*", "const float*", "float", "int"),
        {"out": nan(n), "x": x, "y": y, "a": a, "n": n},
        lambda: {"out": torch.tensor(a, dtype=torch.float32).double() * x.double() + y.double()},
        f"{counted(n, 'number')}, {counted(-(-n // THREADS), 'block')} of {THREADS} threads",
        lambda _, at: f"number {at[0]}", empty=("out",),
    )  # fmt: skip


def write_kv(
    rng: Random,
    tokens: int,
    kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    *,
    slots: Sequence[int] | None = None,
    far: bool = False,
) -> Problem:
    """New tokens into a pool that holds others already; `slots` by token, negative ones are padding.

    far: the pool is a part of a huge one, so that slot * width is beyond 32 bits.
    """
    width, num_blocks = kv_heads * head_dim, -(-tokens // block_size) + SPARE_BLOCKS
    if slots is None:
        slots = rng.sample(range(num_blocks * block_size), tokens)
    num_blocks = max(num_blocks, -(-(max(slots) + 1) // block_size))
    first = FAR // width // 512 * 512 if far else 0
    shape = (num_blocks, block_size, kv_heads, head_dim)
    pools = [numbers(rng, *shape, dtype=dtype) for _ in range(2)]
    new = [numbers(rng, tokens, kv_heads, head_dim, dtype=dtype) for _ in range(2)]
    mapping = torch.tensor([slot + first if slot >= 0 else slot for slot in slots])

    def want() -> dict[str, Tensor]:
        after = [pool.clone().flatten(0, 1) for pool in pools]
        for token, slot in enumerate(slots):
            if slot >= 0:
                for pool, values in zip(after, new, strict=True):
                    pool[slot] = values[token]
        return {name: pool.view(shape) for name, pool in zip(("k_pool", "v_pool"), after, strict=True)}

    padding = sum(slot < 0 for slot in slots)
    words = f"{counted(tokens, 'token')}, {counted(kv_heads, 'KV head')} of {head_dim}, blocks of {block_size}"
    return Problem(
        "write_kv", CPP[dtype], tokens, THREADS,
        ("T*", "T*", "const T*", "const T*", "const long long*", "int"),
        {
            "k_pool": placed(pools[0], first * width), "v_pool": placed(pools[1], first * width),
            "key": new[0], "value": new[1], "slot_mapping": mapping, "width": width,
        },
        want,
        words + (f", {padding} of them padding" if padding else "") + (f", slots from {first:,} on" if far else ""),
        lambda name, at: f"{name}, slot {at[0] * block_size + at[1] + first}, head {at[2]}, number {at[3]}",
        tolerance=1e-12,
    )  # fmt: skip


def paged_decode(
    rng: Random,
    contexts: Sequence[int],
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    *,
    shared_blocks: int = 0,
    logits: Logits = "usual",
    far: bool = False,
    own_scale: float | None = None,
    value_level: float = 0.0,
    tolerance: float | None = None,
) -> Problem:
    """One query for each sequence over its paged keys and values; own_scale: in place of 1 / sqrt(head_dim)."""
    first_block = FAR // (block_size * kv_heads * head_dim) // 512 * 512 if far else 0
    pool = paged(
        rng, contexts, kv_heads, head_dim, block_size, dtype, shared_blocks=shared_blocks, first_block=first_block,
        value_level=value_level,
    )  # fmt: skip
    query, pool, scale = steered(rng, len(contexts), heads, pool, logits)
    scale, groups = own_scale or scale, heads // kv_heads

    def want() -> dict[str, Tensor]:
        rows = [attention(query[s : s + 1], *pool.dense[s], scale)[0] for s in range(len(contexts))]
        return {"out": torch.stack(rows)}

    tables = pool.block_tables
    return Problem(
        "paged_decode", f"{CPP[dtype]}, {head_dim}", (heads, len(contexts)), THREADS,
        ("T*", "const T*", "const T*", "const T*", "const int*", "const int*", "int", "int", "int", "int", "float"),
        {
            "out": nan(len(contexts), heads, head_dim, dtype=dtype), "query": query,
            "k_pool": placed(pool.k_pool, first_block * block_size * kv_heads * head_dim),
            "v_pool": placed(pool.v_pool, first_block * block_size * kv_heads * head_dim),
            "block_tables": tables, "context_lens": torch.tensor(contexts, dtype=torch.int32),
            "heads": heads, "kv_heads": kv_heads, "block_size": block_size, "max_blocks": tables.shape[1],
            "scale": scale,
        },
        want,
        decode_words(pool, heads, kv_heads, shared_blocks, logits, first_block)
        + (f", a scale of {own_scale:g}" if own_scale else "")
        + (f", values around {value_level:g}" if value_level else ""),
        lambda _, at: f"sequence {at[0]}, head {at[1]} (KV head {at[1] // groups}), number {at[2]}",
        empty=("out",), tolerance=tolerance or tolerance_for(logits, dtype),
    )  # fmt: skip


def chunked_prefill(
    rng: Random,
    count: int,
    cached: int,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    *,
    logits: Logits = "usual",
    value_level: float = 0.0,
    far: bool = False,
    tolerance: float | None = None,
) -> Problem:
    """A chunk of `count` queries behind `cached` keys; the keys of the chunk are in the pool already."""
    first_block = FAR // (block_size * kv_heads * head_dim) // 512 * 512 if far else 0
    contexts = [cached + count]
    pool = paged(rng, contexts, kv_heads, head_dim, block_size, dtype, first_block=first_block, value_level=value_level)
    query, pool, scale = steered(rng, count, heads, pool, logits)
    later = torch.arange(cached + count)[None, :] > (cached + torch.arange(count))[:, None]
    words = f"{count} {'query' if count == 1 else 'queries'} behind {counted(cached, 'cached key')}, "
    words += f"{counted(heads, 'head')} over {counted(kv_heads, 'KV head')}, blocks of {block_size}"
    words += logits_words(logits) + (f", values around {value_level:g}" if value_level else "")
    words += f", block numbers from {first_block:,} on" if far else ""
    return Problem(
        "chunked_prefill", f"{CPP[dtype]}, {head_dim}", (heads, -(-count // ROWS)), (32, ROWS),
        ("T*", "const T*", "const T*", "const T*", "const int*", "int", "int", "int", "int", "int", "float"),
        {
            "out": nan(count, heads, head_dim, dtype=dtype), "query": query,
            "k_pool": placed(pool.k_pool, first_block * block_size * kv_heads * head_dim),
            "v_pool": placed(pool.v_pool, first_block * block_size * kv_heads * head_dim),
            "block_table": pool.block_tables[0].clone(), "count": count, "cached": cached, "heads": heads,
            "kv_heads": kv_heads, "block_size": block_size, "scale": scale,
        },
        lambda: {"out": attention(query, *pool.dense[0], scale, later)}, words,
        lambda _, at: f"query {at[0]} (position {cached + at[0]}), head {at[1]}, number {at[2]}",
        empty=("out",), tolerance=tolerance or tolerance_for(logits, dtype),
    )  # fmt: skip


def paged_decode_int8(
    rng: Random,
    contexts: Sequence[int],
    split_tokens: int,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    *,
    codes_from: int = -127,
    alike: str = "",
    uneven: bool = False,
    logits: Logits = "usual",
    far: bool = False,
) -> Problem:
    """One query for each sequence over an 8-bit pool, split over the sequence.

    Unused slots hold random codes and NaN as the scale of the value.
    codes_from: the smallest code, the largest is 127; uneven: one channel's keys are 100 times larger
    alike: "k", "v" or "kv", whose scales are all the same
    """
    assert logits in ("usual", "far below zero", "far above zero")
    first_block = FAR // (block_size * kv_heads * head_dim) // 512 * 512 if far else 0
    pool = paged(rng, contexts, kv_heads, head_dim, block_size, torch.float32, first_block=first_block)
    shape = pool.k_pool.shape
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    codes = [torch.randint(codes_from, 128, shape, generator=generator, dtype=torch.int8) for _ in range(2)]
    k_scale = 0.004 + 0.01 * torch.rand(kv_heads, head_dim, generator=generator)
    if uneven:
        k_scale[:, rng.randrange(head_dim)] *= 100
    v_scale = 0.004 + 0.01 * torch.rand(shape[0] * block_size, kv_heads, generator=generator)
    v_scale[pool.v_pool.flatten(0, 1)[:, 0, 0].isnan()] = float("nan")
    if "k" in alike:
        k_scale[:] = 0.01
    if "v" in alike:
        v_scale[:] = 0.01
    query = numbers(rng, len(contexts), heads, head_dim, dtype=dtype)
    scale, splits = head_dim**-0.5, -(-max(contexts) // split_tokens)
    if logits != "usual":  # the first number of all keys is 100 x 0.1, of all queries so large that it decides
        codes[0][..., 0], k_scale[:, 0] = 100, 0.1
        query[..., 0] = (HIGH if logits == "far above zero" else -HIGH) / (10 * scale)

    def want() -> dict[str, Tensor]:
        partial = torch.zeros(len(contexts), heads, splits, head_dim, dtype=torch.float64)
        lse = torch.full((len(contexts), heads, splits), -torch.inf, dtype=torch.float64)
        for s, context in enumerate(contexts):
            places = pool.slots[s]
            k = codes[0].flatten(0, 1)[places].double() * k_scale.double()
            v = codes[1].flatten(0, 1)[places].double() * v_scale[places].double()[:, :, None]
            for z in range(splits):
                part = slice(z * split_tokens, min((z + 1) * split_tokens, context))
                if part.start < context:
                    partial[s, :, z] = attention(query[s : s + 1], k[part], v[part], scale)[0]
                    keys = k[part].repeat_interleave(heads // kv_heads, 1)
                    lse[s, :, z] = torch.einsum("hd,thd->ht", query[s].double(), keys).mul(scale).logsumexp(-1)
        return {"partial": partial, "lse": lse}

    def place(name: str, at: tuple[int, ...]) -> str:
        tail = f", number {at[3]}" if name == "partial" else ""
        return f"{name}: sequence {at[0]} ({contexts[at[0]]} tokens), head {at[1]}, split {at[2]}{tail}"

    tables = pool.block_tables
    words = f"{decode_words(pool, heads, kv_heads, 0, logits, first_block)}, splits of {split_tokens}"
    words += ", one channel of the keys 100 times larger" if uneven else ""
    words += ", no negative codes" if codes_from >= 0 else ""
    start = first_block * block_size * kv_heads
    return Problem(
        "paged_decode_int8", f"{CPP[dtype]}, {head_dim}", (heads, len(contexts), splits), THREADS,
        ("float*", "float*", "const T*", "const signed char*", "const signed char*", "const float*", "const float*",
         "const int*", "const int*", "int", "int", "int", "int", "int", "float"),
        {
            "partial": nan(len(contexts), heads, splits, head_dim), "lse": nan(len(contexts), heads, splits),
            "query": query, "k_pool": placed(codes[0], start * head_dim), "v_pool": placed(codes[1], start * head_dim),
            "k_scale": k_scale, "v_scale": placed(v_scale, start),
            "block_tables": tables, "context_lens": torch.tensor(contexts, dtype=torch.int32), "heads": heads,
            "kv_heads": kv_heads, "block_size": block_size, "max_blocks": tables.shape[1],
            "split_tokens": split_tokens, "scale": scale,
        },
        want, words, place, empty=("partial", "lse"), tolerance=tolerance_for(logits, torch.float32),
    )  # fmt: skip


def merge_splits(
    rng: Random,
    sequences: int,
    splits: int,
    heads: int = 4,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
    *,
    level: float = 0.0,
    order: Literal["any", "rising", "falling"] = "any",
    empty_splits: int = 0,
) -> Problem:
    """Partial results of splits; the last `empty_splits` of every sequence have none.

    level: where all lse lie; order: how those of a sequence and head follow each other
    """
    partial = numbers(rng, sequences, heads, splits, head_dim)
    lse = numbers(rng, sequences, heads, splits, spread=2.0) + level
    if order != "any":
        lse = lse.sort(-1, descending=order == "falling").values
    if empty_splits:
        partial[:, :, -empty_splits:], lse[:, :, -empty_splits:] = 0.0, -torch.inf
    words = f"{counted(sequences, 'sequence')}, {counted(heads, 'head')}, {counted(splits, 'split')}"
    words += (f", lse around {level:g}" if level else "") + (f", lse {order}" if order != "any" else "")
    return Problem(
        "merge_splits", f"{CPP[dtype]}, {head_dim}", (heads, sequences), THREADS,
        ("T*", "const float*", "const float*", "int"),
        {"out": nan(sequences, heads, head_dim, dtype=dtype), "partial": partial, "lse": lse, "splits": splits},
        lambda: {"out": (lse.double().softmax(-1)[..., None] * partial.double()).sum(2)},
        words + (f", {empty_splits} of them empty" if empty_splits else ""),
        lambda _, at: f"sequence {at[0]}, head {at[1]}, number {at[2]}", empty=("out",),
    )  # fmt: skip


def arguments_of(problem: Problem) -> Mapping[str, Any]:
    """The arguments by name, slices as plain tensors."""
    return {name: value.tensor if isinstance(value, Slice) else value for name, value in problem.arguments.items()}
