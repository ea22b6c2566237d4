# %% [markdown]
# A language model that writes an answer looks back at every earlier token, for every new token. What it looks at is
# stored: the **KV cache**. This lesson is about one question, how big that store is, and the answer drives every later
# lesson of the course: what can be reused, where it can be kept, and how many people one GPU can serve.
#
# You will write the sizing code that an engine runs at its start, check it against the caches that real models fill,
# and then measure on real keys and values what fewer bits cost. It takes 60 to 90 minutes.
#
# Each task has a name such as `sizing.1` and the same steps: the idea by hand, your code, a check, and a look at real
# models. `check("sizing.1")` says which properties hold and shows the smallest input that breaks one.
# `hint("sizing.1")` gives a hint, up to three per task, each more direct than the last; hints cost nothing.
# `progress()` shows where you are.
#
# A cell with `# YOUR CODE HERE` is yours. Until you have written it, it raises `NotImplementedError`, and so does every
# later cell that needs it.

# %% setup=true
from __future__ import annotations

from typing import NamedTuple

from kvcourse import check, hint, progress, quiz  # noqa: F401

# %% [markdown]
# ## What is stored, and why
#
# A **token** is a piece of text, a word or a part of one, as a number. Inside the model each token is a vector, and
# every attention layer turns that vector into three others:
#
# - a **query**: what this token looks for,
# - a **key**: what this token can be found by,
# - a **value**: what is passed on when it is found.
#
# The output of attention for one token is a weighted mean of values. The weights come from comparing its query with the
# keys of all tokens up to and including itself. Later tokens are never looked at. So the key and the value of a token
# depend only on the tokens before it and on itself, and once computed they never change. The query is used once, at
# its own position.
#
# Here is attention for four tokens with vectors of two numbers. By hand for the second token, (0, 1): its key is
# 0 × (1, 0) + 1 × (1, 1) = (1, 1).

# %% demo=true
if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)  # the sizes here are small: more threads would only slow it down

    W_QUERY = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    W_KEY = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    W_VALUE = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    tokens = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0]])

    def attend(query, keys, values):
        weights = torch.softmax(keys @ query / len(query) ** 0.5, dim=0)
        return weights @ values

    print("keys of the four tokens:", (tokens @ W_KEY).tolist())

# %% [markdown]
# Now let the tokens arrive one at a time, as they do when a model writes. Without a store, every step computes the keys
# and values of all tokens so far. With a store, a step computes one key and one value and keeps them.

# %% demo=true
if __name__ == "__main__":

    def write_without_cache(tokens):
        outputs, computed = [], 0
        for n in range(1, len(tokens) + 1):
            keys, values = tokens[:n] @ W_KEY, tokens[:n] @ W_VALUE
            computed += len(keys) + len(values)
            outputs.append(attend(tokens[n - 1] @ W_QUERY, keys, values))
        return torch.stack(outputs), computed

    def write_with_cache(tokens):
        keys, values, outputs, computed = [], [], [], 0
        for token in tokens:
            keys.append(token @ W_KEY)
            values.append(token @ W_VALUE)
            computed += 2
            outputs.append(attend(token @ W_QUERY, torch.stack(keys), torch.stack(values)))
        return torch.stack(outputs), computed

    slow, computed_slow = write_without_cache(tokens)
    fast, computed_fast = write_with_cache(tokens)
    print("same output:", torch.allclose(slow, fast))
    print(f"keys and values computed for 4 tokens: {computed_slow} without the cache, {computed_fast} with it")
    print(f"for 1,000 tokens: {write_without_cache(torch.randn(1000, 2))[1]:,} and {2 * 1000:,}")

# %% [markdown]
# The output is the same. Without the cache the work grows with the square of the length: 2 × (1 + 2 + … + n) = n(n +
# 1) keys and values for n tokens, 20 for four. With it, 2n: 8. In a real model it is worse, because the inputs of the
# second layer are the outputs of the first, and so the whole model would run again over all tokens for each new one.
# That is why every engine keeps the cache of a running request without being asked.
#
# Four words that engines use for this:
#
# - **Prefill**: the model reads the whole prompt at once and fills the cache.
# - **Decode**: it writes token by token; each step adds one entry to the cache and reads all of it.
# - **TTFT** (time to first token): how long a user waits until the answer begins. Most of it is prefill.
# - **VRAM**: the memory on the GPU itself. Weights, working buffers and caches share it.

# %% [markdown]
# ## sizing.1 bytes per token
#
# Attention runs several times side by side in each layer, on different parts of the vector. Each part is a **head**,
# and the length of one head's key is the **head dimension**. A **KV head** is a head that has its own keys and
# values; some models have fewer of them than query heads (more on this in sizing.2).
#
# For each token, each layer stores one key and one value for each KV head:
#
# $$\text{bytes per token} = 2 \times \text{layers} \times \text{KV heads} \times \text{head dimension} \times
# \frac{\text{bits per number}}{8}$$
#
# Small, by hand: 3 layers, 1 KV head, head dimension 4, 8 bits (1 byte) a number: 2 × 3 × 1 × 4 × 1 = 24 bytes.
#
# Real, by hand: a model of about 70 billion weights in the shape of Llama 3 has 80 layers, 8 KV heads and head
# dimension 128. At 16 bits: 2 × 80 × 8 × 128 × 2 = 327,680 bytes, a third of a megabyte for one token.
#
# **Your task.** Write `kv_bytes_per_token`. The tests rely on these rules:
#
# - `bits` is one of 2, 4, 8, 16, 32. Numbers are packed without gaps, so 3 numbers of 4 bits take 12 bits, and a
#   started byte counts as a whole one: 2 bytes.
# - The result is an `int`.
# - A size below 1 or another `bits` raises `ValueError`, and the message names the argument. `require` and
#   `require_bits` are there for that.

# %%
BITS = (2, 4, 8, 16, 32)


def require(condition: bool, message: str) -> None:
    """Refuse a bad input: raise ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


def require_bits(bits: int) -> None:
    require(bits in BITS, f"bits must be one of {BITS}, got {bits}: give the width of one stored number")


# %% solution="sizing.1"
def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bits: int = 16) -> int:
    """Bytes that one token adds to a KV cache whose layers all have the same shape.

    Every layer stores one key and one value vector of `head_dim` numbers for each KV head.
    A number takes `bits` bits; they are packed, and a started byte counts as a whole one.
    ValueError for a size below 1 and for a width that is not in BITS.
    """
    ### BEGIN SOLUTION
    require(layers >= 1, f"layers must be at least 1, got {layers}: count the layers that store keys and values")
    require(kv_heads >= 1, f"kv_heads must be at least 1, got {kv_heads}: use num_key_value_heads of the config")
    require(head_dim >= 1, f"head_dim must be at least 1, got {head_dim}: use the length of one key vector")
    require_bits(bits)
    numbers = 2 * layers * kv_heads * head_dim
    return (numbers * bits + 7) // 8
    ### END SOLUTION


# %% check="sizing.1"
if __name__ == "__main__":
    check("sizing.1")

# %% [markdown]
# ### Plug it in: what a conversation costs
#
# Sizes here are in GB, and 1 GB is 1,000,000,000 bytes.

# %% demo=true
if __name__ == "__main__":
    token_16 = kv_bytes_per_token(layers=80, kv_heads=8, head_dim=128)
    token_8 = kv_bytes_per_token(layers=80, kv_heads=8, head_dim=128, bits=8)
    print(f"bytes per token, 16-bit cache: {token_16}")
    print(f"bytes per token, 8-bit cache : {token_8}")
    for length in (4_000, 32_000, 128_000):
        size_16, size_8 = length * token_16 / 1e9, length * token_8 / 1e9
        print(f"{length:>7,} tokens: {size_16:6.1f} GB (16-bit) {size_8:8.1f} GB (8-bit)")

# %% [markdown]
# One conversation of 128,000 tokens takes 41.9 GB at 16 bits. That is half of an 80 GB GPU, before any weights, for one
# user. Eight bits halve it. What the halving costs is the subject of sizing.6.

# %% [markdown]
# ## sizing.2 what every layer keeps
#
# The formula is right for a model whose layers are all alike. The shape of a real model is in its **config**, a file
# of fields that comes with the weights. A common shortcut reads two fields, the number of layers and the width of the
# model (`hidden_size`), and takes 2 × layers × width × 2 bytes. See what it says for seven models.

# %% demo=true
if __name__ == "__main__":
    import transformers

    from kvcourse.models.catalog import model_config

    transformers.logging.set_verbosity_error()  # no remarks about missing GPU kernels

    def shortcut(config):
        config = config.get_text_config()
        return 2 * config.num_hidden_layers * config.hidden_size * 2

    SEVEN = ("gpt-2", "llama-3-8b", "qwen3-32b", "falcon-7b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b")
    for name in SEVEN:
        print(f"{name:16} {shortcut(model_config(name)):>10,} bytes per token, says the shortcut")

# %% [markdown]
# Only the first number is right. Models differ in what a layer stores for a token:
#
# - **MHA**, multi-head attention: a key and a value for every query head.
#   GPT-2: 2 × 12 layers × 12 heads × 64 × 2 bytes = 36,864.
# - **GQA**, grouped-query attention: several query heads share a KV head, `num_key_value_heads` of them.
#   Llama-3-8B has 32 query heads on 8 KV heads: 2 × 32 × 8 × 128 × 2 = 131,072.
# - **MQA**, multi-query attention: one KV head for all, `multi_query`.
#   Falcon-7B: 2 × 32 × 1 × 64 × 2 = 8,192.
# - **A head dimension of its own**: the field `head_dim` wins over width / heads.
#   Qwen3-32B has `head_dim` 128, not 5,120 / 64 = 80: 2 × 64 × 8 × 128 × 2 = 262,144.
# - **MLA**, multi-head latent attention: one short vector of `kv_lora_rank` + `qk_rope_head_dim` numbers, from which
#   all heads rebuild their keys and values. No factor 2 and no heads. DeepSeek-V3: 61 × (512 + 64) × 2 = 70,272.

# %% [markdown]
# Five more cases concern how long, or whether, a layer keeps its entries:
#
# - **Sliding window**: a layer looks back at most `sliding_window` tokens and can drop what lies further back. In
#   Gemma-3-1B 22 of 26 layers have a window of 512. A token costs 26 × 1 × (256 + 256) × 2 = 26,624 bytes at first, and
#   beyond the window only the 4 others grow: 4 × 512 × 2 = 4,096.
# - **A window that is not used**: Qwen2.5-7B has a `sliding_window` and `use_sliding_window = False`.
# - **Shared cache**: the last `num_kv_shared_layers` layers of Gemma-4-E2B read what earlier layers stored and store
#   nothing themselves: 15 of 35 layers count.
# - **Linear attention** (and state-space layers such as Mamba): a layer keeps a state of fixed size that every token
#   overwrites, in place of entries per token. In Qwen3-Next-80B 36 of 48 layers are of this kind: 24,576 bytes per
#   token from the other 12, and a constant 77.9 MB per sequence.
# - **Keys and values of different length**: MiMo-V2.5 has keys of 192 and values of 128 numbers (`v_head_dim`).
#
# The number of experts in a mixture of experts is not in the list. Experts replace the part of a layer that is not
# attention and store no keys or values: Mixtral-8x7B has the cache of Llama-3-8B, 131,072 bytes per token.

# %% [markdown]
# **Your task.** Write `kv_layers(config)`: one `LayerKV` per layer, in order. `LayerKV` and `state_bytes` (the constant
# state of a linear layer) are given. The work is cut in three: the kind of every layer, the shape of an entry, and both
# together. The tests call `kv_layers` only; the two helpers are yours to change. The rules:
#
# - `elements` counts numbers, not bytes: keys and values of all KV heads of the layer for one token.
# - `window` is how many tokens the layer keeps, the newest included; `None` if it keeps all. For the kind
#   "sliding_attention" it is the layer's `sliding_window`, for "chunked_attention" its `attention_chunk_size`.
# - These kinds store entries: "full_attention", "sliding_attention", "chunked_attention", "hybrid". These do not:
#   "linear_attention", "conv", "moe", "mlp". A constant state is kept by "linear_attention", "conv" and "hybrid", the
#   last of which has both. Any other kind raises `ValueError` that names it.
# - KV heads are in `num_key_value_heads`, in some configs in `num_kv_heads`; if neither says anything, every query head
#   (`num_attention_heads`) has its own. `multi_query` means 1, unless `new_decoder_architecture` is set as well
#   (Falcon-40B: 8 heads, not 1).
# - A layer that stores nothing of its own, shared layers included, is `LayerKV(0, None, 0)`.
# - A multimodal config holds its decoder in `config.text_config`.
# - Layers may differ in shape: `config.per_layer_config[i]` is the config of layer i, with the fields of that layer.
#   Every Transformers config has it.
# - A field can be absent, or present and `None`. Both mean that it says nothing.
# - `num_hidden_layers` counts all layers that matter here. Extra draft layers (`num_nextn_predict_layers`) are not
#   counted; an engine fills their cache only when it lets them draft tokens.


# %%
class LayerKV(NamedTuple):
    """What one layer keeps of a sequence.

    elements: numbers stored for each kept token, keys and values together
    window: only the last `window` tokens are kept; None keeps them all
    constant: bytes of a state that is kept once per sequence, however long the sequence is
    """

    elements: int
    window: int | None
    constant: int


def state_bytes(config) -> int:
    """Bytes of the state that one linear-attention layer keeps for a sequence, in a 16-bit model.

    Such a layer stores nothing per token: it keeps the last inputs of a short convolution (16 bits each) and, in most
    designs, a recurrent state that every token overwrites (32 bits each, also when the keys and values are quantised).
    Shapes and widths are those of the Transformers caches. ValueError for a design that is not listed here.
    """
    if hasattr(config, "linear_num_value_heads"):  # gated delta net: Qwen3-Next, Qwen3.5
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values = config.linear_num_value_heads * config.linear_value_head_dim
        convolution = (2 * keys + values) * config.linear_conv_kernel_dim
        recurrent = values * config.linear_key_head_dim
    elif hasattr(config, "mamba_n_heads"):  # Mamba 2: Bamba, Granite 4, Falcon-H1
        width = config.mamba_n_heads * config.mamba_d_head
        convolution = (width + 2 * config.mamba_n_groups * config.mamba_d_state) * config.mamba_d_conv
        recurrent = width * config.mamba_d_state
    elif hasattr(config, "mamba_d_state"):  # Mamba 1: Jamba
        width = config.mamba_expand * config.hidden_size
        convolution = width * config.mamba_d_conv
        recurrent = width * config.mamba_d_state
    elif hasattr(config, "conv_L_cache"):  # short convolutions only: LFM2
        convolution = config.hidden_size * config.conv_L_cache
        recurrent = 0
    else:
        raise ValueError(f"config of type {config.model_type!r} has linear layers of unknown shape: add them here")
    return 2 * convolution + 4 * recurrent


# %% solution="sizing.2" part="a"
def layer_kinds(config) -> list[str]:
    """The kind of every layer, in order: "full_attention", "sliding_attention", "linear_attention" and so on.

    Most configs list the kinds in `layer_types`. Without a list, a `sliding_window` means that every layer slides, or
    every layer from number `max_window_layers` on; `use_sliding_window` set to False means that none does.
    ValueError if the config does not say how many layers there are.
    """
    ### BEGIN SOLUTION
    layers = getattr(config, "num_hidden_layers", None)
    require(bool(layers), "config has no num_hidden_layers: pass the config of a decoder model")
    listed = getattr(config, "layer_types", None)
    if listed is not None:
        return list(listed)
    if getattr(config, "sliding_window", None) is None or not getattr(config, "use_sliding_window", True):
        return ["full_attention"] * layers
    first_sliding = getattr(config, "max_window_layers", None) or 0
    return ["full_attention" if i < first_sliding else "sliding_attention" for i in range(layers)]
    ### END SOLUTION


# %% solution="sizing.2" part="b"
def kv_shape(config, kind: str) -> tuple[int, int]:
    """The KV heads of an attention layer and the numbers stored per head and token, key and value together.

    A latent cache (MLA) stores one vector of kv_lora_rank + qk_rope_head_dim numbers for all heads: (1, its length).
    `swa_num_key_value_heads`, where a config has it, counts the heads of sliding layers.
    """
    ### BEGIN SOLUTION
    if getattr(config, "kv_lora_rank", None) is not None:
        return 1, config.kv_lora_rank + config.qk_rope_head_dim

    key_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    value_dim = getattr(config, "v_head_dim", None) or key_dim

    one_head_for_all = getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False)
    if one_head_for_all:
        return 1, key_dim + value_dim
    if kind == "sliding_attention" and getattr(config, "swa_num_key_value_heads", None):
        return config.swa_num_key_value_heads, key_dim + value_dim
    for name in ("num_key_value_heads", "num_kv_heads", "num_attention_heads"):
        heads = getattr(config, name, None)
        if heads is not None:
            return heads, key_dim + value_dim
    raise ValueError("config has no num_attention_heads: pass the config of a decoder model")
    ### END SOLUTION


# %% solution="sizing.2" part="c"
def kv_layers(config) -> list[LayerKV]:
    """What every layer of a model keeps, in the order of the layers.

    `config` is a Transformers config; a multimodal one holds its decoder in `text_config`. Layers may differ in shape:
    `config.per_layer_config[i]` is the config of layer i. The last `num_kv_shared_layers` layers read the cache of
    earlier layers and store nothing: LayerKV(0, None, 0).
    ValueError for a config without layers and for a kind of layer that is not known.
    """
    ### BEGIN SOLUTION
    config = getattr(config, "text_config", None) or config
    kinds = layer_kinds(config)
    first_shared = len(kinds) - (getattr(config, "num_kv_shared_layers", None) or 0)
    layers = []
    for i, kind in enumerate(kinds):
        layer = config.per_layer_config[i]
        if i >= first_shared or kind in ("moe", "mlp"):
            layers.append(LayerKV(0, None, 0))
        elif kind in ("linear_attention", "conv"):
            layers.append(LayerKV(0, None, state_bytes(layer)))
        elif kind in ("full_attention", "sliding_attention", "chunked_attention", "hybrid"):
            heads, numbers = kv_shape(layer, kind)
            window = None
            if kind == "sliding_attention":
                window = layer.sliding_window
            if kind == "chunked_attention":
                window = layer.attention_chunk_size
            layers.append(LayerKV(heads * numbers, window, state_bytes(layer) if kind == "hybrid" else 0))
        else:
            raise ValueError(f"config has a layer of kind {kind!r}, which is not known here: size this model by hand")
    return layers
    ### END SOLUTION


# %% check="sizing.2"
if __name__ == "__main__":
    check("sizing.2")

# %% [markdown]
# ### Look: the same seven models, read properly

# %% demo=true
if __name__ == "__main__":

    def first_token(config):  # every layer stores it
        return sum(layer.elements for layer in kv_layers(config)) * 16 // 8

    def late_token(config):  # only layers without a window grow
        return sum(layer.elements for layer in kv_layers(config) if layer.window is None) * 16 // 8

    print(f"{'model':16} {'shortcut':>10} {'yours':>10} {'times too big':>14}")
    for name in SEVEN:
        quick, right = shortcut(model_config(name)), first_token(model_config(name))
        print(f"{name:16} {quick:>10,} {right:>10,} {quick / right:>14.1f}")

# %% [markdown]
# ### Plug it in: the caches that real models fill
#
# A formula is easy to get wrong in a way that looks right. So measure. `measured_cache_bytes` builds the model with its
# true layers, KV heads, head dimensions and states, and with all that never reaches the cache cut down (width, experts,
# vocabulary), so that it runs here in about a second. It runs one forward pass over random tokens and counts the bytes
# of every tensor in the cache that the Transformers library filled.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.models.measure import measured_cache_bytes, small_config

    FIFTEEN = (
        *("gpt-2", "falcon-7b", "llama-3-8b", "llama-3-70b", "mixtral-8x7b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-32b"),
        *("mistral-7b-v0.1", "gemma-3-27b", "gemma-4-e2b", "gpt-oss-20b", "mimo-v2.5", "deepseek-v3", "qwen3-next-80b"),
    )
    LENGTH = 48

    print(f"bytes of the cache after {LENGTH} tokens")
    print(f"{'model':16} {'yours':>12} {'measured':>12}")
    for name in FIFTEEN:
        layers = kv_layers(model_config(name))
        yours = sum(layer.elements * LENGTH * 2 + layer.constant for layer in layers)
        measured = sum(measured_cache_bytes(model_config(name), LENGTH))
        print(f"{name:16} {yours:>12,} {measured:>12,} {'' if yours == measured else '  differs'}")

# %% [markdown]
# 48 tokens fit in every window. To see a window at work, shrink it to 16 (the same code path, fewer tokens).

# %% demo=true
if __name__ == "__main__":
    config = model_config("gemma-3-1b")
    layers = kv_layers(small_config(config, window=16))
    measured = measured_cache_bytes(config, LENGTH, window=16)
    for i in (4, 5):
        window = layers[i].window
        yours = layers[i].elements * 2 * (LENGTH if window is None else min(LENGTH, window))
        print(f"layer {i}: window {window}, yours {yours:,} bytes, measured {measured[i]:,}")

# %% [markdown]
# The sliding layer holds one token less than you counted, 15 of 16. Both are right: Transformers counts the moment
# between two steps, when the next token will bring its own key and value; you count the moment when that token is in.
# Engines and this course count the window in full.

# %% [markdown]
# ### Look: one token in fourteen models
#
# A bar is what a token costs while every layer keeps it. The black tick is what it costs in a long sequence, where only
# layers without a window still grow. Neither follows the number of weights: Qwen3-0.6B stores nearly five times as much
# per token as Qwen3-Next-80B.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.plots import sizing as plots

    KINDS = {
        "one head per query head (MHA)": ("gpt-2",),
        "shared heads (GQA, MQA)": ("llama-3-8b", "llama-3-70b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-32b", "falcon-7b"),
        "windows or shared layers": ("gemma-3-27b", "gemma-4-e2b", "gpt-oss-20b", "mimo-v2.5"),
        "latent (MLA)": ("deepseek-v3",),
        "constant state in most layers": ("qwen3-next-80b", "jamba-v0.1"),
    }
    kinds = {name: kind for kind, names in KINDS.items() for name in names}
    early = {name: first_token(model_config(name)) for name in kinds}
    late = {name: late_token(model_config(name)) for name in kinds}
    plots.token_bars(early, late, kinds)

# %% [markdown]
# ## sizing.3 bytes of a sequence
#
# Now the whole sequence of n tokens. A layer without a window keeps n, a layer with one keeps min(n, window), and a
# constant state is added once:
#
# $$\text{bytes} = \sum_\text{layers} \text{elements} \times \min(n, \text{window}) \times \frac{\text{bits}}{8} +
# \sum_\text{layers} \text{constant}$$
#
# By hand, gpt-oss-20b, 24 layers with 8 KV heads of 64, every second one with a window of 128. A layer stores
# 2 × 8 × 64 = 1,024 numbers or 2,048 bytes per token. For 8,192 tokens:
#
# - 12 full layers: 12 × 8,192 × 2,048 = 201,326,592 bytes,
# - 12 sliding layers: 12 × 128 × 2,048 = 3,145,728 bytes.
#
# Together 204,472,320 bytes, and for 32 such sequences 6,543,114,240 bytes, 6.09 GiB. A **GiB** is 1,073,741,824 bytes,
# 2 to the power of 30; tools mix it up with the GB (sizing.4).

# %% [markdown]
# That is what the model **needs**. An engine hands out memory in **blocks** of, say, 16 tokens, and keeps a list of
# blocks per sequence. If it keeps one list for all layers, every layer gets a block for every 16 tokens, and a window
# saves nothing: 24 × 8,192 × 2,048 × 32 = 12,884,901,888 bytes, 12.00 GiB. That is what it **reserves**. Both numbers
# are right answers, to two questions, so always say which one you mean.
#
# **Your task.** Write `sequence_bytes`:
#
# - without `block_size`: the need, by the formula above;
# - with `block_size`: what an engine with one block list reserves. The length is rounded up to whole blocks, in every
#   layer, windows or not. 17 tokens in blocks of 16 take the place of 32; 16 tokens take 16; 0 tokens take none;
# - `bits` is the width of keys and values (2, 4, 8, 16, 32). All numbers of the sequence are packed, and a started byte
#   counts as a whole one. The constant state is in bytes already and does not change with `bits`;
# - negative `tokens`, another `bits` or a `block_size` below 1 raises `ValueError`, naming the argument.


# %% solution="sizing.3"
def sequence_bytes(config, tokens: int, bits: int = 16, block_size: int | None = None) -> int:
    """Bytes of the cache of one sequence of `tokens` tokens.

    Without `block_size`: what the model needs; a layer with a window keeps at most that many tokens.
    With `block_size`: what an engine reserves; whole blocks in every layer, and a window saves nothing.
    Constant state is added once; `bits` is the width of keys and values, packed up to whole bytes.
    ValueError for a negative length, an unknown width and a block size below 1.
    """
    ### BEGIN SOLUTION
    require(tokens >= 0, f"tokens must not be negative, got {tokens}: count the tokens of prompt and answer")
    require_bits(bits)
    require(block_size is None or block_size >= 1, f"block_size must be at least 1, got {block_size}: engines use 16")
    numbers = constant = 0
    for layer in kv_layers(config):
        kept = tokens
        if block_size is not None:
            kept = -(-tokens // block_size) * block_size
        elif layer.window is not None:
            kept = min(tokens, layer.window)
        numbers += layer.elements * kept
        constant += layer.constant
    return (numbers * bits + 7) // 8 + constant
    ### END SOLUTION


# %% check="sizing.3"
if __name__ == "__main__":
    check("sizing.3")

# %% [markdown]
# ### Look: 32 sequences of 8,192 tokens

# %% demo=true
if __name__ == "__main__":
    GIB = 2**30
    names = ("gpt-oss-20b", "gemma-3-27b", "gemma-2-9b", "mistral-7b-v0.1", "llama-3-8b")
    needed = {name: 32 * sequence_bytes(model_config(name), 8_192) for name in names}
    reserved = {name: 32 * sequence_bytes(model_config(name), 8_192, block_size=16) for name in names}
    print(
        f"gpt-oss-20b: needed {needed['gpt-oss-20b'] / GIB:.2f} GiB, reserved {reserved['gpt-oss-20b'] / GIB:.2f} GiB"
    )
    plots.needed_and_reserved(needed, reserved, "32 sequences of 8,192 tokens")

# %% [markdown]
# The pair 6.09 and 12.00 GiB is from a change to the estimator hf-mem in 2026: it moved from the first to the second,
# since a tool that promises too much room ends in an out-of-memory error. Whether an engine reserves that much
# depends on it. vLLM's hybrid manager keeps one block list per group of layers and frees blocks that left the window,
# so its use lies close to the need; with that manager off, sliding layers are treated as full ones.
#
# Blocks waste a little in every sequence, on average half a block. It shows when sequences are short.

# %% demo=true
if __name__ == "__main__":
    config = model_config("llama-3-8b")
    print("llama-3-8b, one sequence: MB needed, and reserved in blocks of 16 and of 256")
    for length in (1, 16, 17, 1_000, 8_192):
        sizes = [sequence_bytes(config, length, block_size=size) / 1e6 for size in (None, 16, 256)]
        print(f"{length:>5} tokens: {sizes[0]:9.2f} {sizes[1]:9.2f} {sizes[2]:9.2f}")

# %% [markdown]
# ### Look: growth with the length of the context

# %% demo=true
if __name__ == "__main__":
    lengths = [2**power for power in range(7, 18)]
    names = ("llama-3-70b", "llama-3-8b", "gemma-3-27b", "deepseek-v3", "mistral-7b-v0.1", "qwen3-next-80b")
    growth = {name: [sequence_bytes(model_config(name), n) for n in lengths] for name in names}
    plots.cache_growth(lengths, growth)

# %% [markdown]
# Read three shapes off it. **Straight**: all layers keep everything (Llama). **Bent**: up to 1,024 tokens Gemma-3-27B
# grows more steeply than the 70B model, and after that only 10 of its 62 layers do; Mistral-7B-v0.1 runs on the line
# of Llama-3-8B up to its window of 4,096 and is flat from there, at 0.54 GB. **Raised at the start**: Qwen3-Next pays
# 77.9 MB for its states with the first token, and little for each token after that.

# %% [markdown]
# ## sizing.4 what fits
#
# When an engine starts, it loads the weights, sets a share of the remaining memory aside for the cache, and cuts it
# into blocks. From then on the cache cannot grow.
#
# Take a B200 GPU with 180 GB of VRAM, of which weights and buffers use 100 GB. 180 - 100 = 80 GB are free. TensorRT-LLM
# has the setting `kv_cache_config.free_gpu_memory_fraction`. At 0.8 the cache gets 0.8 × 80 = 64 GB.
#
# And how many tokens does a budget hold? Small, by hand: blocks of 4 tokens and 10 bytes per token make blocks of 40
# bytes. A budget of 135 bytes holds 3 of them, so 12 tokens. The last 15 bytes are of no use.
#
# **Your task.** Write three functions. All of them round down.
#
# - `kv_budget(free_bytes, fraction)`: bytes for the cache. `fraction` may be anything from 0 to 1, both ends included.
# - `tokens_that_fit(budget, bytes_per_token, block_size=1)`: tokens in whole blocks.
# - `sequences_that_fit(config, budget, tokens, bits=16, block_size=1)`: how many sequences of that length are served at
#   once. Each takes what an engine reserves for it: your `sequence_bytes` with `block_size`, also where that is 1, so
#   windows save nothing here, and each sequence brings its own constant state.
# - `ValueError`, naming the argument, for: negative `free_bytes` or `budget`, a `fraction` outside 0 to 1, a
#   `bytes_per_token`, `block_size` or `tokens` (of `sequences_that_fit`) below 1, another `bits`.


# %% solution="sizing.4" part="a"
def kv_budget(free_bytes: int, fraction: float) -> int:
    """Bytes for the cache: a fraction (0 to 1) of the memory that weights and buffers leave free, rounded down.

    ValueError for a negative size and a fraction outside 0..1.
    """
    ### BEGIN SOLUTION
    require(free_bytes >= 0, f"free_bytes must not be negative, got {free_bytes}: the weights alone do not fit")
    require(0 <= fraction <= 1, f"fraction must lie between 0 and 1, got {fraction}: write 80 % as 0.8")
    return int(free_bytes * fraction)
    ### END SOLUTION


# %% solution="sizing.4" part="b"
def tokens_that_fit(budget: int, bytes_per_token: int, block_size: int = 1) -> int:
    """Tokens that a budget of bytes holds, in whole blocks of `block_size` tokens.

    ValueError for a negative budget, and for a token size or block size below 1.
    """
    ### BEGIN SOLUTION
    require(budget >= 0, f"budget must not be negative, got {budget}: give the bytes left for the cache")
    require(bytes_per_token >= 1, f"bytes_per_token must be at least 1, got {bytes_per_token}: size a token first")
    require(block_size >= 1, f"block_size must be at least 1, got {block_size}: engines use 16")
    return budget // (block_size * bytes_per_token) * block_size
    ### END SOLUTION


# %% solution="sizing.4" part="c"
def sequences_that_fit(config, budget: int, tokens: int, bits: int = 16, block_size: int = 1) -> int:
    """Sequences of `tokens` tokens that a budget of bytes holds at once.

    An engine reserves whole blocks for each sequence, in sliding layers as well, and the constant state of each.
    ValueError for a negative budget, a length below 1, an unknown width and a block size below 1.
    """
    ### BEGIN SOLUTION
    require(budget >= 0, f"budget must not be negative, got {budget}: give the bytes left for the cache")
    require(tokens >= 1, f"tokens must be at least 1, got {tokens}: an empty sequence needs no memory")
    require(block_size is not None and block_size >= 1, f"block_size must be at least 1, got {block_size}")
    return budget // sequence_bytes(config, tokens, bits, block_size)
    ### END SOLUTION


# %% check="sizing.4"
if __name__ == "__main__":
    check("sizing.4")

# %% [markdown]
# ### Plug it in: the B200

# %% demo=true
if __name__ == "__main__":
    GB = 10**9
    free = 180 * GB - 100 * GB
    budget = kv_budget(free, 0.8)
    print(f"free: {free / GB:.0f} GB, cache at fraction 0.8: {budget / GB:.0f} GB")
    fits_16, fits_8 = tokens_that_fit(budget, token_16), tokens_that_fit(budget, token_8)
    print(f"tokens that fit in {budget / GB:.0f} GB: {fits_16:,} (16-bit), {fits_8:,} (8-bit)")

# %% [markdown]
# Half the bytes per number, twice the tokens: 195,312 and 390,625. When the 64 GB are full, entries have to be deleted
# (lesson 2) or moved to other memory (lesson 3), and it fills quickly.
#
# ### A fraction of what?
#
# vLLM's `gpu_memory_utilization` looks like the same setting. It is a fraction of the **total** memory, and weights and
# working buffers are inside it. SGLang's `mem_fraction_static` is of that kind too, for weights and cache. The same 0.8
# then leaves 0.8 × 180 - 100 = 44 GB.

# %% demo=true
if __name__ == "__main__":
    of_free = kv_budget(free, 0.8)
    of_total = kv_budget(180 * GB, 0.8) - 100 * GB
    for label, size in (("0.8 of the free memory", of_free), ("0.8 of the total memory", of_total)):
        print(f"{label:24} {size / GB:.0f} GB, {tokens_that_fit(size, token_16):,} tokens")

# %% [markdown]
# ### GB or GiB?
#
# 64 GB are 64,000,000,000 bytes. 64 GiB are 64 × 1,073,741,824 = 68,719,476,736 bytes, 7.4 % more. Makers of GPUs
# count in GB on the box and tools count in GiB, often under the name GB.

# %% demo=true
if __name__ == "__main__":
    print(f"64 GB : {tokens_that_fit(64 * GB, token_16):,} tokens")
    print(f"64 GiB: {tokens_that_fit(64 * GIB, token_16):,} tokens")
    for size in (1, 16, 256):
        print(f"64 GB in blocks of {size:>3}: {tokens_that_fit(64 * GB, token_16, size):,} tokens")

# %% [markdown]
# ### How many users?

# %% demo=true
if __name__ == "__main__":
    print("sequences in 64 GB, blocks of 16")
    print(f"{'model':16}", *(f"{length:>9,}" for length in (4_000, 32_000, 128_000)), " tokens each")
    for name in ("llama-3-70b", "llama-3-8b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b"):
        counts = [sequences_that_fit(model_config(name), 64 * GB, n, block_size=16) for n in (4_000, 32_000, 128_000)]
        print(f"{name:16}", *(f"{count:>9,}" for count in counts))

# %% [markdown]
# Memory decides how many requests run side by side, and with it what a GPU earns. Look at the last column: the 70B
# shape holds one conversation of 128,000 tokens, and Gemma-3-27B none. It needs 10.9 GB for one, but reserves 65.0 GB
# if all its layers get full blocks. (The 64 GB are the same for all models here, to compare caches. Their weights
# differ, so a real GPU would leave each of them a different budget.)
#
# The width of the cache is a setting of its own. A checkpoint can be saved in 32 bits, loaded in 16 and run with a
# cache of 8: only the last one belongs in this arithmetic.

# %% [markdown]
# ## sizing.5 many GPUs
#
# **Tensor parallelism** splits each layer over several GPUs, its ranks. Attention is split by heads: each of `tp` ranks
# takes some of the query heads and the KV heads that they read. A head cannot be cut.
#
# By hand, Qwen2.5-7B: 28 layers, 4 KV heads of 128.
#
# - tp = 2: 2 heads on each rank: 2 × 28 × 2 × 128 × 2 = 28,672 bytes per token, half of 57,344.
# - tp = 8: 4 heads for 8 ranks. Each rank holds one, so each head exists twice: 2 × 28 × 1 × 128 × 2 = 14,336 bytes on
#   each rank and 8 × 14,336 = 114,688 in all, not 57,344.
#
# A latent cache (MLA) has no heads to share out. Every head rebuilds its keys and values from the same vector, so every
# rank keeps all of it: DeepSeek-V3 holds 70,272 bytes per token on each rank, with one rank or with eight.
#
# **Your task.** Write `kv_bytes_per_rank`: bytes of one sequence on the fullest rank.
#
# - A rank holds ceil(KV heads / tp) whole heads of a layer: 1 if there are more ranks than heads.
# - Windows count as in the need of sizing.3; there are no blocks here.
# - A constant state is split evenly, layer by layer, a started byte counting as a whole one.
# - The numbers on a rank are packed at `bits` like those of sizing.3.
# - Negative `tokens`, `tp` below 1 or another `bits` raises `ValueError`, naming the argument.


# %% solution="sizing.5"
def kv_bytes_per_rank(config, tokens: int, tp: int, bits: int = 16) -> int:
    """Bytes of one sequence's cache on the fullest of `tp` tensor-parallel ranks.

    Ranks share out the KV heads of a layer, whole heads only: with fewer heads than ranks every rank holds one.
    A latent cache (MLA) has no heads to share out: every rank holds all of it. Constant state is split evenly.
    ValueError for a negative length, an unknown width and `tp` below 1.
    """
    ### BEGIN SOLUTION
    require(tokens >= 0, f"tokens must not be negative, got {tokens}: count the tokens of prompt and answer")
    require(tp >= 1, f"tp must be at least 1, got {tp}: one rank means no tensor parallelism")
    require_bits(bits)
    config = getattr(config, "text_config", None) or config
    kinds = layer_kinds(config)
    numbers = constant = 0
    for i, layer in enumerate(kv_layers(config)):
        if layer.elements:
            heads, numbers_per_head = kv_shape(config.per_layer_config[i], kinds[i])
            heads_here = -(-heads // tp)
            kept = tokens if layer.window is None else min(tokens, layer.window)
            numbers += heads_here * numbers_per_head * kept
        constant += -(-layer.constant // tp)
    return (numbers * bits + 7) // 8 + constant
    ### END SOLUTION


# %% check="sizing.5"
if __name__ == "__main__":
    check("sizing.5")

# %% [markdown]
# ### Look: more GPUs, and what each one holds

# %% demo=true
if __name__ == "__main__":
    print(f"{'bytes per token':16}", *(f"{f'tp={tp}':>9}" for tp in (1, 2, 4, 8, 16)), "     all 16 ranks / one")
    for name in ("llama-3-70b", "qwen2.5-7b", "falcon-7b", "deepseek-v3"):
        config = model_config(name)
        ranks = [kv_bytes_per_rank(config, 1, tp) for tp in (1, 2, 4, 8, 16)]
        print(f"{name:16}", *(f"{size:>9,}" for size in ranks), f"{16 * ranks[-1] / ranks[0]:>21.0f} times")

# %% [markdown]
# Beyond one KV head per rank, more ranks bring no more room for the cache. For MLA this is so from the second rank on,
# which is why DeepSeek is often served with **data parallel attention**: each rank takes whole requests, not heads.
#
# **Pipeline parallelism** splits the layers, so each rank keeps the cache of its own layers for every request. A block
# then needs a place on all ranks, and the rank with the least room decides how many blocks there are: with room for 10
# on one rank and 20 on the other, an engine can use 10.

# %% [markdown]
# ## sizing.6 fewer bits
#
# Storing a number in b bits means choosing one of `2**b` codes. **Quantisation** of a group of numbers lays these codes
# evenly between the smallest and the largest number of the group:
#
# $$\text{scale} = \frac{\max - \min}{2^b - 1} \qquad
# \text{code} = \text{round}\left(\frac{x - \min}{\text{scale}}\right) \qquad
# x \approx \text{code} \times \text{scale} + \min$$
#
# By hand with 2 bits, codes 0 to 3, for the group (1.0, 1.6, 2.9, 4.0). The minimum is 1.0, the scale (4.0 - 1.0) / 3 =
# 1.0, the codes are 0, 1, 2, 3, and back come 1.0, 2.0, 3.0, 4.0. No error is above half a scale, 0.5.
#
# Now let the last number be 40. The scale is 39 / 3 = 13, the codes are 0, 0, 0, 3, and back come 1.0, 1.0, 1.0, 40.0.
# One large number has wiped out the other three. So the question is not only how many bits, but **which numbers share a
# group**.
#
# Each group also stores its scale and its minimum (the **zero**), 16 bits each. With a group of 32 numbers and 2 bits,
# a number really costs 2 + (16 + 16) / 32 = 3 bits; with 4 bits and a group of 64, 4.5.

# %% [markdown]
# **Your task.** `x` holds the keys or the values of one head: a float tensor [tokens, channels], where **channel** i is
# the i-th number of every vector. Write:
#
# - `quantize(x, bits, axis, group)`, which returns `(q, scale, zero)`. `axis` is the direction in which `group`
#   consecutive numbers share a scale and a zero. `axis=0`: `group` tokens of one channel, called **per channel**.
#   `axis=1`: `group` channels of one token, called **per token**. `q` holds the codes, as `torch.uint8` in the shape
#   of `x` (a real engine packs them; here one code per byte is simpler to read). `scale` and `zero` have the type of
#   `x`, and its shape with the length of `axis` divided by `group`.
# - `dequantize(q, scale, zero, axis, group)`: back to numbers, of the type of `scale`.
# - `quantized_bits(bits, group, meta_bits=16)`: bits that a number costs, its share of scale and zero included.
#
# Rules that the tests rely on: codes run from 0 to `2**bits - 1`; the zero is the minimum of its group; an error is at
# most half a scale (apart from rounding in the last digit); a group of equal numbers has the scale 1 and the codes 0,
# so that it comes back exactly and nothing is divided by zero; `x` is not changed. `bits` other than 2, 4, 8, an
# `axis` other than 0 and 1, or a `group` that does not divide the length of `axis` raises `ValueError` that names the
# argument and says what to do.

# %%
import torch

QUANTIZED_BITS = (2, 4, 8)


# %% solution="sizing.6" part="a"
def quantize(x: torch.Tensor, bits: int, axis: int, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, scales and zeros of `x` [tokens, channels]: `group` consecutive numbers along `axis` share a scale.

    Codes are uint8 in the shape of x, 0 to 2**bits - 1; scale and zero have the type of x, and along `axis` one entry
    per group. x is close to q * scale + zero. The zero is the minimum; the scale of a group of equal numbers is 1.
    ValueError for bits other than 2, 4, 8, an axis other than 0 and 1, and a group that does not divide the axis.
    """
    ### BEGIN SOLUTION
    require(bits in QUANTIZED_BITS, f"bits must be one of {QUANTIZED_BITS}, got {bits}: the codes are uint8")
    require(axis in (0, 1), f"axis must be 0 (per channel) or 1 (per token), got {axis}: x is [tokens, channels]")
    length = x.shape[axis]
    require(
        group >= 1 and length % group == 0,
        f"group {group} does not divide the {length} numbers along axis {axis}: choose a divisor, or quantize whole "
        "groups and keep the rest as it is",
    )
    grouped = x.unflatten(axis, (length // group, group))
    zero, high = grouped.amin(axis + 1), grouped.amax(axis + 1)
    scale = (high - zero) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1.0)  # equal numbers: code 0, and the zero alone brings them back
    codes = (grouped - zero.unsqueeze(axis + 1)) / scale.unsqueeze(axis + 1)
    return codes.round().clamp(0, 2**bits - 1).to(torch.uint8).flatten(axis, axis + 1), scale, zero
    ### END SOLUTION


# %% solution="sizing.6" part="b"
def dequantize(q: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, axis: int, group: int) -> torch.Tensor:
    """Numbers from codes: q * scale + zero, each scale and zero used for its `group` codes along `axis`."""
    ### BEGIN SOLUTION
    return q * scale.repeat_interleave(group, axis) + zero.repeat_interleave(group, axis)
    ### END SOLUTION


# %% solution="sizing.6" part="c"
def quantized_bits(bits: int, group: int, meta_bits: int = 16) -> float:
    """Bits that one number costs, its share of a scale and a zero of `meta_bits` each included."""
    ### BEGIN SOLUTION
    return bits + 2 * meta_bits / group
    ### END SOLUTION


# %% check="sizing.6"
if __name__ == "__main__":
    check("sizing.6")


# %% [markdown]
# ### Look at real keys and values
#
# The course brings the queries, keys and values of four layers of SmolLM2-135M-Instruct (30 layers, 3 KV heads of 64;
# Apache-2.0) after it read a text of 512 tokens. Bright means far from zero.

# %% demo=true
if __name__ == "__main__":
    from kvcourse.data import LAYERS, loop_divergence, real_kv

    kv = real_kv(layer=20, head=0)
    print("keys", tuple(kv.keys.shape), "values", tuple(kv.values.shape))
    for label, numbers in (("keys", kv.keys), ("values", kv.values)):
        size = numbers.abs().mean(0)
        print(f"{label:6}: the largest channel is {size.max() / size.median():.1f} times the median channel")
    plots.key_value_maps(kv.keys, kv.values, "layer 20, head 0")

# %% [markdown]
# Keys have stripes down the picture: a few channels that are large for every token. A group per token has one of those
# in it, as the 40 above. A group per channel is either all stripe or all plain. Values have no such stripes.
#
# ### Which numbers should share a group?
#
# Measure both directions on all 12 heads, in two ways. The **stored error** is the size of the change relative to the
# size of the numbers. The **output error** is the same for what attention computes from them, with the real queries of
# the last 448 positions; only keys or only values are quantised.

# %% demo=true
if __name__ == "__main__":

    def stored(x, bits, axis, group):
        return dequantize(*quantize(x, bits, axis, group), axis, group)

    def error(got, want):
        return float((got - want).norm() / want.norm())

    def attention(queries, keys, values, first=64):
        scores = queries @ keys.T / keys.shape[1] ** 0.5
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        return (scores.masked_fill(later, -torch.inf).softmax(-1) @ values)[first:]

    HEADS = [(layer, head) for layer in LAYERS for head in range(3)]
    BITS_TRIED, DIRECTIONS = (8, 4, 2), {"per channel": 0, "per token": 1}
    stored_error, output_error = {}, {}  # by (what, direction, bits): one number per head
    for layer, head in HEADS:
        kv = real_kv(layer, head)
        exact = attention(kv.queries, kv.keys, kv.values)
        for direction, axis in DIRECTIONS.items():
            for bits in BITS_TRIED:
                keys, values = stored(kv.keys, bits, axis, 32), stored(kv.values, bits, axis, 32)
                stored_error.setdefault(("keys", direction, bits), []).append(error(keys, kv.keys))
                stored_error.setdefault(("values", direction, bits), []).append(error(values, kv.values))
                output = attention(kv.queries, keys, kv.values)
                output_error.setdefault(("keys", direction, bits), []).append(error(output, exact))
                output = attention(kv.queries, kv.keys, values)
                output_error.setdefault(("values", direction, bits), []).append(error(output, exact))

    def mean(numbers):
        return sum(numbers) / len(numbers)

    print("groups of 32, mean of 12 heads       stored error, %        output error, %")
    print(f"{'bits':32}", *(f"{bits:>6}" for bits in BITS_TRIED), "  ", *(f"{bits:>6}" for bits in BITS_TRIED))
    for what in ("keys", "values"):
        for direction in DIRECTIONS:
            row = [f"{100 * mean(stored_error[what, direction, bits]):6.2f}" for bits in BITS_TRIED]
            row += ["  "] + [f"{100 * mean(output_error[what, direction, bits]):6.2f}" for bits in BITS_TRIED]
            print(f"{what + ', ' + direction:32}", *row)

# %% [markdown]
# Keys are clear: with a scale per channel the stored error is about 2.8 times smaller than with a scale per token, at
# every width, and the output error 2.3 to 2.5 times. The stripes do this.
#
# Values are not what the picture suggests. Their stored error is about the same either way, even a little smaller per
# channel. The output decides, and there it depends on the layer.

# %% demo=true
if __name__ == "__main__":
    print("values in 4 bits: output error, %, by layer (mean of 3 heads)")
    print(f"{'layer':>5} {'per channel':>12} {'per token':>10} {'weight on token 0':>18} {'its value, others = 1':>22}")
    for layer in LAYERS:
        rows = [i for i, (of, _) in enumerate(HEADS) if of == layer]
        by = [100 * mean([output_error["values", direction, 4][i] for i in rows]) for direction in DIRECTIONS]
        weight, length = [], []
        for head in range(3):
            kv = real_kv(layer, head)
            first = torch.zeros_like(kv.values)
            first[0] = 1.0  # with these values the output is the weight that token 0 gets
            weight.append(float(attention(kv.queries, kv.keys, first).mean()))
            length.append(float(kv.values[0].norm() / kv.values.norm(dim=1).mean()))
        print(f"{layer:>5} {by[0]:>12.2f} {by[1]:>10.2f} {mean(weight):>18.2f} {mean(length):>22.2f}")

# %% [markdown]
# In layer 20 more than half of all attention goes to the first token, and the value of that token is small: the model
# parks weight there that it has no use for (an **attention sink**, see lesson 6). Per channel, this small value
# shares a group with 31 ordinary ones and gets a rounding error of their size, and that error counts with more than
# half the weight. Per token, it has a fine scale of its own. So keys go per channel and values per token, and only
# part of the reason is visible in the numbers themselves.

# %% demo=true
if __name__ == "__main__":
    layer_20 = [i for i, (layer, _) in enumerate(HEADS) if layer == 20]
    panels = {
        "keys, stored error": (stored_error, "keys", range(12)),
        "values, stored error": (stored_error, "values", range(12)),
        "values, output error, layer 20": (output_error, "values", layer_20),
    }
    curves = {
        title: {
            direction: [mean([errors[what, direction, bits][i] for i in heads]) for bits in BITS_TRIED]
            for direction in DIRECTIONS
        }
        for title, (errors, what, heads) in panels.items()
    }
    plots.direction_errors(BITS_TRIED, curves)

# %% [markdown]
# ### What fits with fewer bits
#
# Back to the 64 GB and the 70B model: 163,840 numbers per token. At 4 bits and groups of 32 a number costs
# 4 + 32 / 32 = 5 bits, a token 102,400 bytes, and 625,000 tokens fit. Without the scales it would be 781,250.

# %% demo=true
if __name__ == "__main__":
    numbers = kv_bytes_per_token(layers=80, kv_heads=8, head_dim=128, bits=8)  # a byte each: so many numbers
    plain, with_scales = {}, {}
    for bits in (16, 8, 4, 2):
        cost = bits if bits == 16 else quantized_bits(bits, group=32)
        plain[f"{bits} bits"] = tokens_that_fit(64 * GB, numbers * bits // 8)
        with_scales[f"{bits} bits"] = tokens_that_fit(64 * GB, int(numbers * cost / 8))
        print(f"{bits:>2} bits cost {cost:4.1f}: {with_scales[f'{bits} bits']:>9,} tokens in 64 GB")
    plots.tokens_by_bits(plain, with_scales, "64 GB")

# %% [markdown]
# One more cost: a group of 32 tokens per channel can only be encoded when its 32 tokens are there, so the newest
# tokens stay in 16 bits for a while. KIVI, the method that this section follows, kept 128 of them in its paper. A
# sequence of 100 tokens then saves nothing.

# %% [markdown]
# ### Does the error grow with the context?
#
# It is often said that the errors of a quantised cache compound across tokens. Whether they do depends on how the cache
# is written. Compare three ways to keep keys in 4 bits while a sequence grows:
#
# 1. **Written once**: when 32 tokens are there, encode them as a group and never touch them again. The rest stays
#    exact.
# 2. **One scale for all**: one scale per channel for the whole context, encoded anew at each token from the exact keys.
#    No engine has the exact keys any more, so this is only here to tell two effects apart.
# 3. **Re-encoded**: one scale per channel for the whole context, encoded anew at each token from what was stored, so
#    every token is rounded again and again.

# %% demo=true
if __name__ == "__main__":

    def three_ways(keys, bits=4, group=32):
        """After each token: the keys that each way of storing would give back."""
        once, again = keys[:0], keys[:0]
        for n in range(1, len(keys) + 1):
            if n % group == 0:
                once = torch.cat([once, stored(keys[n - group : n], bits, 0, group)])
            again = stored(torch.cat([again, keys[n - 1 : n]]), bits, 0, n)
            yield {
                "written once": torch.cat([once, keys[len(once) : n]]),
                "one scale for all": stored(keys[:n], bits, 0, n),
                "re-encoded": again,
            }

    grown = {"stored error": {}, "output error": {}}  # by way: [head][token]
    for layer, head in HEADS:
        kv = real_kv(layer, head)
        for n, ways in enumerate(three_ways(kv.keys), start=1):
            keys, values, query = kv.keys[:n], kv.values[:n], kv.queries[n - 1]
            exact = attend(query, keys, values)
            for way, kept in ways.items():
                grown["stored error"].setdefault(way, []).append(error(kept, keys))
                grown["output error"].setdefault(way, []).append(error(attend(query, kept, values), exact))

    STEP = 32  # average over 32 tokens and 12 heads
    context = list(range(STEP, 513, STEP))
    curves = {
        panel: {way: torch.tensor(e).view(12, -1, STEP).mean((0, 2)).tolist() for way, e in ways.items()}
        for panel, ways in grown.items()
    }
    for panel, ways in curves.items():
        for way, line in ways.items():
            early, late = 100 * line[1], 100 * line[-1]
            print(f"{panel}, {way:18}: {early:5.1f} % at {context[1]} tokens, {late:5.1f} % at {context[-1]}")
    plots.error_by_context(context, curves, "Written once, the error stays; encoded again, it grows")

# %% [markdown]
# - Written once, both errors are level from about 100 tokens on (before that, much of the cache is still exact): 3.6
#   % of the keys and 3.8 % of the output at 512 tokens.
# - One scale for a growing context fits worse and worse, since the range of a channel can only widen: 6.0 % of the
#   keys.
# - Re-encoding adds to that: 10.5 % of the keys. Each time a range widens, the codes of all earlier tokens are rounded
#   again, to a new grid. The curve flattens, because ranges widen less and less often.
#
# Rounding twice is not harmful in itself. While minimum and maximum stay, a second pass finds the same codes.

# %% demo=true
if __name__ == "__main__":
    values = real_kv(20).values
    codes, *rest = quantize(values, 4, 1, 32)
    codes_again, *_ = quantize(dequantize(codes, *rest, 1, 32), 4, 1, 32)
    print("values per token, encoded twice: same codes:", torch.equal(codes, codes_again))

# %% [markdown]
# ### The whole model
#
# So far every key was computed by the exact model. In a running model the damage of one token enters the next: its key
# and value are computed from what attention read out of the damaged cache. If errors compound anywhere, it is there.
#
# This takes minutes, so it was run once (by `bench/capture_kv.py`) and the result is in the course's data: the model
# read 1,024 tokens one by one, through caches of several kinds. "Re-encoded" and "one scale for all" are ways 3 and 2
# of above, with a new pass each time 32 more tokens are there. The measure is the **KL divergence** between the
# model's distribution over the next token and that of the exact model: 0 means that nothing changed. Its unit is the
# nat.

# %% demo=true
if __name__ == "__main__":
    loops = loop_divergence()
    context = list(range(128, 1025, 128))
    lines = {name: kl.view(-1, 128).mean(1).tolist() for name, kl in loops.items()}
    print("KL to the exact model, nats        tokens 1-256      all   769-1,024")
    for name, kl in loops.items():
        print(f"{name:32} {float(kl[:256].mean()):14.5f} {float(kl.mean()):8.5f} {float(kl[768:].mean()):11.5f}")
    plots.divergence_by_context(context, lines, "Writing once keeps the divergence level; re-encoding lets it rise")

# %% [markdown]
# What you can say after this, and what you cannot:
#
# - Written once in fixed groups, the damage did **not** compound, even with the model running on its own damaged
#   cache: at 8 and 4 bits the curves are level over 1,024 tokens. At 2 bits the divergence is 60 times that of 4
#   bits; it rises during the first 256 tokens and shows no clear trend after that.
# - One scale per channel for a growing context does grow: from 2 times the divergence of the same 4 bits written once
#   (tokens 1 to 256) to nearly 4 times (tokens 769 to 1,024). This is the widening range, not compounding.
# - Re-encoding the stored cache **does** compound, on top of that: from 3 times to nearly 8 times. A library that packs
#   the whole cache anew each time its exact tail is full is of this kind, and so is a tier that re-encodes a block at
#   every move.
# - Direction matters as much: in 4 bits, keys per token cost 2.4 times the divergence, values per channel 3.7 times.
# - Text that the model writes itself is another matter. Once it picks one other token, everything after it differs, and
#   both texts may be fine. Comparing two texts token by token says little about a cache.
# - All this is one small model, one text and 1,024 tokens. For a context of 128,000 you would have to measure. Lesson 6
#   returns to it.

# %% [markdown]
# ## How real systems do it
#
# As of late 2026; settings and defaults move, so check the linked pages.
#
# - **vLLM**. Budget: `gpu_memory_utilization` × total memory (default 0.92, earlier 0.9), less the weights and the
#   peak of a trial run. Blocks of 16 tokens by default. Layers of one kind form a group with a block list of its own;
#   sliding layers give blocks back; layers that read another's cache are skipped. Fewer bits: 8-bit floats (fp8),
#   with one scale per tensor or per head; without calibration all scales are 1.0. Sources:
#   [settings](https://docs.vllm.ai/en/stable/api/vllm/config/cache/),
#   [hybrid](https://docs.vllm.ai/en/latest/design/hybrid_kv_cache_manager/),
#   [fp8](https://docs.vllm.ai/en/latest/features/quantization/quantized_kvcache/).
# - **TensorRT-LLM**. Budget: `free_gpu_memory_fraction` × free memory (default 0.9); if `max_tokens` is set too, the
#   smaller one counts. Blocks of 32 tokens by default; a pool for each combination of window and number of heads.
#   Sources: [settings](https://nvidia.github.io/TensorRT-LLM/llm-api/reference/KvCacheConfig.html),
#   [pools](https://nvidia.github.io/TensorRT-LLM/features/kvcache.html).
# - **SGLang**. `mem_fraction_static` = (weights + cache) / total memory; the rest is working memory. Fewer bits: fp8
#   and 4-bit floats. Sources: [budget](https://docs.sglang.io/advanced_features/hyperparameter_tuning.html),
#   [fp8](https://docs.sglang.io/advanced_features/quantized_kv_cache.html).
# - **Transformers**. No budget: `DynamicCache` grows as tokens come, `StaticCache` reserves the greatest length at the
#   start. Sliding layers keep window - 1 tokens, as you measured. `QuantizedCache` (groups of 64) keeps a tail of up to
#   128 tokens exact and, when that is full, encodes the **whole** cache again, as in way 3 (read in its source, version
#   5.24, class `QuantizedLayer`). Source: [caches](https://huggingface.co/docs/transformers/kv_cache).
# - **hf-mem** estimates from configs alone, and since 2026 counts sliding layers of mixed models in full. Source:
#   [change 70](https://github.com/alvarobartt/hf-mem/pull/70).
# - **KIVI** is a method with its kernels: 2 bits, keys per channel, values per token, an exact tail, each token written
#   once. Sources: [paper](https://arxiv.org/abs/2402.02750), [code](https://github.com/jy-yuan/KIVI).

# %% [markdown]
# ## Questions
#
# `quiz("sizing")` shows them. Answer with `quiz("sizing.q1", "b")`.

# %% demo=true
if __name__ == "__main__":
    quiz("sizing")

# %% [markdown]
# ## Summary
#
# - The KV cache holds each token's keys and values, so that attention need not compute them again. A token costs
#   2 × layers × KV heads × head dimension × bytes per number, if all layers are alike: 327,680 bytes for a 70B shape.
# - Real configs differ by design: shared heads, a head dimension of their own, a latent vector, windows, shared layers,
#   constant states. In the seven models above the shortcut was up to 71 times too big.
# - What a model needs and what an engine reserves are two numbers: 6.09 and 12.00 GiB for the same requests.
# - A fraction of free memory and a fraction of total memory are two settings: 64 GB and 44 GB at 0.8 on the same GPU.
# - Fewer bits per number mean more tokens, less the scales: 4 bits in groups of 32 cost 5. Keys per channel, values per
#   token, and write each token once.
#
# ### If you are asked in an interview
#
# - **Why a KV cache at all?** Keys and values of a token never change once computed. With them stored, writing n tokens
#   takes 2n keys and values per layer and head, in place of n(n + 1).
# - **How big is it?** Say the formula, put in a shape you know, and name what breaks it: GQA, MLA, windows, linear
#   layers. Then say whether you mean need or reserve, GB or GiB.
# - **How much memory does it get?** A share of what the weights leave: 0.8 of the 80 GB free on a B200 is 64 GB. Ask
#   whether the setting means free or total memory. When it is full, entries are evicted and later requests miss.
# - **What limits the number of users?** The cache: budget over bytes per sequence. For a 70B shape in 64 GB that is
#   195,312 tokens at 16 bits and 390,625 at 8, in all requests together.
# - **Does a second GPU double the room?** With tensor parallelism up to one KV head per GPU; a latent cache is copied.
# - **What does quantising the cache bring and cost?** More tokens in the same memory, and faster steps, since decode
#   reads the whole cache each time. It costs scales and zeros, and an error. Whether that error compounds across
#   tokens depends: written once in fixed groups it stayed level here, encoded again and again it grew.
#
# ### Further reading
#
# - Shazeer, [Fast Transformer Decoding](https://arxiv.org/abs/1911.02150): multi-query attention.
# - Ainslie and others, [GQA](https://arxiv.org/abs/2305.13245): shared heads from existing models.
# - DeepSeek-AI, [DeepSeek-V2](https://arxiv.org/abs/2405.04434): the latent cache.
# - Kwon and others, [PagedAttention](https://arxiv.org/abs/2309.06180): why blocks, and what waste they end.
# - Liu and others, [KIVI](https://arxiv.org/abs/2402.02750), and Hooper and others,
#   [KVQuant](https://arxiv.org/abs/2401.18079): few bits, per channel and per token.

# %% demo=true
if __name__ == "__main__":
    progress()
