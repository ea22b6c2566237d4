"""Public tests of sizing.2: one case a property, the plainest model first."""

from __future__ import annotations

from kvcourse.tasks.api import expect, task
from kvcourse.tasks.shapes import tiny


@task("sizing.2")
def test_one_entry_a_layer(student):
    """There is one entry per layer, with the numbers of keys and values together."""
    expect(student.kv_layers, tiny("LlamaConfig", layers=3, num_key_value_heads=4)).equals(
        [(16, None, 0)] * 3,
        because="4 heads x (2 key + 2 value numbers), no window, no constant state",
        tip="return [LayerKV(elements, None, 0), ...] with one entry for each of num_hidden_layers",
    )


@task("sizing.2")
def test_query_heads_share_kv_heads(student):
    """KV heads count, not query heads; a model that names no KV heads has one per query head."""
    expect(student.kv_layers, tiny("LlamaConfig", layers=1, num_key_value_heads=1)).equals(
        [(4, None, 0)], because="one KV head serves all 4 query heads", tip="use num_key_value_heads"
    )
    expect(student.kv_layers, tiny("GPT2Config", layers=1)).equals(
        [(16, None, 0)],
        because="GPT-2 has no num_key_value_heads: all 4 heads store",
        tip="fall back to num_attention_heads",
    )


@task("sizing.2")
def test_head_dim_of_the_config_wins(student):
    """`head_dim` of the config wins over hidden size / heads."""
    expect(student.kv_layers, tiny("Qwen3Config", layers=1, num_key_value_heads=1, head_dim=6)).equals(
        [(12, None, 0)],
        because="the config says 6 numbers a head, although 8 / 4 would be 2",
        tip="divide hidden_size by the heads only where head_dim is missing or None",
    )


@task("sizing.2")
def test_one_head_for_all(student):
    """`multi_query` means one KV head, unless the model has the new decoder architecture."""
    expect(student.kv_layers, tiny("FalconConfig", layers=1, multi_query=True)).equals(
        [(4, None, 0)],
        because="the config class reports num_kv_heads = 4, but one head is stored",
        tip="ask multi_query first",
    )
    newer = tiny("FalconConfig", layers=1, multi_query=True, new_decoder_architecture=True, num_kv_heads=2)
    expect(student.kv_layers, newer).equals(
        [(8, None, 0)],
        because="Falcon-40B ignores multi_query and has num_kv_heads",
        tip="check new_decoder_architecture",
    )


@task("sizing.2")
def test_one_latent_vector(student):
    """A latent cache (MLA) stores one vector for keys, values and all heads."""
    config = tiny("DeepseekV3Config", layers=1, kv_lora_rank=5, qk_rope_head_dim=2, n_routed_experts=8)
    expect(student.kv_layers, config).equals(
        [(7, None, 0)],
        because="kv_lora_rank + qk_rope_head_dim numbers: no factor 2 and no heads",
        tip="handle kv_lora_rank before everything else",
    )


@task("sizing.2")
def test_values_may_be_shorter(student):
    """Keys and values may have different lengths, and sliding layers a number of heads of their own."""
    kinds = ["full_attention", "sliding_attention"]
    fields = {"num_key_value_heads": 1, "head_dim": 3, "v_head_dim": 2, "sliding_window": 9, "layer_types": kinds}
    expect(student.kv_layers, tiny("MiMoV2FlashConfig", **fields, swa_num_key_value_heads=2)).equals(
        [(5, None, 0), (10, 9, 0)],
        because="3 key and 2 value numbers a head; one head in the full layer, 2 in the sliding layer",
        tip="use v_head_dim for the values, and swa_num_key_value_heads in sliding layers",
    )


@task("sizing.2")
def test_windows(student):
    """A sliding layer has the window of the config; a full layer has none."""
    expect(student.kv_layers, tiny("MistralConfig", layers=2, num_key_value_heads=1, sliding_window=6)).equals(
        [(4, 6, 0)] * 2, because="no layer_types: the window holds for every layer", tip="read sliding_window"
    )
    kinds = ["sliding_attention", "full_attention"]
    shape = {"num_key_value_heads": 1, "head_dim": 2, "sliding_window": 6}
    expect(student.kv_layers, tiny("Gemma2Config", layer_types=kinds, **shape)).equals(
        [(4, 6, 0), (4, None, 0)], because="layer_types says which layer slides", tip="decide layer by layer"
    )
    chunks = {"num_key_value_heads": 1, "head_dim": 2, "attention_chunk_size": 5}
    expect(student.kv_layers, tiny("Llama4TextConfig", layers=1, layer_types=["chunked_attention"], **chunks)).equals(
        [(4, 5, 0)], because="a chunked layer keeps one chunk at most", tip="its window is attention_chunk_size"
    )


@task("sizing.2")
def test_a_window_that_is_not_used(student):
    """A window that is switched off or null is no window, and `max_window_layers` layers come before the first one."""
    tip = "a window counts only if it is not None and use_sliding_window is not False"
    window = {"num_key_value_heads": 1, "sliding_window": 6}
    expect(student.kv_layers, tiny("PretrainedConfig", layers=1, use_sliding_window=False, **window)).equals(
        [(4, None, 0)], because="use_sliding_window is false", tip=tip
    )
    expect(student.kv_layers, tiny("MistralConfig", layers=1, num_key_value_heads=1, sliding_window=None)).equals(
        [(4, None, 0)], because="sliding_window is null", tip=tip
    )
    expect(student.kv_layers, tiny("PretrainedConfig", layers=3, max_window_layers=2, **window)).equals(
        [(4, None, 0), (4, None, 0), (4, 6, 0)],
        because="layers 0 and 1 come before layer number 2, the first that slides",
        tip="layer i slides if i >= max_window_layers",
    )


@task("sizing.2")
def test_layers_of_different_shape(student):
    """Layers may differ in heads and head dimension, and the last ones may share the cache of earlier ones."""
    kinds = ["sliding_attention", "full_attention"]
    shape = {"num_key_value_heads": 2, "head_dim": 2, "global_head_dim": 3, "sliding_window": 6}
    own_heads = {"num_global_key_value_heads": 1, "attention_k_eq_v": True}
    expect(student.kv_layers, tiny("Gemma4TextConfig", layer_types=kinds, **shape, **own_heads)).equals(
        [(8, 6, 0), (6, None, 0)],
        because="2 heads of 2 + 2 numbers in the sliding layer, 1 head of 3 + 3 in the full layer",
        tip="take heads and head_dim from config.per_layer_config[i]",
    )
    shared = tiny("Gemma4TextConfig", layers=4, layer_types=kinds * 2, num_kv_shared_layers=2, **shape)
    expect(student.kv_layers, shared).equals(
        [(8, 6, 0), (12, None, 0), (0, None, 0), (0, None, 0)],
        because="the last num_kv_shared_layers = 2 layers store nothing",
        tip="LayerKV(0, None, 0) for the last num_kv_shared_layers layers",
    )


@task("sizing.2")
def test_linear_layers(student):
    """A linear layer stores nothing per token, but a state of constant size."""
    config = tiny("JambaConfig", num_key_value_heads=1, attn_layer_period=2, attn_layer_offset=1)
    expect(student.kv_layers, config).equals(
        [(0, None, 16 * 4 * 2 + 16 * 16 * 4), (4, None, 0)],
        because="layer 0 is linear: 4 inputs of 2 bytes and 16 state numbers of 4 bytes, in 16 channels",
        tip="LayerKV(0, None, state_bytes(config)) for a linear layer",
    )


@task("sizing.2")
def test_the_decoder_inside(student):
    """A multimodal config holds its decoder in `text_config`."""
    from transformers import Gemma3Config

    shape = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 1}
    window = {"head_dim": 2, "sliding_window": 6, "layer_types": ["sliding_attention"]}
    config = Gemma3Config(text_config=shape | window)
    expect(student.kv_layers, config).equals(
        [(4, 6, 0)],
        because="the outer config describes images too",
        tip="start with config.text_config if there is one",
    )


@task("sizing.2", after="test_one_entry_a_layer")
def test_configs_without_layers_are_refused(student):
    """A config that names no layers is refused, and so is a kind of layer that is not known."""
    from transformers import PretrainedConfig

    tip = "raise ValueError with a sentence that names the config"
    expect(student.kv_layers, PretrainedConfig()).refused(
        naming="config", because="0 bytes would be a wrong answer", tip=tip
    )
    strange = tiny("LlamaConfig", layers=1, layer_types=["compressed_sparse_attention"])
    expect(student.kv_layers, strange).refused(naming="config", because="better no number than a wrong one", tip=tip)
