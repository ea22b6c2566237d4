"""A request: its tokens, where they stand, and what became of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from kvcourse.engine.blocks import chain_key, root_key
from kvcourse.engine.metrics import RequestMetrics

Extra = tuple[tuple[str, str], ...]
OnToken = Callable[[int, int], None]
FinishReason = Literal["length", "eos", "aborted", "error"]


class RequestError(ValueError):
    """A request that cannot be served, in one sentence."""


@dataclass(eq=False)
class Request:
    """One prompt and its answer.

    tokens: the prompt, then every generated token; num_placed: leading tokens that have a slot in the pool
    num_computed: leading tokens whose keys and values are in the pool; during a step it lags behind num_placed
    keys: content keys of the leading full blocks, made when needed; seat: its row in the tensor of block tables
    """

    id: int
    tokens: list[int]
    num_prompt: int
    max_new_tokens: int
    eos: frozenset[int]
    extra: Extra = ()
    temperature: float = 0.0
    seed: int = 0
    on_token: OnToken | None = None
    keep_logits: bool = False
    status: Literal["waiting", "running", "finished"] = "waiting"
    finish_reason: FinishReason | None = None
    error: Exception | None = None
    aborting: bool = False
    num_placed: int = 0
    num_computed: int = 0
    block_table: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    seat: int | None = None
    generator: Any = None
    first_logits: Any = None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def output(self) -> list[int]:
        """The generated tokens, eos included."""
        return self.tokens[self.num_prompt :]

    def block_key(self, index: int, block_size: int) -> bytes:
        """The content key of block `index` of this request's tokens; the block must be full."""
        assert (index + 1) * block_size <= self.num_tokens
        while len(self.keys) <= index:
            parent = self.keys[-1] if self.keys else root_key(self.extra)
            start = len(self.keys) * block_size
            self.keys.append(chain_key(parent, self.tokens[start : start + block_size]))
        return self.keys[index]


def short(value: Any, limit: int = 60) -> str:
    """`value` for an error message, cut to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class Row(NamedTuple):
    """A request's part of one step: tokens start .. start + count - 1 go through the model."""

    request: Request
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count

    @property
    def is_last(self) -> bool:
        """The row ends at the request's last token, so its logits give the next one."""
        return self.end == self.request.num_tokens


class Limits(NamedTuple):
    """What a request must keep within; eos: the model's own end tokens."""

    vocab_size: int
    context: int
    num_blocks: int
    block_size: int
    eos: frozenset[int]


def new_request(
    request_id: int,
    prompt: Any,
    max_new_tokens: int,
    limits: Limits,
    eos: int | Iterable[int] | None = None,
    extra: Iterable[Sequence[str]] = (),
    **choices: Any,
) -> Request:
    """A request that can be served; RequestError for any other."""
    tokens = _token_list(prompt, limits.vocab_size)
    _check_length(len(tokens), max_new_tokens, limits)
    stop = limits.eos if eos is None else frozenset([eos] if isinstance(eos, int) else eos)
    return Request(request_id, tokens, len(tokens), max_new_tokens, stop, _extra_pairs(extra), **choices)


def check_sizes(**sizes: Any) -> None:
    """ValueError unless every size is a whole number from 1 on."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a whole number from 1 on, got {size!r}.")


def _token_list(prompt: Any, vocab_size: int) -> list[int]:
    if isinstance(prompt, str | bytes):
        raise RequestError(f"The prompt is a {type(prompt).__name__}: give token ids, as tokenizer.encode(text) does.")
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    try:
        tokens = [operator.index(token) for token in prompt]
    except TypeError:
        raise RequestError(f"The prompt must be a flat list of whole numbers, got {short(prompt)}.") from None
    if not tokens:
        raise RequestError("The prompt is empty: give at least one token.")
    if min(tokens) < 0 or max(tokens) >= vocab_size:
        wrong = next(token for token in tokens if not 0 <= token < vocab_size)
        raise RequestError(f"Token id {wrong} is outside the vocabulary of {vocab_size}: is it another tokenizer's?")
    return tokens


def _check_length(num_prompt: int, max_new_tokens: int, limits: Limits) -> None:
    """The last generated token is never fed back, so prompt + max_new_tokens - 1 tokens need keys and values."""
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise RequestError(f"max_new_tokens must be a whole number from 1 on, got {max_new_tokens!r}.")
    need = num_prompt + max_new_tokens - 1
    what = f"A prompt of {num_prompt} tokens with {max_new_tokens} new ones needs {need} positions"
    if need > limits.context:
        raise RequestError(f"{what}; the model's context is {limits.context}.")
    if need > limits.num_blocks * limits.block_size:
        raise RequestError(f"{what}; the pool has {limits.num_blocks} blocks of {limits.block_size} tokens.")


def _extra_pairs(extra: Iterable[Sequence[str]]) -> Extra:
    pairs = tuple(tuple(pair) if isinstance(pair, tuple | list) else (pair,) for pair in extra)
    if not all(len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
        raise RequestError(f'extra must be pairs of text such as (("salt", "tenant-a"),), got {short(extra)}.')
    return pairs
