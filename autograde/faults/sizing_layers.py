"""Planted mistakes of sizing.2: what people read wrongly in a config."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault


@fault("sizing.2", caught_by="test_grouped_query", why="counts query heads", source="P1.1")
def kv_shape(config, kind):
    heads, numbers = reference.kv_shape(config, kind)
    special = hasattr(config, "kv_lora_rank") or hasattr(config, "multi_query")
    return (heads if special else config.num_attention_heads), numbers


@fault("sizing.2", caught_by="test_given_head_dim", why="divides hidden size by heads always", source="P1.2")
def kv_shape(config, kind):
    heads, numbers = reference.kv_shape(config, kind)
    if hasattr(config, "kv_lora_rank"):
        return heads, numbers
    dim = config.hidden_size // config.num_attention_heads
    return heads, dim + (getattr(config, "v_head_dim", None) or dim)


@fault("sizing.2", caught_by="test_nothing_named", why="takes one KV head where none are named", source="P1.3")
def kv_shape(config, kind):
    heads, numbers = reference.kv_shape(config, kind)
    named = hasattr(config, "num_key_value_heads") or hasattr(config, "num_kv_heads")
    return (heads if named else 1), numbers


@fault("sizing.2", caught_by="test_multi_query", why="believes num_kv_heads of the config class", source="P1.3")
def kv_shape(config, kind):
    config.multi_query = False
    return reference.kv_shape(config, kind)


@fault("sizing.2", caught_by="test_new_decoder_architecture", why="believes multi_query of Falcon-40B", source="P1.3")
def kv_shape(config, kind):
    heads, numbers = reference.kv_shape(config, kind)
    return (1 if getattr(config, "multi_query", False) else heads), numbers


@fault("sizing.2", caught_by="test_latent", why="doubles the latent vector", source="P1.4")
def kv_shape(config, kind):
    heads, numbers = reference.kv_shape(config, kind)
    return heads, (2 * numbers if hasattr(config, "kv_lora_rank") else numbers)


@fault("sizing.2", caught_by="test_latent", why="stores expanded keys and values", source="P1.4")
def kv_shape(config, kind):
    if not hasattr(config, "kv_lora_rank"):
        return reference.kv_shape(config, kind)
    return config.num_attention_heads, config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim


@fault("sizing.2", caught_by="test_latent", why="forgets the rotary part of the latent", source="P1.4")
def kv_shape(config, kind):
    heads, numbers = reference.kv_shape(config, kind)
    return heads, (config.kv_lora_rank if hasattr(config, "kv_lora_rank") else numbers)


@fault("sizing.2", caught_by="test_value_length", why="takes values to be as long as keys", source="P1.9")
def kv_shape(config, kind):
    heads, numbers = reference.kv_shape(config, kind)
    values = getattr(config, "v_head_dim", None)
    return heads, (numbers if values is None or hasattr(config, "kv_lora_rank") else 2 * config.head_dim)


@fault("sizing.2", caught_by="test_heads_of_sliding_layers", why="has one head count for all layers", source="P1.9")
def kv_shape(config, kind):
    return reference.kv_shape(config, "full_attention")


@fault("sizing.2", caught_by="test_window_in_every_layer", why="looks for windows in layer_types only", source="P1.5")
def layer_kinds(config):
    kinds = reference.layer_kinds(config)
    return list(getattr(config, "layer_types", None) or ["full_attention"] * len(kinds))


@fault(
    "sizing.2", caught_by="test_sliding_and_full", why="treats gpt-oss as full attention", source="P1.5, vLLM #43308"
)
def layer_kinds(config):
    kinds = reference.layer_kinds(config)
    return ["full_attention"] * len(kinds) if config.model_type == "gpt_oss" else kinds


@fault("sizing.2", caught_by="test_sliding_and_full", why="lets every layer slide", source="P1.5")
def layer_kinds(config):
    kinds = reference.layer_kinds(config)
    return ["sliding_attention" if "attention" in kind else kind for kind in kinds] if config.sliding_window else kinds


@fault("sizing.2", caught_by="test_window_in_every_layer", why="forgets every window", source="P1.5, vLLM #43308")
def kv_layers(config):
    return [layer._replace(window=None) for layer in reference.kv_layers(config)]


@fault("sizing.2", caught_by="test_unused_window", why="ignores use_sliding_window", source="P1.7")
def layer_kinds(config):
    if hasattr(config, "use_sliding_window"):
        config.use_sliding_window = True
    return reference.layer_kinds(config)


@fault("sizing.2", caught_by="test_window_from_a_layer_on", why="ignores max_window_layers", source="P1.7")
def layer_kinds(config):
    if hasattr(config, "max_window_layers"):
        config.max_window_layers = 0
    return reference.layer_kinds(config)


@fault("sizing.2", caught_by="test_window_from_a_layer_on", why="lets the first layers slide", source="P1.7")
def layer_kinds(config):
    kinds = reference.layer_kinds(config)
    return kinds[::-1] if hasattr(config, "max_window_layers") else kinds


@fault("sizing.2", caught_by="test_chunked_attention", why="lets chunked layers keep everything", source="P1.5")
def layer_kinds(config):
    return [kind.replace("chunked", "full") for kind in reference.layer_kinds(config)]


@fault("sizing.2", caught_by="test_heads_that_differ", why="takes the first layer's heads", source="P1.8, vLLM #43308")
def kv_layers(config):
    layers = reference.kv_layers(config)
    if not config.is_heterogeneous:
        return layers
    heads = [kv_shape(config.per_layer_config[i], "")[0] for i in range(len(layers))]
    return [layer._replace(elements=layer.elements // own * heads[0]) for layer, own in zip(layers, heads, strict=True)]


@fault("sizing.2", caught_by="test_head_dims_that_differ", why="takes the first layer's head_dim", source="P1.8")
def kv_layers(config):
    layers = reference.kv_layers(config)
    if not config.is_heterogeneous:
        return layers
    numbers = [kv_shape(config.per_layer_config[i], "")[1] for i in range(len(layers))]
    return [
        layer._replace(elements=layer.elements // own * numbers[0]) for layer, own in zip(layers, numbers, strict=True)
    ]


@fault("sizing.2", caught_by="test_shared_layers", why="lets shared layers store", source="P1.8")
def kv_layers(config):
    if hasattr(config, "num_kv_shared_layers"):
        config.num_kv_shared_layers = 0
    return reference.kv_layers(config)


@fault("sizing.2", caught_by="test_shared_layers", why="takes the first layers for the shared ones", source="P1.8")
def kv_layers(config):
    layers = reference.kv_layers(config)
    shared = getattr(config, "num_kv_shared_layers", 0)
    return layers[len(layers) - shared :] + layers[: len(layers) - shared]


@fault("sizing.2", caught_by="test_linear_layers_keep_a_state", why="lets linear layers store keys", source="P1.10")
def kv_layers(config):
    layers = reference.kv_layers(config)
    elements = max(layer.elements for layer in layers)
    return [LayerKV(elements, None, 0) if layer.constant else layer for layer in layers]


@fault("sizing.2", caught_by="test_linear_layers_keep_a_state", why="forgets the constant state", source="P1.10")
def kv_layers(config):
    return [layer._replace(constant=0) for layer in reference.kv_layers(config)]


@fault(
    "sizing.2", caught_by="test_linear_layers_keep_a_state", why="leaves linear layers out of the list", source="P1.10"
)
def kv_layers(config):
    return [layer for layer in reference.kv_layers(config) if not layer.constant]


@fault("sizing.2", caught_by="test_decoder_of_a_multimodal_model", why="reads the outer config only")
def kv_layers(config):
    require(bool(getattr(config, "num_hidden_layers", 0)), "config has no layers")
    return reference.kv_layers(config)


@fault("sizing.2", caught_by="test_experts_do_not_matter", why="multiplies by Mixtral's experts", source="P1.12")
def kv_layers(config):
    experts = config.num_local_experts if config.model_type == "mixtral" else 1
    return [layer._replace(elements=experts * layer.elements) for layer in reference.kv_layers(config)]


@fault("sizing.2", caught_by="test_draft_layers_do_not_count", why="adds the draft layers", source="P1.17")
def kv_layers(config):
    layers = reference.kv_layers(config)
    return layers + layers[-1:] * getattr(config, "num_nextn_predict_layers", 0)


@fault("sizing.2", caught_by="test_configs_that_cannot_be_sized", why="answers [] for a config without layers")
def kv_layers(config):
    decoder = getattr(config, "text_config", None) or config
    return reference.kv_layers(config) if hasattr(decoder, "num_hidden_layers") else []


@fault("sizing.2", caught_by="test_configs_that_cannot_be_sized", why="guesses at kinds it does not know")
def layer_kinds(config):
    return ["full_attention" if "compressed" in kind else kind for kind in reference.layer_kinds(config)]
