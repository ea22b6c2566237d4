"""The default attention: gather each sequence's keys and values to dense tensors, then PyTorch's own attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kvcourse.engine.blocks import num_blocks_for
from kvcourse.engine.layout import StepLayout


class GatherAttention:
    """Decodes of similar length go through one padded call, every prompt chunk through a call of its own."""

    def write(self, key: Tensor, value: Tensor, k_pool: Tensor, v_pool: Tensor, slot_mapping: Tensor) -> None:
        k_pool.flatten(0, 1).index_copy_(0, slot_mapping, key)
        v_pool.flatten(0, 1).index_copy_(0, slot_mapping, value)

    def attend(self, query: Tensor, k_pool: Tensor, v_pool: Tensor, layout: StepLayout, scaling: float) -> Tensor:
        if "gather" not in layout.scratch:  # the first layer sorts the step, the others find it sorted
            layout.scratch["gather"] = _sort_step(layout)
        decodes, chunks = layout.scratch["gather"]
        out = query.new_empty(query.shape)
        for group in decodes:
            out[group.rows] = _decode(query[group.rows], k_pool, v_pool, group, scaling)
        for chunk in chunks:
            out[chunk.rows] = _prefill(query[chunk.rows], k_pool, v_pool, chunk, scaling)
        return out


@dataclass
class _Decodes:
    """D sequences with one new token each, padded to the longest.

    rows: where they stand in the step; blocks [D * B]: block ids, sequence by sequence
    mask [D, 1, 1, B * block_size]: True where there is a key
    """

    rows: Tensor | slice
    blocks: Tensor
    mask: Tensor


@dataclass
class _Chunk:
    """One sequence with several new tokens. mask [count, context]; None for a whole prompt, which is plain causal."""

    rows: slice
    blocks: Tensor
    context: int
    mask: Tensor | None


def bottom_right_causal(count: int, context: int, device: torch.device | str = "cpu") -> Tensor:
    """[count, context] bool: the last query sees all keys, the one before it all but the last, and so on.

    SDPA's own `is_causal` is aligned top-left, which is right only when count equals context.
    """
    return torch.ones(count, context, dtype=torch.bool, device=device).tril(context - count)


def _decode(query: Tensor, k_pool: Tensor, v_pool: Tensor, group: _Decodes, scaling: float) -> Tensor:
    """query [D, heads, head_dim]. The query heads of one KV head act as its queries, so no key is repeated."""
    num, kv_heads = query.shape[0], k_pool.shape[2]
    keys = k_pool.index_select(0, group.blocks).unflatten(0, (num, -1)).flatten(1, 2)  # [D, S, kv_heads, head_dim]
    values = v_pool.index_select(0, group.blocks).unflatten(0, (num, -1)).flatten(1, 2)
    out = F.scaled_dot_product_attention(
        query.unflatten(1, (kv_heads, -1)),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=group.mask,
        scale=scaling,
    )
    return out.flatten(1, 2)


def _prefill(query: Tensor, k_pool: Tensor, v_pool: Tensor, chunk: _Chunk, scaling: float) -> Tensor:
    """query [count, heads, head_dim]. The query heads of one KV head share its keys through a view."""
    kv_heads = k_pool.shape[2]
    per_kv = query.shape[1] // kv_heads
    keys = k_pool.index_select(0, chunk.blocks).flatten(0, 1)[: chunk.context]  # [context, kv_heads, head_dim]
    values = v_pool.index_select(0, chunk.blocks).flatten(0, 1)[: chunk.context]
    out = F.scaled_dot_product_attention(
        query.unflatten(1, (kv_heads, per_kv)).permute(1, 2, 0, 3),
        keys.transpose(0, 1)[:, None].expand(-1, per_kv, -1, -1),
        values.transpose(0, 1)[:, None].expand(-1, per_kv, -1, -1),
        attn_mask=chunk.mask,
        is_causal=chunk.mask is None,
        scale=scaling,
    )
    return out.permute(2, 0, 1, 3).flatten(1, 2)


def _sort_step(layout: StepLayout) -> tuple[list[_Decodes], list[_Chunk]]:
    """The decodes of a step, grouped so that padding at most doubles the keys, and its chunks, with their masks."""
    tables, size = layout.block_tables, layout.block_size
    groups: dict[int, list[tuple[int, int]]] = {}  # size class -> (row, sequence)
    chunks: list[_Chunk] = []
    start = 0
    for sequence, (count, context) in enumerate(zip(layout.counts, layout.contexts, strict=True)):
        num_blocks = num_blocks_for(context, size)
        if count == 1:
            groups.setdefault((num_blocks - 1).bit_length(), []).append((start, sequence))
        else:
            mask = None if count == context else bottom_right_causal(count, context, tables.device)
            blocks = tables[sequence, :num_blocks].long()
            chunks.append(_Chunk(slice(start, start + count), blocks, context, mask))
        start += count
    all_alike = len(groups) == 1 and not chunks
    return [_pad(layout, members, all_alike) for members in groups.values()], chunks


def _pad(layout: StepLayout, members: list[tuple[int, int]], is_everyone: bool) -> _Decodes:
    tables, lens, device = layout.block_tables, layout.context_lens, layout.block_tables.device
    if is_everyone:
        rows: Tensor | slice = slice(None)
    else:
        rows = torch.tensor([row for row, _ in members], device=device)
        sequences = torch.tensor([sequence for _, sequence in members], device=device)
        tables, lens = tables[sequences], lens[sequences]
    width = num_blocks_for(max(layout.contexts[sequence] for _, sequence in members), layout.block_size)
    blocks = tables[:, :width].long().clamp(min=0).flatten()  # behind a table's end any block will do: it is masked
    mask = torch.arange(width * layout.block_size, device=device) < lens[:, None]
    return _Decodes(rows, blocks, mask[:, None, None, :])
