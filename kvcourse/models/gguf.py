"""A small loader for GGUF files of Llama models: config, weights and tokenizer, without llama.cpp.

The package `gguf` parses the file and dequantises blocks; what is left is naming. llama.cpp stores the rows of the
query and key projections in another order, since it rotates neighbouring channels where Transformers rotates channel i
with i + head_dim / 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcourse.tasks.course import UserError

if TYPE_CHECKING:
    import torch
    from gguf import GGUFReader
    from transformers import LlamaConfig, PreTrainedTokenizerFast

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL_TOKEN = 3


def open_gguf(file: Path) -> GGUFReader:
    """The parsed file (a few seconds); UserError when the package `gguf` is missing or the file holds no Llama."""
    try:
        from gguf import GGUFReader
    except ImportError:
        raise UserError("Reading a GGUF file needs the package gguf: run `pip install gguf`.") from None
    reader = GGUFReader(file)
    kind = _field(reader, "general.architecture")
    if kind != "llama":
        raise UserError(f"{file.name} holds a model of the architecture {kind!r}; only llama can be read here.")
    return reader


def gguf_config(reader: GGUFReader) -> LlamaConfig:
    from transformers import LlamaConfig

    def shape(name: str) -> Any:
        return _field(reader, f"llama.{name}")

    return LlamaConfig(
        vocab_size=shape("vocab_size"),
        hidden_size=shape("embedding_length"),
        intermediate_size=shape("feed_forward_length"),
        num_hidden_layers=shape("block_count"),
        num_attention_heads=shape("attention.head_count"),
        num_key_value_heads=shape("attention.head_count_kv"),
        max_position_embeddings=shape("context_length"),
        rms_norm_eps=shape("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": shape("rope.freq_base")},
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        bos_token_id=_field(reader, "tokenizer.ggml.bos_token_id"),
        eos_token_id=_field(reader, "tokenizer.ggml.eos_token_id"),
        pad_token_id=_field(reader, "tokenizer.ggml.padding_token_id"),
    )


def gguf_weights(reader: GGUFReader, config: LlamaConfig) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights one by one, float32, with the names and the row order of Transformers."""
    import torch
    from gguf.quants import dequantize

    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for tensor in reader.tensors:
        weight = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        layer, kind = _place(tensor.name)
        if kind in heads:
            weight = _halves(weight, heads[kind])
        name = OUTER_NAMES[kind] if layer is None else f"model.layers.{layer}.{NAMES[kind]}"
        yield f"{name}.weight", torch.from_numpy(weight)


def gguf_tokenizer(reader: GGUFReader) -> PreTrainedTokenizerFast:
    """The byte-level BPE tokenizer and the chat template of the file; digits stand alone, as in SmolLM."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    assert _field(reader, "tokenizer.ggml.pre") == "smollm", "another pre-tokenisation than SmolLM's"
    words = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = _field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens([word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL_TOKEN])
    special = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=_field(reader, "llama.context_length"),
        chat_template=_field(reader, "tokenizer.chat_template"),
        **{role: words[_field(reader, f"tokenizer.ggml.{name}_token_id")] for role, name in special.items()},
    )


def _field(reader: GGUFReader, name: str) -> Any:
    assert name in reader.fields, f"the GGUF file has no field {name}"
    return reader.fields[name].contents()


def _place(name: str) -> tuple[str | None, str]:
    """Layer and kind of a tensor: "blk.3.attn_q.weight" gives ("3", "attn_q"), "output.weight" (None, "output")."""
    parts = name.removesuffix(".weight").split(".")
    layer, kind = (parts[1], parts[2]) if parts[0] == "blk" else (None, parts[0])
    assert kind in (OUTER_NAMES if layer is None else NAMES), f"a plain Llama has no tensor {name}"
    return layer, kind


def _halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from pairs (0, 1), (2, 3) … to halves (0, 2, …), (1, 3, …)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
