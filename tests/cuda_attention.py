"""The engine's attention as three kernels: the same part on a GPU and on a CPU."""

from __future__ import annotations

import cuda_cases
import torch

from kvcourse.cuda import Kernel
from kvcourse.engine.layout import StepLayout

ROWS, COLUMNS = 8, 32  # queries and keys of a tile of chunked_prefill


class KernelAttention:
    """float32, heads of `d`, blocks of `block_size`."""

    def __init__(self, d: int, block_size: int) -> None:
        self.d = d
        self.write_kv = Kernel(cuda_cases.own_source("write_kv"), "write_kv")
        self.decode = Kernel(cuda_cases.own_source("paged_decode"), "paged_decode", f"float, {d}, {block_size}")
        self.prefill = Kernel(
            cuda_cases.own_source("chunked_prefill"), "chunked_prefill", f"{d}, {ROWS}, {COLUMNS}, {block_size}"
        )

    def write(self, key, value, k_pool, v_pool, slot_mapping) -> None:
        width = key[0].numel()
        self.write_kv.launch(len(key), 128, key, value, k_pool, v_pool, slot_mapping, width)

    def attend(self, query, k_pool, v_pool, layout: StepLayout, scaling: float):
        out = torch.empty_like(query)
        heads, kv_heads, tables = query.shape[1], k_pool.shape[2], layout.block_tables
        if set(layout.counts) == {1}:
            sizes = (heads, kv_heads, tables.shape[1], scaling)
            grid = (heads, len(layout.counts))
            self.decode.launch(
                grid, 128, out, query, k_pool, v_pool, tables, layout.context_lens, *sizes, shared=16 * (self.d + 2)
            )
            return out
        start = 0
        for i, (count, context) in enumerate(zip(layout.counts, layout.contexts, strict=True)):
            rows = slice(start, start + count)
            grid = (heads, (count + ROWS - 1) // ROWS)
            sizes = (count, context - count, heads, kv_heads, scaling)
            self.prefill.launch(grid, (32, ROWS), out[rows], query[rows], k_pool, v_pool, tables[i], *sizes)
            start += count
        return out
