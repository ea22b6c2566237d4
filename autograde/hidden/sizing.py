"""Hidden tests of lesson 1, cache sizing: fresh shapes from `rng`, exact whole numbers from `solution`."""

from __future__ import annotations

from random import Random
from typing import Any

from autograde.hidden.shapes import attention, build, hybrid, mixed, sliding
from autograde.hidden.sizing_bits import *  # noqa: F403 - the tests of sizing.6
from autograde.hidden.sizing_layers import *  # noqa: F403 - the tests of sizing.2
from kvcourse.tasks.api import expect, task

DRAWS = 3

# --- sizing.1


@task("sizing.1")
def test_fresh_shapes(student, rng, solution):
    """The size is right for any number of layers, KV heads and positions at 16 bits."""
    for _ in range(DRAWS):
        layers, heads, head_dim = rng.randint(2, 99), rng.randint(2, 40), rng.choice((40, 56, 72, 88, 104))
        want = solution.kv_bytes_per_token(layers, heads, head_dim)
        expect(student.kv_bytes_per_token, layers, heads, head_dim).equals(
            want, because="16 bits unless said otherwise"
        )


@task("sizing.1", after="test_fresh_shapes")
def test_fresh_widths(student, rng, solution):
    """The size follows the width of a number, from 2 to 32 bits."""
    for bits in rng.sample((4, 8, 32), 3):
        layers, heads, head_dim = rng.randint(2, 99), rng.randint(2, 40), 8 * rng.randint(2, 20)
        want = solution.kv_bytes_per_token(layers, heads, head_dim, bits)
        expect(student.kv_bytes_per_token, layers, heads, head_dim, bits=bits).equals(
            want, because=f"{bits} bits a number"
        )


@task("sizing.1", after="test_fresh_shapes")
def test_fresh_started_bytes(student, rng, solution):
    """A started byte counts as a whole one."""
    for _ in range(DRAWS):
        layers, heads, head_dim = (2 * rng.randint(1, 20) + 1 for _ in range(3))
        want = solution.kv_bytes_per_token(layers, heads, head_dim, 2)
        expect(student.kv_bytes_per_token, layers, heads, head_dim, 2).equals(
            want, because="packed numbers, rounded up"
        )


@task("sizing.1", after="test_fresh_shapes")
def test_fresh_refusals(student, rng):
    """Sizes below 1 and unknown widths are refused by name."""
    expect(student.kv_bytes_per_token, -rng.randint(0, 9), 8, 64).refused(naming="layers")
    expect(student.kv_bytes_per_token, 8, -rng.randint(0, 9), 64).refused(naming="kv_heads")
    expect(student.kv_bytes_per_token, 8, 8, -rng.randint(0, 9)).refused(naming="head_dim")
    expect(student.kv_bytes_per_token, 8, 8, 64, bits=rng.choice((-8, 0, 1, 3, 7, 12))).refused(naming="bits")


# --- sizing.3


def same_bytes(student: Any, solution: Any, because: str, *args: Any, **kwargs: Any) -> None:
    want = solution.sequence_bytes(*args, **kwargs)
    expect(student.sequence_bytes, *args, **kwargs).equals(want, because=because)


@task("sizing.3")
def test_fresh_lengths(student, rng, solution):
    """With full attention the bytes grow with every token."""
    for _ in range(DRAWS):
        config = build("LlamaConfig", **attention(rng))
        same_bytes(student, solution, "every layer keeps every token", config, rng.randint(2, 9999))


@task("sizing.3", after="test_fresh_lengths")
def test_fresh_width_of_a_sequence(student, rng, solution):
    """The bytes follow the width of a number."""
    for bits in (4, 8, 32):
        config = build("LlamaConfig", **attention(rng))
        same_bytes(student, solution, f"{bits} bits a number", config, rng.randint(2, 9999), bits=bits)


@task("sizing.3", after="test_fresh_lengths")
def test_beyond_the_window(student, rng, solution):
    """Beyond the window a sliding layer grows no more."""
    for _ in range(DRAWS):
        same_bytes(student, solution, "the window is full", sliding(rng), rng.randint(200, 9999))


@task("sizing.3", after="test_fresh_lengths")
def test_below_the_window(student, rng, solution):
    """A sequence shorter than the window does not pay for all of it."""
    for _ in range(DRAWS):
        same_bytes(student, solution, "the window is larger than the sequence", sliding(rng), rng.randint(2, 99))


@task("sizing.3", after="test_fresh_lengths")
def test_started_blocks(student, rng, solution):
    """A started block is reserved as a whole."""
    for block_size in (16, 32, 48):
        tokens = block_size * rng.randint(0, 99) + rng.randint(1, block_size - 1)
        config = build("LlamaConfig", **attention(rng))
        same_bytes(student, solution, "the last block is not full", config, tokens, block_size=block_size)


@task("sizing.3", after="test_fresh_lengths")
def test_full_blocks(student, rng, solution):
    """A sequence that fills its blocks needs no other."""
    for block_size in (16, 32, 48):
        config = build("LlamaConfig", **attention(rng))
        tokens = block_size * rng.randint(1, 99)
        same_bytes(student, solution, "the last block is full", config, tokens, block_size=block_size)


@task("sizing.3", after="test_started_blocks")
def test_pages_behind_the_window(student, rng, solution):
    """An engine reserves pages for all tokens of sliding layers."""
    for _ in range(DRAWS):
        tokens = 16 * rng.randint(20, 99) + rng.randint(1, 15)
        same_bytes(student, solution, "a window saves no pages", sliding(rng), tokens, block_size=16)


@task("sizing.3", after="test_fresh_width_of_a_sequence")
def test_state_once_a_sequence(student, rng, solution):
    """A constant state neither grows with the tokens nor shrinks with the bits."""
    for bits in (8, 16):
        same_bytes(student, solution, "attention layers plus constants", hybrid(rng), rng.randint(2, 9999), bits=bits)


@task("sizing.3", after="test_started_blocks")
def test_state_beside_blocks(student, rng, solution):
    """A constant state takes no blocks."""
    for _ in range(DRAWS):
        tokens = 16 * rng.randint(1, 99) + rng.randint(1, 15)
        same_bytes(student, solution, "blocks plus constants", hybrid(rng), tokens, block_size=16)


@task("sizing.3", after="test_fresh_lengths")
def test_no_tokens_yet(student, rng, solution):
    """A sequence without tokens takes no block."""
    config = build("LlamaConfig", **attention(rng))
    same_bytes(student, solution, "nothing is stored yet", config, 0, block_size=rng.choice((16, 32)))


@task("sizing.3", after="test_fresh_lengths")
def test_sequences_that_cannot_be(student, rng):
    """Negative lengths, empty blocks and unknown widths are refused by name."""
    config = build("LlamaConfig", **attention(rng))
    expect(student.sequence_bytes, config, -rng.randint(1, 99)).refused(naming="tokens")
    expect(student.sequence_bytes, config, 9, block_size=-rng.randint(0, 16)).refused(naming="block_size")
    expect(student.sequence_bytes, config, 9, bits=rng.choice((0, 3, 7, 12))).refused(naming="bits")


# --- sizing.4


def same_count(student: Any, solution: Any, because: str, *args: Any, **kwargs: Any) -> None:
    want = solution.sequences_that_fit(*args, **kwargs)
    expect(student.sequences_that_fit, *args, **kwargs).equals(want, because=because)


def budget_for(rng: Random, solution: Any, config: Any, tokens: int, **kwargs: Any) -> int:
    """Room for 50 to 99 sequences, and a bit more."""
    one = solution.sequence_bytes(config, tokens, **{"block_size": 1} | kwargs)
    return one * rng.randint(50, 99) + rng.randint(0, one - 1)


@task("sizing.4")
def test_fresh_budgets(student, rng, solution):
    """The budget is a fraction of the free memory."""
    for _ in range(DRAWS):
        free, fraction = 8 * rng.randint(10**8, 10**10), rng.choice((0.125, 0.25, 0.375, 0.625, 0.75, 0.875))
        expect(student.kv_budget, free, fraction).equals(
            solution.kv_budget(free, fraction), because="fraction x free bytes"
        )


@task("sizing.4", after="test_fresh_budgets")
def test_both_ends(student, rng):
    """Nothing and everything are allowed fractions."""
    free = rng.randint(10**8, 10**10)
    expect(student.kv_budget, free, 1.0).equals(free, because="all of it")
    expect(student.kv_budget, free, 0.0).equals(0, because="none of it")


@task("sizing.4", after="test_fresh_budgets")
def test_no_part_of_a_byte(student, rng, solution):
    """A budget is rounded down to whole bytes."""
    for _ in range(DRAWS):
        free = 4 * rng.randint(10**6, 10**9) + 3
        expect(student.kv_budget, free, 0.25).equals(solution.kv_budget(free, 0.25), because="rounded down")


@task("sizing.4")
def test_fresh_tokens(student, rng, solution):
    """Only whole tokens fit."""
    for _ in range(DRAWS):
        size = rng.randint(10**4, 10**6)
        budget = size * rng.randint(10**3, 10**5) + rng.randint(size // 2, size - 1)
        expect(student.tokens_that_fit, budget, size).equals(
            solution.tokens_that_fit(budget, size), because="whole tokens"
        )


@task("sizing.4", after="test_fresh_tokens")
def test_fresh_blocks(student, rng, solution):
    """Only whole blocks of tokens fit."""
    for block_size in (16, 32, 48):
        size = rng.randint(10**4, 10**6)
        budget = size * block_size * rng.randint(10**2, 10**4) + size * rng.randint(1, block_size - 1)
        want = solution.tokens_that_fit(budget, size, block_size)
        expect(student.tokens_that_fit, budget, size, block_size=block_size).equals(want, because="whole blocks")


@task("sizing.4")
def test_fresh_sequences(student, rng, solution):
    """Only whole sequences fit."""
    for _ in range(DRAWS):
        config, tokens = build("LlamaConfig", **attention(rng)), rng.randint(100, 9999)
        same_count(student, solution, "whole sequences", config, budget_for(rng, solution, config, tokens), tokens)


@task("sizing.4", after="test_fresh_sequences")
def test_sequences_of_any_width(student, rng, solution):
    """Fewer bits, more sequences."""
    for bits in (4, 8, 32):
        config, tokens = build("LlamaConfig", **attention(rng)), rng.randint(100, 9999)
        budget = budget_for(rng, solution, config, tokens, bits=bits)
        same_count(student, solution, f"{bits} bits a number", config, budget, tokens, bits=bits)


@task("sizing.4", after="test_fresh_sequences")
def test_sequences_in_blocks(student, rng, solution):
    """Every sequence pays for the whole of its last block."""
    for block_size in (16, 32):
        config, tokens = build("LlamaConfig", **attention(rng)), block_size * rng.randint(0, 3) + 1
        budget = budget_for(rng, solution, config, tokens, block_size=block_size)
        same_count(student, solution, "whole blocks each", config, budget, tokens, block_size=block_size)


@task("sizing.4", after="test_fresh_sequences")
def test_sequences_with_windows(student, rng, solution):
    """An engine reserves sliding layers in full, so windows admit no more sequences."""
    for _ in range(DRAWS):
        config, tokens = sliding(rng), 16 * rng.randint(20, 99)
        budget = budget_for(rng, solution, config, tokens, block_size=16)
        same_count(student, solution, "full pages each", config, budget, tokens, block_size=16)


@task("sizing.4", after="test_fresh_sequences")
def test_sequences_with_state(student, rng, solution):
    """Every sequence pays for its constant state."""
    for _ in range(DRAWS):
        config, tokens = hybrid(rng), rng.randint(100, 999)
        same_count(student, solution, "state each", config, budget_for(rng, solution, config, tokens), tokens)


@task("sizing.4", after="test_fresh_budgets")
def test_fractions_that_cannot_be(student, rng):
    """Fractions outside 0..1 and negative memory are refused by name."""
    expect(student.kv_budget, 10**9, 1 + rng.randint(1, 80) / 8).refused(naming="fraction")
    expect(student.kv_budget, 10**9, -rng.randint(1, 8) / 8).refused(naming="fraction")
    expect(student.kv_budget, -rng.randint(1, 10**9), 0.5).refused(naming="free_bytes")


@task("sizing.4", after="test_fresh_tokens")
def test_tokens_that_cannot_be(student, rng):
    """Negative budgets, tokens of no size and empty blocks are refused by name."""
    expect(student.tokens_that_fit, -rng.randint(1, 99), 8).refused(naming="budget")
    expect(student.tokens_that_fit, 10**9, -rng.randint(0, 99)).refused(naming="bytes_per_token")
    expect(student.tokens_that_fit, 10**9, 8, block_size=-rng.randint(0, 16)).refused(naming="block_size")


@task("sizing.4", after="test_fresh_sequences")
def test_counts_that_cannot_be(student, rng):
    """Negative budgets, empty sequences and empty blocks are refused by name."""
    config = build("LlamaConfig", **attention(rng))
    expect(student.sequences_that_fit, config, -rng.randint(1, 99), 8).refused(naming="budget")
    expect(student.sequences_that_fit, config, 10**9, -rng.randint(0, 99)).refused(naming="tokens")
    expect(student.sequences_that_fit, config, 10**9, 8, block_size=-rng.randint(0, 16)).refused(naming="block_size")


# --- sizing.5


def same_rank(student: Any, solution: Any, because: str, *args: Any, **kwargs: Any) -> None:
    want = solution.kv_bytes_per_rank(*args, **kwargs)
    expect(student.kv_bytes_per_rank, *args, **kwargs).equals(want, because=because)


@task("sizing.5")
def test_even_shares(student, rng, solution):
    """Heads that divide evenly are shared out evenly."""
    for tp in (2, 4):
        config = build("LlamaConfig", **attention(rng, num_key_value_heads=tp * rng.randint(1, 3)))
        same_rank(student, solution, f"the same number of heads on each of {tp} ranks", config, rng.randint(2, 999), tp)


@task("sizing.5", after="test_even_shares")
def test_more_ranks_than_heads(student, rng, solution):
    """With more ranks than heads every rank holds one head."""
    for _ in range(DRAWS):
        heads = rng.choice((1, 2, 4))
        config = build("LlamaConfig", **attention(rng, num_key_value_heads=heads))
        same_rank(student, solution, "one whole head", config, rng.randint(2, 999), heads * rng.choice((2, 4, 8)))


@task("sizing.5", after="test_more_ranks_than_heads")
def test_fullest_rank(student, rng, solution):
    """When heads do not divide evenly, the rank with most of them counts."""
    for tp in (4, 8):
        heads = tp * rng.randint(1, 3) + rng.randint(1, tp // 2 - 1)
        config = build("LlamaConfig", **attention(rng, num_key_value_heads=heads))
        same_rank(student, solution, "rounded up", config, rng.randint(2, 999), tp)


@task("sizing.5", after="test_more_ranks_than_heads")
def test_whole_latent(student, rng, solution):
    """Every rank holds all of a latent cache."""
    for tp in (2, 4, 8):
        shape = {"kv_lora_rank": 64 * rng.randint(1, 9), "qk_rope_head_dim": 32, "num_nextn_predict_layers": 0}
        config = build("DeepseekV3Config", num_hidden_layers=rng.randint(3, 7), **shape)
        same_rank(student, solution, "a latent vector has no heads", config, rng.randint(2, 999), tp)


@task("sizing.5", after="test_more_ranks_than_heads")
def test_layer_by_layer(student, rng, solution):
    """Heads are shared out layer by layer, since layers differ."""
    for _ in range(DRAWS):
        shape = attention(rng, num_attention_heads=16, num_key_value_heads=16, num_global_key_value_heads=2)
        shape |= {"attention_k_eq_v": True, "global_head_dim": 2 * shape["head_dim"], "sliding_window": 9999}
        config = build("Gemma4TextConfig", **shape, layer_types=mixed(rng, shape["num_hidden_layers"]))
        same_rank(student, solution, "2 heads in full layers, 16 in sliding ones", config, rng.randint(2, 999), 4)


@task("sizing.5", after="test_even_shares")
def test_windows_on_a_rank(student, rng, solution):
    """A window caps what a rank holds."""
    for _ in range(DRAWS):
        same_rank(student, solution, "the window is full", sliding(rng), rng.randint(200, 9999), 2)


@task("sizing.5", after="test_even_shares")
def test_share_of_the_state(student, rng, solution):
    """Constant state is shared out evenly."""
    for tp in (2, 4):
        config = build("Qwen3NextConfig", **attention(rng, num_hidden_layers=8, num_key_value_heads=tp))
        same_rank(student, solution, "1 / tp of each state", config, rng.randint(2, 999), tp)


@task("sizing.5", after="test_even_shares")
def test_width_on_a_rank(student, rng, solution):
    """The bytes of a rank follow the width of a number."""
    for bits in (4, 8, 32):
        config = build("LlamaConfig", **attention(rng))
        same_rank(student, solution, f"{bits} bits a number", config, rng.randint(2, 999), 2, bits=bits)


@task("sizing.5", after="test_even_shares")
def test_decoder_on_a_rank(student, rng, solution):
    """The decoder inside a multimodal config is what is shared out."""
    for _ in range(DRAWS):
        shape = attention(rng)
        shape["layer_types"] = ["full_attention"] * shape["num_hidden_layers"]
        config = build("Gemma3Config", text_config=shape)
        same_rank(student, solution, "text_config holds the decoder", config, rng.randint(2, 999), 2)


@task("sizing.5", after="test_even_shares")
def test_ranks_that_cannot_be(student, rng):
    """Fewer than one rank, negative lengths and unknown widths are refused by name."""
    config = build("LlamaConfig", **attention(rng))
    expect(student.kv_bytes_per_rank, config, 9, -rng.randint(0, 8)).refused(naming="tp")
    expect(student.kv_bytes_per_rank, config, -rng.randint(1, 99), 2).refused(naming="tokens")
    expect(student.kv_bytes_per_rank, config, 9, 2, bits=rng.choice((0, 3, 7, 12))).refused(naming="bits")
