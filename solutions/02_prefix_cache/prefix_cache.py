# %% [markdown]
# Two requests that begin alike need the same keys and values for that beginning. This lesson builds the part of an
# engine that keeps them, finds them again and decides what to forget: the **prefix cache**.

# %% setup=true
from __future__ import annotations

import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2s

from kvcourse import check, hint, progress, quiz  # noqa: F401

# %% [markdown]
# ## prefix.1 the shared prefix


# %% solution="prefix.1"
def shared_prefix_length(a: Sequence, b: Sequence) -> int:
    """How many leading tokens two prompts share.

    Tokens are token ids or words: whatever `==` compares. The prefix ends at the first difference, however much agrees
    behind it, and at the end of the shorter prompt.
    """
    ### BEGIN SOLUTION
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
    ### END SOLUTION


# %% check="prefix.1"
if __name__ == "__main__":
    check("prefix.1")

# %% [markdown]
# ## prefix.2 a key for every block

# %%
Extra = Sequence[tuple[str, str]]  # what must agree besides the tokens, such as (("salt", "tenant-a"),)
NO_PARENT = bytes(32)  # stands in front of the first block of a prompt without extras


def require(condition: bool, message: str) -> None:
    """Refuse a bad input: raise ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


# %% solution="prefix.2" part="a"
def pack_tokens(tokens: Sequence[int]) -> bytes:
    """The token ids as bytes, 8 each, so that different tokens never look alike."""
    ### BEGIN SOLUTION
    return struct.pack(f"<{len(tokens)}q", *tokens)
    ### END SOLUTION


def root_key(extra: Extra = ()) -> bytes:
    """What stands in front of the first block: NO_PARENT, or 32 bytes that depend on every kind and every value."""
    ### BEGIN SOLUTION
    if not extra:
        return NO_PARENT
    return blake2s(json.dumps([list(pair) for pair in extra]).encode()).digest()
    ### END SOLUTION


def chain_key(parent: bytes, block: bytes) -> bytes:
    """The key of a full block: 32 bytes made from the key before it and its own packed tokens."""
    ### BEGIN SOLUTION
    return blake2s(parent + block).digest()
    ### END SOLUTION


# %% solution="prefix.2" part="b"
def block_keys(tokens: Sequence[int], block_size: int, extra: Extra = ()) -> list[bytes]:
    """One key of 32 bytes for every full block of a prompt, in order.

    A key stands for `extra`, the tokens of its block and all tokens before: equal keys mean that all of them are equal.
    tokens: whole numbers from 0 to below 2**63 in a list, a tuple or an array: the same numbers give the same keys
    extra: (kind, value) pairs of text; kinds, values, their number and their order all count; () means none
    A last block that is not full has no key. The same input gives the same keys in every process and on every machine.
    ValueError for a block size below 1.
    """
    ### BEGIN SOLUTION
    require(block_size >= 1, f"block_size must be at least 1, got {block_size}: engines use 16")
    data, width = pack_tokens(tokens), 8 * block_size
    key, keys = root_key(extra), []
    for end in range(width, len(data) + 1, width):
        key = chain_key(key, data[end - width : end])
        keys.append(key)
    return keys
    ### END SOLUTION


# %% check="prefix.2"
if __name__ == "__main__":
    check("prefix.2")

# %% [markdown]
# ## prefix.3 find what is cached


# %%
@dataclass
class Allocation:
    """block_table: the blocks of all tokens of a request, in order; hit_tokens: how many leading ones were cached."""

    block_table: list[int]
    hit_tokens: int


@dataclass
class Running:
    """A request that has blocks.

    table: its blocks, in order; rest: the tokens of its last block if that is not full
    key: the key of its last full block, `root_key(extra)` if it has none: the parent of the next key
    """

    table: list[int]
    key: bytes
    rest: list[int]


def add_to_class(cls: type) -> Callable[[Callable], Callable]:
    """Make the function below a method of `cls`, so that a class can grow over several cells."""

    def add(function: Callable) -> Callable:
        setattr(cls, function.__name__, function)
        return function

    return add


# %% solution="prefix.3"
class PrefixCache:
    """Says which block holds which tokens, and finds them again. It sees tokens and block numbers, no keys and values.

    Blocks have the numbers 0 to num_blocks - 1. A block is in use while the table of a request names it, else idle.
    A block can be found from the moment it is full, in use or idle, until it is handed out for new content.
    Handed out are idle blocks only: first the empty ones, which hold nothing that can be found, then the others in the
    order in which they became idle. The blocks of a request become idle from the last to the first when it ends.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        # prefix.3: what the blocks hold. Several may hold the same content: all stay, the first one is found.
        self.key_of: dict[int, bytes] = {}  # block -> key of its content; a block without a key holds nothing
        self.block_of: dict[bytes, int] = {}  # key -> the first block that holds it
        self.copies: dict[bytes, list[int]] = {}  # key -> further blocks that hold it, in the order they came
        # prefix.4: who uses them
        self.users = [0] * num_blocks  # how many tables name the block
        self.running: dict[int, Running] = {}  # request -> its blocks
        # prefix.5: what is handed out next
        self.empty = list(range(num_blocks))[::-1]  # idle blocks that hold nothing; the last in the list goes first
        self.idle: OrderedDict[int, None] = OrderedDict()  # idle blocks that hold something; the first one goes first
        self.hit_tokens = self.asked_tokens = self.evictions = 0

    def publish(self, blocks: Sequence[int], keys: Sequence[bytes]) -> None:
        """From now on blocks[i] is found under keys[i]. Surplus blocks or keys at the end are left out.

        What such a block held before is forgotten. Other blocks that hold the same content stay.
        """
        ### BEGIN SOLUTION
        for block, key in zip(blocks, keys, strict=False):
            if block in self.key_of:
                self.forget(block)
            self.key_of[block] = key
            if key in self.block_of:
                self.copies.setdefault(key, []).append(block)
            else:
                self.block_of[key] = block
        ### END SOLUTION

    def forget(self, block: int) -> None:
        """The block can no longer be found; other blocks with the same content can. It may hold nothing already."""
        ### BEGIN SOLUTION
        key = self.key_of.pop(block, None)
        if key is None:
            return
        copies = self.copies.get(key)
        if not copies:
            del self.block_of[key]
            return
        if self.block_of[key] == block:
            self.block_of[key] = copies.pop(0)
        else:
            copies.remove(block)
        if not copies:
            del self.copies[key]
        ### END SOLUTION

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The blocks of the leading keys, up to the first key that no block holds."""
        ### BEGIN SOLUTION
        found = []
        for key in keys:
            if key not in self.block_of:
                break
            found.append(self.block_of[key])
        return found
        ### END SOLUTION

    def match(self, tokens: Sequence[int], extra: Extra = ()) -> list[int]:
        """The blocks of the longest cached prefix of a prompt, in order.

        Only full blocks count, and one token at least is left to compute: of n tokens (n - 1) // block_size blocks at
        most. If several blocks hold a content, it is the one published first among those that still hold it.
        Looking changes nothing.
        """
        ### BEGIN SOLUTION
        keys = block_keys(tokens, self.block_size, extra)
        return self.find(keys[: (len(tokens) - 1) // self.block_size])
        ### END SOLUTION


# %% check="prefix.3"
if __name__ == "__main__":
    check("prefix.3")

# %% [markdown]
# ## prefix.4 blocks for a request


# %% solution="prefix.4"
@add_to_class(PrefixCache)
def take(self, count: int) -> list[int]:
    """Take `count` idle blocks for new content: empty ones first, then those that `evict` gives up (prefix.5)."""
    blocks = [self.empty.pop() for _ in range(min(count, len(self.empty)))]
    if len(blocks) < count:
        blocks += self.evict(count - len(blocks))
    return blocks


@add_to_class(PrefixCache)
def allocate(self, request_id: int, tokens: Sequence[int], extra: Extra = ()) -> Allocation | None:
    """Blocks for all tokens of a prompt: those that `match` finds, then new ones; a started block counts as a whole.

    New blocks that are full can be found from now on, a content that is cached already (the last block of a prompt that
    is cached to the end) included. All or nothing: if too few blocks are idle for the new ones, the answer is None and
    nothing changes. A found block that is idle cannot be a new one as well.
    ValueError, naming the request, if it has blocks already. Its number may come again after `free`.
    """
    ### BEGIN SOLUTION
    require(request_id not in self.running, f"request {request_id} has blocks already: free it first")
    keys = block_keys(tokens, self.block_size, extra)
    hits = self.find(keys[: (len(tokens) - 1) // self.block_size])
    num_new = -(-len(tokens) // self.block_size) - len(hits)
    idle_hits = [block for block in hits if block in self.idle]
    if num_new > len(self.empty) + len(self.idle) - len(idle_hits):
        return None
    for block in idle_hits:
        del self.idle[block]
    table = hits + self.take(num_new)
    for block in table:
        self.users[block] += 1
    self.publish(table[len(hits) :], keys[len(hits) :])
    rest = tokens[len(keys) * self.block_size :]
    self.running[request_id] = Running(table, keys[-1] if keys else root_key(extra), list(rest))
    self.hit_tokens += len(hits) * self.block_size
    self.asked_tokens += len(tokens)
    return Allocation(list(table), len(hits) * self.block_size)
    ### END SOLUTION


@add_to_class(PrefixCache)
def append(self, request_id: int, token: int) -> int | None:
    """The block for one more token of a running request: its last one, or a new one if that is full.

    A block that this token fills can be found from now on. If a new block is needed and none is idle, the answer is
    None and nothing changes. ValueError, naming the request, if it has no blocks.
    """
    ### BEGIN SOLUTION
    require(request_id in self.running, f"request {request_id} has no blocks: allocate first")
    request = self.running[request_id]
    if not request.rest:
        if not self.empty and not self.idle:
            return None
        [block] = self.take(1)
        self.users[block] = 1
        request.table.append(block)
    request.rest.append(token)
    if len(request.rest) == self.block_size:
        request.key = chain_key(request.key, pack_tokens(request.rest))
        self.publish(request.table[-1:], [request.key])
        request.rest = []
    return request.table[-1]
    ### END SOLUTION


@add_to_class(PrefixCache)
def free(self, request_id: int) -> None:
    """The request ends and uses its blocks no longer; those that nobody else uses become idle.

    They become idle one by one, the last block of the table first: the order in which `evict` gives them up. What is
    full can still be found. ValueError, naming the request, if it has no blocks (never had, or freed before).
    """
    ### BEGIN SOLUTION
    require(request_id in self.running, f"request {request_id} has no blocks: freed before, or never there")
    for block in reversed(self.running.pop(request_id).table):
        self.users[block] -= 1
        if self.users[block] == 0:
            if block in self.key_of:
                self.idle[block] = None
            else:
                self.empty.append(block)
    ### END SOLUTION


# %% check="prefix.4"
if __name__ == "__main__":
    check("prefix.4")

# %% [markdown]
# ## prefix.5 what to forget


# %% solution="prefix.5"
@add_to_class(PrefixCache)
def evict(self, count: int) -> list[int]:
    """Give up the content of `count` idle blocks, those that became idle first. There are enough: the caller saw to it.

    They can no longer be found. A block in use is never given up. One that was found and used again becomes idle anew,
    behind all others, when its last user ends.
    """
    ### BEGIN SOLUTION
    blocks = [self.idle.popitem(last=False)[0] for _ in range(count)]
    for block in blocks:
        self.forget(block)
    self.evictions += count
    return blocks
    ### END SOLUTION


@add_to_class(PrefixCache)
def stats(self) -> dict[str, int]:
    """How the blocks stand now, and what was counted since the start.

    free: blocks that no request uses; referenced: blocks in use; cached: blocks that can be found, in use or not
    asked_tokens, hit_tokens: tokens of all prompts that got blocks, and how many of them were found
    evictions: blocks whose content was given up
    A refused prompt, a lookup and an appended token count as nothing. More names are allowed.
    """
    ### BEGIN SOLUTION
    free = len(self.empty) + len(self.idle)
    return {
        "free": free,
        "referenced": self.num_blocks - free,
        "cached": len(self.key_of),
        "hit_tokens": self.hit_tokens,
        "asked_tokens": self.asked_tokens,
        "evictions": self.evictions,
    }
    ### END SOLUTION


# %% check="prefix.5"
if __name__ == "__main__":
    check("prefix.5")

# %% [markdown]
# ## prefix.6 order and money


# %% solution="prefix.6" part="a"
def order_prompt(parts: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The parts of a prompt in the order that keeps most of it the same from request to request.

    parts: (name, changes) pairs; changes is the share of requests in which the part differs from the request before,
    0 for never, 1 for always. Parts that change less come first, equal ones stay in their order, and a part with the
    name "question" comes last however seldom it changes. The list given is left as it is.
    """
    ### BEGIN SOLUTION
    return sorted(parts, key=lambda part: (part[0] == "question", part[1]))
    ### END SOLUTION


# %% solution="prefix.6" part="b"
def prompt_cost(requests: Sequence[Sequence[int]], hit_price: float, miss_price: float, block_size: int) -> float:
    """What the prompts of some requests cost, in order of arrival, at a provider with a cache without limit.

    requests: the tokens of each prompt; hit_price, miss_price: dollars for a million cached or computed tokens
    Hits are the full blocks of the longest prefix that an earlier prompt had, and one token at least is computed:
    (n - 1) // block_size blocks at most. ValueError for a negative price and a block size below 1.
    """
    ### BEGIN SOLUTION
    require(hit_price >= 0, f"hit_price must not be negative, got {hit_price}: it is dollars for a million tokens")
    require(miss_price >= 0, f"miss_price must not be negative, got {miss_price}: it is dollars for a million tokens")
    require(block_size >= 1, f"block_size must be at least 1, got {block_size}: engines use 16")
    cached: set[bytes] = set()
    cost = 0.0
    for tokens in requests:
        keys, hits = block_keys(tokens, block_size), 0
        for key in keys[: (len(tokens) - 1) // block_size]:
            if key not in cached:
                break
            hits += block_size
        cached.update(keys)
        cost += hits * hit_price + (len(tokens) - hits) * miss_price
    return cost / 1_000_000
    ### END SOLUTION


# %% check="prefix.6"
if __name__ == "__main__":
    check("prefix.6")

# %% [markdown]
# ## prefix.7 beyond the prefix

# %%
import math

import torch


# %% solution="prefix.7" part="a"
def shift_keys(keys: torch.Tensor, delta: int, theta: float) -> torch.Tensor:
    """Cached keys as they would be `delta` positions later (earlier, if it is negative).

    keys: [..., head_dim], rotated for their old positions in the half-split layout: number i and number
    i + head_dim / 2 are the two coordinates of one point. Rotating a point by one position turns it by the angle
    theta ** (-2 * i / head_dim), from its first coordinate towards its second.
    A new tensor of the same shape and dtype; the angles are computed in 32 bits or more. ValueError, naming the keys,
    if head_dim is odd.
    """
    ### BEGIN SOLUTION
    head_dim = keys.shape[-1]
    require(head_dim % 2 == 0, f"keys have an odd head_dim, {head_dim}: they cannot be split into halves")
    half = head_dim // 2
    angles = delta * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    first, second = keys.double().split(half, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(keys.dtype)
    ### END SOLUTION


# %% solution="prefix.7" part="b"
def pick_recompute(cached_k: torch.Tensor, fresh_k: torch.Tensor, ratio: float) -> list[int]:
    """The tokens whose cached keys are furthest from what they should be: those worth computing again.

    cached_k, fresh_k: [tokens, kv_heads, head_dim]. A token's deviation is the length of the difference of its keys,
    all heads together: the square root of the sum of squares, in 32 bits or more.
    The ceil(ratio * tokens) tokens with the largest deviation, in rising order; of equal ones the earlier.
    ValueError for a ratio outside 0..1, and for keys of different shapes, naming the shapes.
    """
    ### BEGIN SOLUTION
    require(0 <= ratio <= 1, f"ratio must be between 0 and 1, got {ratio}: it is a share of the tokens")
    require(
        cached_k.shape == fresh_k.shape,
        f"cached_k and fresh_k have the shapes {tuple(cached_k.shape)} and {tuple(fresh_k.shape)}: use the same tokens",
    )
    deviation = (fresh_k.float() - cached_k.float()).flatten(1).norm(dim=1)
    count = math.ceil(ratio * len(deviation))
    worst_first = torch.argsort(deviation, descending=True, stable=True)
    return sorted(worst_first[:count].tolist())
    ### END SOLUTION


# %% check="prefix.7"
if __name__ == "__main__":
    check("prefix.7")

# %% [markdown]
# ## Questions
#
# `quiz("prefix")` shows them. Answer with `quiz("prefix.q1", "b")`.

# %% demo=true
if __name__ == "__main__":
    quiz("prefix")

# %% demo=true
if __name__ == "__main__":
    progress()
