"""The pool: one tensor that holds the keys and values of all blocks of all layers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kvcourse.engine.sockets import SocketError


class KVPool:
    """data: [layers, 2, blocks, block_size, kv_heads, head_dim]; index 0 of the second axis is keys, 1 is values.

    ValueError if it does not fit into memory.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.block_shape = (num_layers, 2, block_size, num_kv_heads, head_dim)
        self.block_bytes = math.prod(self.block_shape) * dtype.itemsize
        try:
            # Zeros, not empty memory: attention multiplies masked slots by 0, and 0 times a stray NaN is NaN.
            shape = (num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim)
            self.data = torch.zeros(shape, dtype=dtype, device=device)
        except RuntimeError as error:
            size = f"{num_blocks} blocks of {self.block_bytes:,} bytes"
            raise ValueError(f"The pool does not fit into the memory of {device}: {size}.") from error

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, each [blocks, block_size, kv_heads, head_dim]; views of the pool."""
        return self.data[index, 0], self.data[index, 1]

    def read(self, block: int) -> Tensor:
        """One block of all layers, [layers, 2, block_size, kv_heads, head_dim]; a view of the pool."""
        return self.data[:, :, block]

    def write(self, block: int, data: Tensor) -> None:
        """Fill one block of all layers."""
        self.data[:, :, block].copy_(data)

    def check_block(self, data: Any) -> None:
        """SocketError unless `data` is a block of this pool."""
        if not isinstance(data, Tensor):
            raise SocketError("tiers", f"load gave a {type(data).__name__}, not a tensor.")
        if tuple(data.shape) != self.block_shape or data.dtype != self.data.dtype:
            want = f"{list(self.block_shape)} {self.data.dtype}"
            raise SocketError("tiers", f"load gave a tensor {list(data.shape)} {data.dtype}; a block is {want}.")
