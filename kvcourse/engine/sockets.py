"""The sockets of the engine: what a part must do to be plugged in. Each has a plain default.

A part is any object with these methods; nothing is inherited. The engine asks, checks the answer, and refuses an
impossible one with a `SocketError` that names the socket and the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from kvcourse.engine.layout import StepLayout

Extra = Sequence[tuple[str, str]]


class SocketError(Exception):
    """An impossible answer of a plugged-in part, in one sentence; `socket` is the part's name."""

    def __init__(self, socket: str, problem: str) -> None:
        super().__init__(f"{socket}: {problem}")
        self.socket = socket


@dataclass
class Allocation:
    """block_table: the blocks of all tokens, in order; hit_tokens: how many leading tokens are in them already."""

    block_table: list[int]
    hit_tokens: int


class PrefixCache(Protocol):
    """Decides which block holds which tokens, and finds them again. Made as `PrefixCache(num_blocks, block_size)`.

    The engine hands a token over just before the step that computes its keys and values. So the cache knows exactly the
    tokens that are in the pool after that step, and a block may be found as soon as it is full: the requests of a step
    write all their keys and values before any of them reads. A sampled token is handed over when it is fed to the
    model, one step later; the last one of an answer never is.
    """

    def match(self, tokens: Sequence[int], extra: Extra = ()) -> list[int]:
        """The blocks of the longest cached prefix, in order. Nothing changes. One token at least is left to compute."""
        ...

    def allocate(self, request_id: int, tokens: Sequence[int], extra: Extra = ()) -> Allocation | None:
        """Blocks for all `tokens`: those that `match` finds, then new ones. None, no change, if too few are free."""
        ...

    def append(self, request_id: int, token: int) -> int | None:
        """The block of one more token: the last one, or a new one if that is full. None, no change, if none is free."""
        ...

    def free(self, request_id: int) -> None:
        """The request gives its blocks back. Full ones can be found until they are handed out as new ones."""
        ...

    def stats(self) -> dict[str, int]:
        """At least `free`, blocks that no request uses, and `referenced`, blocks in use; together the whole pool."""
        ...


class Tiers(Protocol):
    """Keeps full blocks outside the pool.

    A block is a tensor [layers, 2, block_size, kv_heads, head_dim]; its key stands for its tokens and all before them.
    `filled` and `evicted` get a view of the pool: copy what you keep. What was loaded for a request that then finds no
    room comes back through `evicted`, so `load` may take the block out of the tier.
    """

    def filled(self, key: bytes, block: Tensor) -> None:
        """The block has just been computed. Write-through tiers store it now."""
        ...

    def evicted(self, key: bytes, block: Tensor) -> None:
        """The content is about to leave the pool. Write-back tiers store it now."""
        ...

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The tier (1 is G2, 2 is G3 ...) of each leading block to be loaded; it ends at the first that is not."""
        ...

    def load(self, key: bytes) -> Tensor | None:
        """The block; None if it is gone or damaged, it is computed then."""
        ...


class Work(NamedTuple):
    """What a scheduler sees of a request: `tokens` must be computed before its next token can be sampled.

    1 is a decode. After a preemption, prompt and answer so far count again.
    cached: leading tokens found in the cache or computed before; not in `tokens`
    """

    request_id: int
    tokens: int
    cached: int = 0


class Scheduler(Protocol):
    """Decides who computes how much in the next step."""

    def __call__(self, running: list[Work], waiting: list[Work], budget: int) -> list[tuple[int, int]]:
        """The plan: (request id, tokens), one entry at least, none twice, at most `budget` tokens in all.

        `running` have blocks; `waiting` is the head of the queue, as far as it might run; both oldest first. An entry
        has 1 to `Work.tokens` tokens, so a prompt may be cut. A waiting request in the plan is admitted.
        """
        ...


class Attention(Protocol):
    """Writes keys and values into the pool and attends over it, once per layer and step, first `write`, then `attend`.

    Pools are [blocks, block_size, kv_heads, head_dim]; all tensors are contiguous and on the model's device.
    """

    def write(self, key: Tensor, value: Tensor, k_pool: Tensor, v_pool: Tensor, slot_mapping: Tensor) -> None:
        """key, value [T, kv_heads, head_dim] into slots: slot s is place s % block_size of block s // block_size."""
        ...

    def attend(self, query: Tensor, k_pool: Tensor, v_pool: Tensor, layout: StepLayout, scaling: float) -> Tensor:
        """query [T, heads, head_dim] to the same shape; a query at position p sees keys 0 .. p of its own sequence."""
        ...


class Router(Protocol):
    """Chooses the replica for a request. The cluster calls it; one engine never does."""

    def __call__(self, request: Any, replicas: dict[str, Any], index: Any) -> str:
        """The name of one of `replicas` (name -> load), given what `index` knows of their caches."""
        ...
