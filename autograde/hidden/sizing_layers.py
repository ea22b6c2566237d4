"""Hidden tests of sizing.2: each config departs in one way from a plain one, so that one mistake costs one property."""

from __future__ import annotations

from typing import Any

from autograde.hidden.shapes import KINDS, attention, build, mixed
from kvcourse.tasks.api import expect, task

DRAWS = 3


def same_layers(student: Any, solution: Any, config: Any, because: str) -> None:
    expect(student.kv_layers, config).equals(solution.kv_layers(config), because=because)


@task("sizing.2")
def test_grouped_query(student, rng, solution):
    """Query heads that share KV heads are not counted."""
    for config_class in rng.sample(("LlamaConfig", "Phi3Config", "OlmoConfig", "GraniteConfig"), DRAWS):
        shape = attention(rng, num_key_value_heads=rng.choice((1, 2)))
        same_layers(student, solution, build(config_class, **shape), "num_key_value_heads decides")


@task("sizing.2")
def test_given_head_dim(student, rng, solution):
    """A head dimension that the config gives is used, whatever hidden size / heads would be."""
    for config_class in rng.sample(("Qwen3Config", "LlamaConfig", "GemmaConfig", "Qwen3MoeConfig"), DRAWS):
        shape = attention(rng, head_dim=rng.choice((32, 48, 64, 96)))
        same_layers(student, solution, build(config_class, **shape), "head_dim decides")


@task("sizing.2")
def test_nothing_named(student, rng, solution):
    """A model that names neither KV heads nor a head dimension stores hidden size numbers for a key."""
    for config_class in ("GPT2Config", "GPTNeoXConfig", "OPTConfig"):
        shape = attention(rng, "num_key_value_heads", "head_dim")
        same_layers(student, solution, build(config_class, **shape), "every query head stores a key and a value")


@task("sizing.2")
def test_multi_query(student, rng, solution):
    """`multi_query` means one KV head, whatever else the config reports."""
    for config_class in ("FalconConfig", "GPTBigCodeConfig"):
        shape = attention(rng, "num_key_value_heads", "head_dim", multi_query=True)
        same_layers(student, solution, build(config_class, **shape), "multi_query is true")


@task("sizing.2")
def test_new_decoder_architecture(student, rng, solution):
    """The new decoder architecture has `num_kv_heads`, although `multi_query` is true."""
    for _ in range(DRAWS):
        shape = attention(rng, "num_key_value_heads", "head_dim", num_kv_heads=rng.choice((2, 3)))
        config = build("FalconConfig", **shape, multi_query=True, new_decoder_architecture=True)
        same_layers(student, solution, config, "new_decoder_architecture is true")


@task("sizing.2")
def test_latent(student, rng, solution):
    """A latent cache is one vector per layer and token."""
    for config_class in ("DeepseekV3Config", "DeepseekV2Config"):
        shape = {"kv_lora_rank": rng.choice((128, 320, 640)), "qk_rope_head_dim": rng.choice((16, 32, 96))}
        config = build(config_class, num_hidden_layers=rng.randint(3, 7), num_nextn_predict_layers=0, **shape)
        same_layers(student, solution, config, "one latent vector for keys, values and all heads")


@task("sizing.2")
def test_value_length(student, rng, solution):
    """Values may be shorter or longer than keys."""
    for _ in range(DRAWS):
        shape = attention(rng, v_head_dim=rng.choice((16, 32, 40)))
        kinds = ["full_attention"] * shape["num_hidden_layers"]
        same_layers(student, solution, build("MiMoV2FlashConfig", **shape, layer_types=kinds), "head_dim + v_head_dim")


@task("sizing.2", after="test_grouped_query")
def test_heads_of_sliding_layers(student, rng, solution):
    """Sliding layers may have a number of KV heads of their own."""
    for _ in range(DRAWS):
        shape = attention(rng, sliding_window=rng.randint(9, 99), swa_num_key_value_heads=rng.choice((1, 2, 3)))
        shape |= {"v_head_dim": shape["head_dim"], "layer_types": mixed(rng, shape["num_hidden_layers"])}
        same_layers(student, solution, build("MiMoV2FlashConfig", **shape), "swa_num_key_value_heads")


@task("sizing.2")
def test_window_in_every_layer(student, rng, solution):
    """Without a list of kinds, a window holds for every layer."""
    for config_class in ("MistralConfig", "Starcoder2Config", "Phi3Config"):
        config = build(config_class, **attention(rng, sliding_window=rng.randint(9, 999)))
        same_layers(student, solution, config, "sliding_window is set and there are no layer_types")


@task("sizing.2")
def test_sliding_and_full(student, rng, solution):
    """The list of kinds says which layer slides."""
    for config_class in ("Gemma2Config", "GptOssConfig", "Cohere2Config"):
        shape = attention(rng, sliding_window=rng.randint(9, 999))
        kinds = mixed(rng, shape["num_hidden_layers"])
        same_layers(student, solution, build(config_class, **shape, layer_types=kinds), "layer_types decides")


@task("sizing.2")
def test_unused_window(student, rng, solution):
    """A window that is switched off does not count."""
    for _ in range(DRAWS):
        shape = attention(rng, sliding_window=rng.randint(9, 999), use_sliding_window=False)
        same_layers(student, solution, build("PretrainedConfig", **shape), "use_sliding_window is false")


@task("sizing.2", after="test_window_in_every_layer")
def test_window_from_a_layer_on(student, rng, solution):
    """With `max_window_layers`, only the layers from that number on slide."""
    for _ in range(DRAWS):
        shape = attention(rng, sliding_window=rng.randint(9, 999), use_sliding_window=True)
        shape["max_window_layers"] = rng.randint(1, shape["num_hidden_layers"] - 1)
        same_layers(student, solution, build("PretrainedConfig", **shape), "max_window_layers layers stay full")


@task("sizing.2")
def test_chunked_attention(student, rng, solution):
    """A chunked layer keeps one chunk."""
    for _ in range(DRAWS):
        shape = attention(rng, attention_chunk_size=rng.randint(9, 999))
        kinds = [kind.replace("sliding", "chunked") for kind in mixed(rng, shape["num_hidden_layers"])]
        same_layers(student, solution, build("Llama4TextConfig", **shape, layer_types=kinds), "attention_chunk_size")


@task("sizing.2", after="test_grouped_query")
def test_heads_that_differ(student, rng, solution):
    """Each layer has its own number of KV heads."""
    for _ in range(DRAWS):
        shape = attention(rng, num_global_key_value_heads=rng.choice((2, 3)), attention_k_eq_v=True)
        shape |= {"global_head_dim": shape["head_dim"], "sliding_window": rng.randint(9, 999)}
        kinds = mixed(rng, shape["num_hidden_layers"])
        same_layers(student, solution, build("Gemma4TextConfig", **shape, layer_types=kinds), "per_layer_config")


@task("sizing.2", after="test_given_head_dim")
def test_head_dims_that_differ(student, rng, solution):
    """Each layer has its own head dimension."""
    for _ in range(DRAWS):
        shape = attention(rng, sliding_window=rng.randint(9, 999))
        shape |= {"global_head_dim": 2 * shape["head_dim"], "layer_types": mixed(rng, shape["num_hidden_layers"])}
        same_layers(student, solution, build("Gemma4TextConfig", **shape), "per_layer_config")


@task("sizing.2")
def test_shared_layers(student, rng, solution):
    """The last layers of some models read the cache of earlier ones and store nothing."""
    for config_class in ("Gemma3nTextConfig", "Gemma4TextConfig"):
        shape = attention(
            rng, num_hidden_layers=8, num_kv_shared_layers=rng.choice((1, 2, 3)), layer_types=list(KINDS) * 4
        )
        shape |= {"global_head_dim": shape["head_dim"], "sliding_window": rng.randint(9, 999)}
        same_layers(
            student, solution, build(config_class, **shape), "the last num_kv_shared_layers layers store nothing"
        )


@task("sizing.2")
def test_linear_layers_keep_a_state(student, rng, solution):
    """A linear layer stores a constant state and nothing per token."""
    period = rng.choice((2, 3))
    jamba = attention(
        rng, num_hidden_layers=6, attn_layer_period=period, attn_layer_offset=period - 1, mamba_d_state=24
    )
    same_layers(student, solution, build("JambaConfig", **jamba), "attention in every layer number attn_layer_period")
    delta = attention(rng, num_hidden_layers=8, linear_num_value_heads=32 * rng.choice((1, 2)))
    same_layers(student, solution, build("Qwen3NextConfig", **delta), "a linear layer has a state")


@task("sizing.2")
def test_decoder_of_a_multimodal_model(student, rng, solution):
    """The decoder inside a multimodal config is what counts."""
    for _ in range(DRAWS):
        shape = attention(rng)
        kinds = ["full_attention"] * shape["num_hidden_layers"]
        config = build("Gemma3Config", text_config=shape | {"layer_types": kinds})
        same_layers(student, solution, config, "text_config holds the decoder")


@task("sizing.2")
def test_experts_do_not_matter(student, rng, solution):
    """The number of experts changes nothing."""
    for experts in rng.sample((4, 16, 64), 2):
        config = build("MixtralConfig", **attention(rng), num_local_experts=experts, sliding_window=None)
        same_layers(student, solution, config, "experts have no keys and values")


@task("sizing.2")
def test_draft_layers_do_not_count(student, rng, solution):
    """Draft layers (multi-token prediction) are not counted."""
    for _ in range(DRAWS):
        draft = {"num_nextn_predict_layers": rng.randint(1, 4)}
        same_layers(
            student, solution, build("PretrainedConfig", **attention(rng), **draft), "num_hidden_layers entries"
        )


@task("sizing.2", after="test_grouped_query")
def test_configs_that_cannot_be_sized(student, rng):
    """A config without layers and an unknown kind of layer are refused."""
    expect(student.kv_layers, build("PretrainedConfig", hidden_size=rng.randint(8, 99))).refused(naming="config")
    kinds = ["full_attention", rng.choice(("compressed_sparse_attention", "heavily_compressed_attention"))]
    expect(student.kv_layers, build("LlamaConfig", num_hidden_layers=2, layer_types=kinds)).refused()
