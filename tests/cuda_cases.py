"""Our own kernels with inputs and the answers that torch gives: for tests of both runs and for the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kvcourse.cuda import Kernel
from kvcourse.cuda.cpu.report import Report
from kvcourse.cuda.kernels import source as demonstration

HERE = Path(__file__).parent / "cuda_kernels"


@dataclass(frozen=True)
class Problem:
    """One launch: `outputs` maps the position of an argument to what it must hold afterwards."""

    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: list[Any]
    outputs: dict[int, torch.Tensor]
    shared: int = 0


@dataclass(frozen=True)
class Case:
    """A kernel and the function that makes a problem for it. `tolerance` is relative and absolute."""

    source: str
    name: str
    problem: Callable[[], Problem]
    template: str | None = None
    tolerance: float = 1e-5
    empty: tuple[str, ...] = ()
    counted: dict[str, int] = field(default_factory=dict)  # counters that must come out

    def kernel(self, source: str | None = None) -> Kernel:
        return Kernel(source or self.source, self.name, self.template)

    def check(self, source: str | None = None, **options: Any) -> Report:
        p = self.problem()
        return self.kernel(source).check(p.grid, p.block, *p.arguments, shared=p.shared, empty=self.empty, **options)


def _random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _unset(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, float("nan") if dtype.is_floating_point else 77, dtype=dtype)


def vector_add(n: int = 1000) -> Problem:
    a, b = _random(n), _random(n, seed=1)
    return Problem((n + 255) // 256, 256, [a, b, _unset(n), n], {2: a + b})


def strided_copy(n: int = 1024, stride: int = 8) -> Problem:
    a = _random(n * stride)
    return Problem(n // 128, 128, [a, _unset(n), n, stride], {1: a[::stride]})


def transpose(rows: int = 64, columns: int = 96) -> Problem:
    a = _random(rows, columns)
    return Problem(
        ((columns + 31) // 32, (rows + 31) // 32), (32, 32), [a, _unset(columns, rows), rows, columns], {1: a.T}
    )


def matmul(m: int = 64, n: int = 64, k: int = 64) -> Problem:
    a, b = _random(m, k), _random(k, n, seed=1)
    return Problem(((n + 15) // 16, (m + 15) // 16), (16, 16), [a, b, _unset(m, n), m, n, k], {2: a @ b})


def row_sum(rows: int = 8, columns: int = 1000) -> Problem:
    a = _random(rows, columns)
    return Problem(rows, 256, [a, _unset(rows), columns], {1: a.sum(1)})


def total_sum(n: int = 5000, blocks: int = 8) -> Problem:
    a = _random(n)
    parts, count = _unset(blocks), torch.zeros(1, dtype=torch.int32)
    return Problem(blocks, 128, [a, parts, _unset(1), count, n], {2: a.sum().view(1)})


def paged(
    sequences: int, most_tokens: int, block: int, kv_heads: int, d: int, dtype: torch.dtype, seed: int = 2
) -> tuple:
    """Keys and values in a paged pool with spare blocks, a shuffled table, and ragged lengths, the first one whole."""
    each = (most_tokens + block - 1) // block
    blocks = sequences * each + 3
    keys, values = (
        _random(blocks, block, kv_heads, d, dtype=dtype, seed=seed),
        _random(blocks, block, kv_heads, d, dtype=dtype, seed=seed + 1),
    )
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(seed))
    table = order[: sequences * each].view(sequences, each).int()
    lengths = torch.tensor([max(1, most_tokens - 7 * s) for s in range(sequences)], dtype=torch.int32)
    return keys, values, table, lengths


def attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Plain attention in double precision: query [q, heads, d], keys and values [t, kv_heads, d]."""
    groups = query.shape[1] // keys.shape[1]
    k, v = (x.double().repeat_interleave(groups, 1) for x in (keys, values))
    scores = torch.einsum("qhd,thd->hqt", query.double(), k) * scale
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    return torch.einsum("hqt,thd->qhd", scores.softmax(-1), v)


def paged_decode(
    sequences: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    d: int = 64,
    tokens: int = 70,
    block: int = 16,
    dtype: torch.dtype = torch.float16,
) -> Problem:
    keys, values, table, lengths = paged(sequences, tokens, block, kv_heads, d, dtype)
    queries = _random(sequences, heads, d, dtype=dtype, seed=9)
    rows = []
    for s, length in enumerate(lengths.tolist()):
        k, v = (pool[table[s].long()].flatten(0, 1)[:length] for pool in (keys, values))
        rows.append(attention(queries[s : s + 1], k, v, d**-0.5)[0])
    arguments = [
        _unset(sequences, heads, d, dtype=dtype),
        queries,
        keys,
        values,
        table,
        lengths,
        heads,
        kv_heads,
        table.shape[1],
        d**-0.5,
    ]
    return Problem((heads, sequences), 128, arguments, {0: torch.stack(rows).to(dtype)}, shared=4 * (d + 2) * 4)


def chunked_prefill(
    chunk: int = 20, cached: int = 37, heads: int = 4, kv_heads: int = 2, d: int = 64, block: int = 16, rows: int = 8
) -> Problem:
    keys, values, table, _ = paged(1, chunk + cached, block, kv_heads, d, torch.float32)
    queries = _random(chunk, heads, d, seed=9)
    k, v = (pool[table[0].long()].flatten(0, 1)[: chunk + cached] for pool in (keys, values))
    later = torch.arange(chunk + cached)[None, :] > (cached + torch.arange(chunk))[:, None]
    want = attention(queries, k, v, d**-0.5, later)
    arguments = [_unset(chunk, heads, d), queries, keys, values, table[0], chunk, cached, heads, kv_heads, d**-0.5]
    return Problem((heads, (chunk + rows - 1) // rows), (32, rows), arguments, {0: want.float()})


def write_int8(tokens: int = 24, d: int = 128) -> Problem:
    keys = _random(tokens, d)
    slots = torch.randperm(tokens + 8, generator=torch.Generator().manual_seed(3))[:tokens]
    slots[5] = -1
    cache, scales = torch.full((tokens + 8, d), 77, dtype=torch.int8), torch.full((tokens + 8,), -1.0)
    want_cache, want_scales = cache.clone(), scales.clone()
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            want_scales[slot] = keys[token].abs().max() / 127
            want_cache[slot] = (keys[token] / want_scales[slot]).round().to(torch.int8)
    return Problem(tokens, 32, [cache, scales, keys, slots, d], {0: want_cache, 1: want_scales})


def gather_int8(tokens: int = 64, d: int = 128, block: int = 16) -> Problem:
    cache = torch.randint(-127, 128, (tokens, d), dtype=torch.int8, generator=torch.Generator().manual_seed(4))
    scales = _random(tokens).abs()
    table = torch.randperm(tokens // block, generator=torch.Generator().manual_seed(5)).int()
    want = (cache.float() * scales[:, None]).view(-1, block, d)[table.long()].reshape(tokens, d)
    arguments = [_unset(tokens, d), cache, scales, table, tokens, d // 4, block]
    return Problem((tokens * d // 4 + 127) // 128, 128, arguments, {0: want})


def own_source(name: str) -> str:
    return (HERE / f"{name}.cu").read_text(encoding="utf-8")


CASES: dict[str, Case] = {
    "vector_add": Case(demonstration("vector_add"), "vector_add", vector_add, empty=("sum",)),
    "strided_copy": Case(
        demonstration("strided_copy"), "strided_copy", strided_copy, empty=("out",), counted={"load_sectors": 32 * 32}
    ),
    "transpose_naive": Case(
        demonstration("transpose"),
        "transpose_naive",
        transpose,
        empty=("out",),
        counted={"load_sectors": 768, "store_sectors": 6144},
    ),
    "transpose_tiled": Case(
        demonstration("transpose"), "transpose_tiled", transpose, "0", empty=("out",), counted={"waves": 192 + 192 * 32}
    ),
    "transpose_padded": Case(
        demonstration("transpose"),
        "transpose_tiled",
        transpose,
        "1",
        empty=("out",),
        counted={"waves": 384, "sectors": 1536},
    ),
    "matmul": Case(
        demonstration("matmul"),
        "matmul",
        matmul,
        empty=("C",),
        counted={"lines": 2304, "waves": 17_408, "barriers": 128},
    ),
    "row_sum": Case(demonstration("reduction"), "row_sum", row_sum, empty=("sums",)),
    "total_sum": Case(demonstration("reduction"), "total_sum", total_sum, empty=("parts", "total")),
    "paged_decode": Case(
        own_source("paged_decode"), "paged_decode", paged_decode, "__half, 64, 16", 1e-3, empty=("out",)
    ),
    "paged_decode_fp32": Case(
        own_source("paged_decode"),
        "paged_decode",
        lambda: paged_decode(dtype=torch.float32),
        "float, 64, 16",
        empty=("out",),
    ),
    "chunked_prefill": Case(
        own_source("chunked_prefill"), "chunked_prefill", chunked_prefill, "64, 8, 32, 16", empty=("out",)
    ),
    "write_int8": Case(own_source("write_int8"), "write_int8", write_int8),
    "gather_int8": Case(own_source("write_int8"), "gather_int8", gather_int8, empty=("out",)),
}
# Barriers that belong to another kernel of the same file: (case, which one).
BARRIER_NOT_USED = {("row_sum", 1), ("transpose_naive", 0)}
