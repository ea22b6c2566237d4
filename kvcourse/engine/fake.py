"""A model and a tokenizer of a few lines, for tests of scheduling and memory: no weights, exact answers.

The model's next token is a checksum of all tokens it reads from the pool, in the order in which it finds them. A wrong
block, slot, position or length gives another token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvcourse.engine.layout import StepLayout
from kvcourse.engine.pool import KVPool
from kvcourse.engine.sockets import Attention

PRIME, BASE = 1_000_003, 7_919


class FakeModel:
    """A `runner.Runner`. Keys are (token, position), values the same turned round."""

    num_layers, num_kv_heads, head_dim = 1, 1, 2
    dtype, device = torch.int64, torch.device("cpu")

    def __init__(self, vocab_size: int = 97, context: int = 4096, eos: Sequence[int] = ()) -> None:
        self.vocab_size, self.context, self.eos = vocab_size, context, frozenset(eos)
        powers = [1]
        while len(powers) < context:
            powers.append(powers[-1] * BASE % PRIME)
        self.powers = torch.tensor(powers)

    def forward(
        self, input_ids: Tensor, layout: StepLayout, sample: Tensor, pool: KVPool, attention: Attention
    ) -> Tensor:
        k_pool, v_pool = pool.layer(0)
        key = torch.stack([input_ids, layout.positions], dim=-1)[:, None]
        attention.write(key, key.flip(-1), k_pool, v_pool, layout.slot_mapping)
        ends = (layout.query_starts[1:] - 1).tolist()
        logits = torch.zeros(len(sample), self.vocab_size)
        for row, token in enumerate(sample.tolist()):
            sequence = ends.index(token)
            context = layout.contexts[sequence]
            blocks = layout.block_tables[sequence, : -(-context // layout.block_size)].long()
            keys, values = k_pool[blocks].flatten(0, 2)[:context], v_pool[blocks].flatten(0, 2)[:context]
            assert torch.equal(keys[:, 1], torch.arange(context)), "a token stands at another position"
            assert torch.equal(keys, values.flip(-1)), "keys and values are of different tokens"
            logits[row, self._checksum(keys[:, 0])] = 1.0
        return logits

    def generate(self, prompt: Sequence[int], max_new_tokens: int, eos: Sequence[int] | None = None) -> list[int]:
        """What the engine must answer."""
        stop = self.eos if eos is None else eos
        tokens = list(prompt)
        while len(tokens) < len(prompt) + max_new_tokens:
            tokens.append(self._checksum(torch.tensor(tokens)))
            if tokens[-1] in stop:
                break
        return tokens[len(prompt) :]

    def _checksum(self, tokens: Tensor) -> int:
        return int(((tokens + 1) * self.powers[: len(tokens)] % PRIME).sum() % PRIME) % self.vocab_size


class FakeTokenizer:
    """One token a letter: a is 0, b is 1 ..."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token + ord("a")) for token in tokens)
