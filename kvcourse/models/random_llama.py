"""The `random` model: seeded random weights, built in memory in no time, for exactness tests.

With the usual initialiser range of 0.02 greedy output is one token repeated, whatever happens to the cache; with 0.08
nearly every damage changes the tokens, while honest rounding does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB = 1024
SPECIAL = ("<pad>", "<bos>", "<unk>")


def random_llama(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """4 layers, hidden size 256, 8 heads of 32 over 2 KV heads, float32; 4,096 bytes of keys and values per token.

    `changes` go to LlamaConfig. The same seed gives the same weights; torch's own random state stays as it was.
    No end token: generation always runs to its full length.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "initializer_range": 0.08,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**shape | changes)).eval()


def byte_tokenizer(vocab_size: int = VOCAB) -> PreTrainedTokenizerFast:
    """One token for each byte of UTF-8 after the special tokens; the ids beyond, which no text gives, read `<300>`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    words += [f"<{i}>" for i in range(len(words), vocab_size)]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    pad, bos, unk = SPECIAL
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad, bos_token=bos, unk_token=unk)
