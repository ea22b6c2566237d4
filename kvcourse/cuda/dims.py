"""Grid, block and shared memory of a launch, within CUDA's limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvcourse.cuda.errors import LaunchError

Triple = tuple[int, int, int]
GRID_LIMIT: Triple = (2**31 - 1, 65_535, 65_535)
BLOCK_LIMIT: Triple = (1024, 1024, 64)
THREADS_LIMIT = 1024
SHARED_LIMIT = 48 << 10  # bytes a block has without asking for more


@dataclass(frozen=True)
class Dims:
    grid: Triple
    block: Triple
    shared: int  # bytes of dynamic shared memory

    @property
    def threads(self) -> int:
        return _product(self.grid) * _product(self.block)


def read_dims(grid: int | Sequence[int], block: int | Sequence[int], shared: int) -> Dims:
    """`grid` and `block` as three numbers each; LaunchError, one sentence, beyond CUDA's limits."""
    g, b = _triple("grid", grid, GRID_LIMIT), _triple("block", block, BLOCK_LIMIT)
    if _product(b) > THREADS_LIMIT:
        raise LaunchError(f"The block {b} has {_product(b):,} threads; CUDA allows {THREADS_LIMIT:,}.")
    if not isinstance(shared, int) or isinstance(shared, bool) or shared < 0:
        raise LaunchError(f"shared is {shared!r}: give the bytes of dynamic shared memory, 0 or more.")
    if shared > SHARED_LIMIT:
        raise LaunchError(f"shared={shared:,} is too much: a block has {SHARED_LIMIT:,} bytes of shared memory.")
    return Dims(g, b, shared)


def _triple(what: str, size: int | Sequence[int], limit: Triple) -> Triple:
    values = tuple(size) if isinstance(size, Sequence) else (size,)
    if not 1 <= len(values) <= 3 or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise LaunchError(f"{what} is {size!r}: give one to three whole numbers, such as 4 or (4, 2).")
    x, y, z = (*values, 1, 1, 1)[:3]
    for axis, value, most in zip("xyz", (x, y, z), limit, strict=True):
        if not 1 <= value <= most:
            raise LaunchError(f"{what}.{axis} is {value:,}; CUDA allows 1 to {most:,}.")
    return x, y, z


def _product(size: Triple) -> int:
    return size[0] * size[1] * size[2]
