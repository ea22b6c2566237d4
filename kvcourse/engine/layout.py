"""Where every token of a step stands: the numbers that attention needs, once for all layers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kvcourse.engine.request import Request, Row

NO_BLOCK = -1  # behind the end of a block table; reading there is a bug, and this makes it show


@dataclass(frozen=True)
class StepLayout:
    """T new tokens of S sequences, one sequence after the other in one row.

    positions [T] int64: place of each token in its sequence; slot_mapping [T] int64: where its key and value go
    query_starts [S + 1] int32: the tokens of sequence i are query_starts[i] .. query_starts[i + 1] - 1
    context_lens [S] int32: tokens of each sequence in the pool after this step, the new ones included
    block_tables [S, B] int32: blocks of each sequence in order, NO_BLOCK behind its end
    counts, contexts: the new tokens and the context of each sequence as plain ints, so that nobody waits for a GPU
    scratch: an attention part may keep here what all layers share
    """

    block_size: int
    positions: Tensor
    slot_mapping: Tensor
    query_starts: Tensor
    context_lens: Tensor
    block_tables: Tensor
    counts: tuple[int, ...]
    contexts: tuple[int, ...]
    scratch: dict[str, Any] = field(default_factory=dict)


class LayoutBuilder:
    """Keeps the block tables of running requests as rows of one tensor, so that a step writes only the new entries."""

    def __init__(self, max_running: int, max_blocks: int, block_size: int, device: torch.device | str) -> None:
        self.block_size, self.device = block_size, device
        self.tables = torch.full((max_running, max_blocks), NO_BLOCK, dtype=torch.int32)
        self.num_written = [0] * max_running
        self.free_seats = deque(range(max_running))

    def take_seat(self, request: Request) -> None:
        request.seat = self.free_seats.popleft()

    def leave_seat(self, request: Request) -> None:
        assert request.seat is not None
        self.tables[request.seat] = NO_BLOCK
        self.num_written[request.seat] = 0
        self.free_seats.append(request.seat)
        request.seat = None

    def build(self, rows: Sequence[Row]) -> tuple[Tensor, StepLayout, Tensor]:
        """Token ids [T], the layout, and for every row that ends at its last token the index of that token in [T]."""
        for row in rows:
            self._write_new_blocks(row.request)
        counts = tuple(row.count for row in rows)
        contexts = tuple(row.end for row in rows)
        ids = [token for row in rows for token in row.request.tokens[row.start : row.end]]
        starts = [0]
        for count in counts:
            starts.append(starts[-1] + count)
        last = [start - 1 for start, row in zip(starts[1:], rows, strict=True) if row.is_last]

        seats = torch.tensor([row.request.seat for row in rows])
        block_tables = self.tables[seats, : max(len(row.request.block_table) for row in rows)]
        if len(ids) == len(rows):
            positions = torch.tensor([row.start for row in rows])
            sequence = torch.arange(len(rows))
        else:
            positions = torch.cat([torch.arange(row.start, row.end) for row in rows])
            sequence = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(counts))
        blocks = block_tables[sequence, positions // self.block_size].long()
        layout = StepLayout(
            block_size=self.block_size,
            positions=positions.to(self.device),
            slot_mapping=(blocks * self.block_size + positions % self.block_size).to(self.device),
            query_starts=torch.tensor(starts, dtype=torch.int32).to(self.device),
            context_lens=torch.tensor(contexts, dtype=torch.int32).to(self.device),
            block_tables=block_tables.to(self.device),
            counts=counts,
            contexts=contexts,
        )
        return torch.tensor(ids).to(self.device), layout, torch.tensor(last, dtype=torch.long).to(self.device)

    def _write_new_blocks(self, request: Request) -> None:
        seat, table = request.seat, request.block_table
        done = self.num_written[seat]
        if done < len(table):
            self.tables[seat, done : len(table)] = torch.tensor(table[done:], dtype=torch.int32)
            self.num_written[seat] = len(table)
