"""Prompt contents as names: a segment is a run of tokens that its name determines, so a trace stays small."""

from __future__ import annotations

import struct
from functools import lru_cache
from random import Random
from typing import NamedTuple

TOKEN_BYTES = 4


class Segment(NamedTuple):
    """`length` pseudo-random token ids in [low, high); equal segments have equal tokens, on every machine."""

    name: str
    length: int
    low: int
    high: int

    def token_ids(self) -> list[int]:
        return list(struct.unpack(f"<{self.length}I", self.packed()))

    def packed(self) -> bytes:
        """The token ids as little-endian 4-byte numbers: short to keep, quick to cut into blocks and compare."""
        return _packed(self)


@lru_cache(maxsize=512)
def _packed(segment: Segment) -> bytes:
    name, length, low, high = segment
    noise = Random(name).randbytes(TOKEN_BYTES * length)
    width, form = high - low, f"<{length}I"
    return struct.pack(form, *(low + number % width for number in struct.unpack(form, noise)))
