"""Planted mistakes of lesson 1, cache sizing; P-numbers are pitfalls of the course notes."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

# --- sizing.1


@fault("sizing.1", caught_by="test_fresh_shapes", why="forgets that values are stored too")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    require(min(layers, kv_heads, head_dim) >= 1, "layers, kv_heads and head_dim must be at least 1")
    require_bits(bits)
    return (layers * kv_heads * head_dim * bits + 7) // 8


@fault("sizing.1", caught_by="test_fresh_shapes", why="multiplies by the heads twice", source="vllm-fit #2")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    return kv_heads * reference.kv_bytes_per_token(layers, kv_heads, head_dim, bits)


@fault("sizing.1", caught_by="test_fresh_shapes", why="takes the checkpoint's 32 bits for the cache", source="P1.18")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=32):
    return reference.kv_bytes_per_token(layers, kv_heads, head_dim, bits)


@fault("sizing.1", caught_by="test_fresh_shapes", why="takes bits for bytes")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    return 8 * reference.kv_bytes_per_token(layers, kv_heads, head_dim, bits)


@fault("sizing.1", caught_by="test_fresh_shapes", why="returns a float")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    return reference.kv_bytes_per_token(layers, kv_heads, head_dim, bits) / 1


@fault("sizing.1", caught_by="test_fresh_widths", why="ignores the width", source="P1.18")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    return reference.kv_bytes_per_token(layers, kv_heads, head_dim, 16)


@fault("sizing.1", caught_by="test_fresh_widths", why="stores 32-bit numbers in 16", source="P1.18")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    return reference.kv_bytes_per_token(layers, kv_heads, head_dim, 16 if bits == 32 else bits)


@fault("sizing.1", caught_by="test_fresh_started_bytes", why="drops a started byte")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    reference.kv_bytes_per_token(layers, kv_heads, head_dim, bits)
    return 2 * layers * kv_heads * head_dim * bits // 8


@fault("sizing.1", caught_by="test_fresh_refusals", why="accepts any size")
def kv_bytes_per_token(layers, kv_heads, head_dim, bits=16):
    return (2 * layers * kv_heads * head_dim * bits + 7) // 8


# --- sizing.3


@fault("sizing.3", caught_by="test_fresh_lengths", why="counts the token to come as well")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    return reference.sequence_bytes(config, tokens + 1, bits, block_size)


@fault("sizing.3", caught_by="test_fresh_lengths", why="works at 8 bits unless told otherwise", source="P1.18")
def sequence_bytes(config, tokens, bits=8, block_size=None):
    return reference.sequence_bytes(config, tokens, bits, block_size)


@fault("sizing.3", caught_by="test_fresh_width_of_a_sequence", why="ignores the width", source="P1.18")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    require_bits(bits)
    return reference.sequence_bytes(config, tokens, 16, block_size)


@fault("sizing.3", caught_by="test_beyond_the_window", why="knows no window", source="P1.5")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    return reference.sequence_bytes(config, tokens, bits, 1 if block_size is None else block_size)


@fault("sizing.3", caught_by="test_beyond_the_window", why="keeps window - 1 tokens", source="Transformers' caches do")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    window = kv_layers(config)[0].window
    kept = tokens if window is None or block_size is not None else min(tokens, window - 1)
    return reference.sequence_bytes(config, kept, bits, block_size)


@fault(
    "sizing.3", caught_by="test_below_the_window", why="pays for a window it cannot fill", source="P1.6, tt-xla #5834"
)
def sequence_bytes(config, tokens, bits=16, block_size=None):
    window = kv_layers(config)[0].window
    kept = tokens if window is None or block_size is not None else window
    return reference.sequence_bytes(config, kept, bits, block_size)


@fault("sizing.3", caught_by="test_started_blocks", why="drops the started block", source="P1.14")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    kept = tokens // block_size * block_size if block_size else tokens
    return reference.sequence_bytes(config, kept, bits, block_size)


@fault("sizing.3", caught_by="test_started_blocks", why="ignores blocks", source="P1.14")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    require(block_size is None or block_size >= 1, "block_size must be at least 1")
    return reference.sequence_bytes(config, tokens, bits, None if block_size is None else 1)


@fault("sizing.3", caught_by="test_full_blocks", why="adds a block to a full one", source="P1.14")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    kept = (tokens // block_size + 1) * block_size if block_size and tokens else tokens
    return reference.sequence_bytes(config, kept, bits, block_size)


@fault(
    "sizing.3", caught_by="test_pages_behind_the_window", why="frees pages behind the window", source="P1.5, hf-mem #70"
)
def sequence_bytes(config, tokens, bits=16, block_size=None):
    window = kv_layers(config)[0].window
    kept = tokens if window is None else min(tokens, window)
    return reference.sequence_bytes(config, kept, bits, block_size)


@fault("sizing.3", caught_by="test_state_once_a_sequence", why="forgets the constant state", source="P1.10")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    state = sum(layer.constant for layer in kv_layers(config))
    return reference.sequence_bytes(config, tokens, bits, block_size) - state


@fault("sizing.3", caught_by="test_state_once_a_sequence", why="adds the state for every token", source="P1.10")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    state = sum(layer.constant for layer in kv_layers(config))
    return reference.sequence_bytes(config, tokens, bits, block_size) + (tokens - 1) * state


@fault("sizing.3", caught_by="test_state_once_a_sequence", why="shrinks the state with the bits", source="P1.10")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    state = sum(layer.constant for layer in kv_layers(config))
    return reference.sequence_bytes(config, tokens, bits, block_size) - state + state * bits // 16


@fault("sizing.3", caught_by="test_state_beside_blocks", why="reserves a state for every block", source="P1.10")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    state = sum(layer.constant for layer in kv_layers(config))
    copies = -(-tokens // block_size) if block_size else 1
    return reference.sequence_bytes(config, tokens, bits, block_size) + (copies - 1) * state


@fault("sizing.3", caught_by="test_no_tokens_yet", why="reserves a block before the first token", source="P1.14")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    return reference.sequence_bytes(config, tokens or (block_size or 0), bits, block_size)


@fault("sizing.3", caught_by="test_sequences_that_cannot_be", why="answers 0 for negative lengths")
def sequence_bytes(config, tokens, bits=16, block_size=None):
    return reference.sequence_bytes(config, max(tokens, 0), bits, block_size)


# --- sizing.4


@fault("sizing.4", caught_by="test_fresh_budgets", why="keeps the other part", source="P1.15")
def kv_budget(free_bytes, fraction):
    return reference.kv_budget(free_bytes, 1 - fraction)


@fault(
    "sizing.4", caught_by="test_fresh_budgets", why="takes the fraction of more than the free memory", source="P1.15"
)
def kv_budget(free_bytes, fraction):
    return reference.kv_budget(free_bytes * 180 // 80, fraction) - (free_bytes * 180 // 80 - free_bytes)


@fault("sizing.4", caught_by="test_both_ends", why="takes 0 and 1 for mistakes", source="P1.15")
def kv_budget(free_bytes, fraction):
    require(0 < fraction < 1, "fraction must lie between 0 and 1")
    return reference.kv_budget(free_bytes, fraction)


@fault("sizing.4", caught_by="test_no_part_of_a_byte", why="rounds to the nearest byte")
def kv_budget(free_bytes, fraction):
    reference.kv_budget(free_bytes, fraction)
    return round(free_bytes * fraction)


@fault("sizing.4", caught_by="test_fresh_tokens", why="rounds to the nearest token", source="P1.14")
def tokens_that_fit(budget, bytes_per_token, block_size=1):
    reference.tokens_that_fit(budget, bytes_per_token, block_size)
    return round(budget / (block_size * bytes_per_token)) * block_size


@fault("sizing.4", caught_by="test_fresh_tokens", why="takes GB for GiB", source="P1.13")
def tokens_that_fit(budget, bytes_per_token, block_size=1):
    return reference.tokens_that_fit(budget * 2**30 // 10**9, bytes_per_token, block_size)


@fault("sizing.4", caught_by="test_fresh_blocks", why="ignores blocks", source="P1.14")
def tokens_that_fit(budget, bytes_per_token, block_size=1):
    reference.tokens_that_fit(budget, bytes_per_token, block_size)
    return budget // bytes_per_token


@fault("sizing.4", caught_by="test_fresh_blocks", why="returns blocks in place of tokens", source="P1.14")
def tokens_that_fit(budget, bytes_per_token, block_size=1):
    return reference.tokens_that_fit(budget, bytes_per_token, block_size) // block_size


@fault("sizing.4", caught_by="test_fresh_blocks", why="rounds blocks up", source="P1.14")
def tokens_that_fit(budget, bytes_per_token, block_size=1):
    reference.tokens_that_fit(budget, bytes_per_token, block_size)
    return -(-(budget // bytes_per_token) // block_size) * block_size


@fault("sizing.4", caught_by="test_fresh_sequences", why="counts a sequence that does not fit")
def sequences_that_fit(config, budget, tokens, bits=16, block_size=1):
    return reference.sequences_that_fit(config, budget, tokens, bits, block_size) + 1


@fault("sizing.4", caught_by="test_sequences_of_any_width", why="ignores the width", source="P1.18")
def sequences_that_fit(config, budget, tokens, bits=16, block_size=1):
    return reference.sequences_that_fit(config, budget, tokens, 16, block_size)


@fault("sizing.4", caught_by="test_sequences_in_blocks", why="packs sequences without blocks", source="P1.14")
def sequences_that_fit(config, budget, tokens, bits=16, block_size=1):
    reference.sequences_that_fit(config, budget, tokens, bits, block_size)
    return reference.sequences_that_fit(config, budget, tokens, bits, 1)


@fault(
    "sizing.4", caught_by="test_sequences_with_windows", why="admits by the logical need", source="P1.5, vLLM #40691"
)
def sequences_that_fit(config, budget, tokens, bits=16, block_size=1):
    reference.sequences_that_fit(config, budget, tokens, bits, block_size)
    return budget // sequence_bytes(config, -(-tokens // block_size) * block_size, bits)


@fault("sizing.4", caught_by="test_sequences_with_state", why="forgets the constant state", source="P1.10")
def sequences_that_fit(config, budget, tokens, bits=16, block_size=1):
    reference.sequences_that_fit(config, budget, tokens, bits, block_size)
    state = sum(layer.constant for layer in kv_layers(config))
    return budget // (sequence_bytes(config, tokens, bits, block_size) - state)


@fault("sizing.4", caught_by="test_sequences_with_state", why="subtracts the state once for all", source="P1.10")
def sequences_that_fit(config, budget, tokens, bits=16, block_size=1):
    reference.sequences_that_fit(config, budget, tokens, bits, block_size)
    state = sum(layer.constant for layer in kv_layers(config))
    return (budget - state) // (sequence_bytes(config, tokens, bits, block_size) - state)


@fault("sizing.4", caught_by="test_fractions_that_cannot_be", why="cuts fractions down to 0..1", source="P1.15")
def kv_budget(free_bytes, fraction):
    return reference.kv_budget(free_bytes, min(max(fraction, 0.0), 1.0))


@fault("sizing.4", caught_by="test_tokens_that_cannot_be", why="says that 0 tokens fit below 0 bytes")
def tokens_that_fit(budget, bytes_per_token, block_size=1):
    return reference.tokens_that_fit(max(budget, 0), bytes_per_token, block_size)


@fault("sizing.4", caught_by="test_counts_that_cannot_be", why="says that 0 sequences fit below 0 bytes")
def sequences_that_fit(config, budget, tokens, bits=16, block_size=1):
    return reference.sequences_that_fit(config, max(budget, 0), tokens, bits, block_size)


# --- sizing.5


@fault("sizing.5", caught_by="test_even_shares", why="gives every rank all heads", source="P1.11")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    require(tp >= 1, f"tp must be at least 1, got {tp}")
    return reference.sequence_bytes(config, tokens, bits)


@fault("sizing.5", caught_by="test_even_shares", why="gives the sum over all ranks", source="P1.11")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    return tp * reference.kv_bytes_per_rank(config, tokens, tp, bits)


@fault("sizing.5", caught_by="test_more_ranks_than_heads", why="cuts heads into parts", source="P1.11")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    require(tp >= 1, f"tp must be at least 1, got {tp}")
    return reference.sequence_bytes(config, tokens, bits) // tp


@fault("sizing.5", caught_by="test_fullest_rank", why="counts the emptiest rank", source="P1.11")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    if config.model_type == "llama" and config.num_key_value_heads > tp > 0:
        config.num_key_value_heads = config.num_key_value_heads // tp * tp
    return reference.kv_bytes_per_rank(config, tokens, tp, bits)


@fault("sizing.5", caught_by="test_whole_latent", why="splits the latent vector", source="P1.4")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    right = reference.kv_bytes_per_rank(config, tokens, tp, bits)
    return right // tp if hasattr(config, "kv_lora_rank") else right


@fault("sizing.5", caught_by="test_layer_by_layer", why="shares out all layers like the first", source="P1.8")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    require(tp >= 1, f"tp must be at least 1, got {tp}")
    inner = getattr(config, "text_config", None) or config
    heads, _ = kv_shape(inner.per_layer_config[0], layer_kinds(inner)[0])
    if getattr(inner, "kv_lora_rank", None) or any(layer.constant for layer in kv_layers(inner)):
        return reference.kv_bytes_per_rank(config, tokens, tp, bits)
    return reference.sequence_bytes(inner, tokens, bits) // heads * -(-heads // tp)


@fault("sizing.5", caught_by="test_windows_on_a_rank", why="knows no window", source="P1.5")
def kv_layers(config):
    return [layer._replace(window=None) for layer in reference.kv_layers(config)]


@fault("sizing.5", caught_by="test_share_of_the_state", why="keeps the whole state on every rank", source="P1.10")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    state = sum(layer.constant for layer in kv_layers(config))
    return reference.kv_bytes_per_rank(config, tokens, tp, bits) + state - state // tp


@fault("sizing.5", caught_by="test_share_of_the_state", why="forgets the state", source="P1.10")
def kv_layers(config):
    return [layer._replace(constant=0) for layer in reference.kv_layers(config)]


@fault("sizing.5", caught_by="test_width_on_a_rank", why="ignores the width", source="P1.18")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    require_bits(bits)
    return reference.kv_bytes_per_rank(config, tokens, tp)


@fault("sizing.5", caught_by="test_decoder_on_a_rank", why="reads the outer config only")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    require(config.num_hidden_layers > 0, "config has no layers")
    return reference.kv_bytes_per_rank(config, tokens, tp, bits)


@fault("sizing.5", caught_by="test_ranks_that_cannot_be", why="takes 0 ranks for 1")
def kv_bytes_per_rank(config, tokens, tp, bits=16):
    return reference.kv_bytes_per_rank(config, tokens, max(tp, 1), bits)
