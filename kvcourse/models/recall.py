"""The bundled `recall` model: 1.26M parameters, trained here by bench/train_recall.py, so that quality can be measured.

It answers the questions of `recall_task`: with a sound KV cache nearly always right, with a damaged one visibly wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcourse.models.recall_task import BOS, EOS, PAD, VOCAB, RecallSample, recall_sample, recall_words

if TYPE_CHECKING:
    from transformers import Cache, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

FILE = Path(__file__).parents[1] / "data" / "recall.safetensors"
HELD_OUT_SEED = 1_000_003  # the training script draws from seeds below one million


def recall_accuracy(
    model: LlamaForCausalLM,
    context: int,
    samples: int = 8,
    seed: int = HELD_OUT_SEED,
    damage: Callable[[Cache], None] | None = None,
) -> float:
    """The share of answer tokens that the model predicts right after contexts of `context` tokens (0 to 1).

    The context fills a cache, `damage` may change it in place, then questions and right answers are read against it.
    Every answer token counts once, so one miss does not spoil those after it. samples: about 130 answers in each.
    """
    right = total = 0
    for i in range(samples):
        sample = recall_sample(np.random.default_rng([seed, context, i]), context)
        right += answers_right(model, sample, damage)
        total += int(sample.is_answer.sum())
    return right / total


def answers_right(model: LlamaForCausalLM, sample: RecallSample, damage: Callable[[Cache], None] | None = None) -> int:
    """How many of the answer tokens of one sample are predicted right; see `recall_accuracy`."""
    import torch
    from transformers import DynamicCache

    ids = torch.from_numpy(sample.ids).to(model.device)[None]
    cache = DynamicCache()
    with torch.no_grad():
        model(ids[:, : sample.context], use_cache=True, logits_to_keep=1, **cache_argument(model, cache))
        if damage is not None:
            damage(cache)
        positions = torch.arange(sample.context, ids.shape[1] - 1, device=model.device)[None]
        questions = ids[:, sample.context : -1]
        logits = model(questions, position_ids=positions, use_cache=True, **cache_argument(model, cache)).logits
    right = logits[0].argmax(-1) == ids[0, sample.context + 1 :]
    return int(right.cpu()[torch.from_numpy(sample.is_answer[sample.context + 1 :])].sum())


def cache_argument(model: Any, cache: Cache) -> dict[str, Cache]:
    """The cache as a keyword of the model's forward: `cache` from Transformers 5.24 on, `past_key_values` before."""
    return {"cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values": cache}


def recall_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each word, for example "ASK s7 e4"; a word that the task does not know becomes `<pad>`."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = recall_words()
    pad, bos, eos = words[PAD], words[BOS], words[EOS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=pad))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        bos_token=bos,
        eos_token=eos,
        unk_token=pad,
        clean_up_tokenization_spaces=False,  # " ." is a word of its own
    )


def recall_config() -> LlamaConfig:
    """The shape: 4 layers, 4 heads of 64 over 2 KV heads, 4,096 bytes of keys and values per token in float32."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=192,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
        initializer_range=0.06,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )


def load_recall(file: Path = FILE) -> LlamaForCausalLM:
    """The model on the CPU in float32, in evaluation mode."""
    from safetensors.torch import load_file
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM(recall_config())
    missing, unexpected = model.load_state_dict(load_file(file), strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, f"{file.name} does not hold the recall model"
    model.tie_weights()
    return model.eval()
