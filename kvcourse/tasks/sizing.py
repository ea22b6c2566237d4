"""Public tests of lesson 1, cache sizing: small cases that teach, the smallest first."""

from __future__ import annotations

from kvcourse.tasks.api import expect, task
from kvcourse.tasks.shapes import real, tiny
from kvcourse.tasks.sizing_bits import *  # noqa: F403 - the tests of sizing.6
from kvcourse.tasks.sizing_layers import *  # noqa: F403 - the tests of sizing.2

MIB, GIB = 2**20, 2**30


@task("sizing.1")
def test_keys_and_values(student):
    """Keys and values are both stored: the size carries a factor of 2."""
    expect(student.kv_bytes_per_token, 1, 1, 1, bits=8).equals(
        2, because="one key number and one value number, 1 byte each", tip="multiply by 2: one key and one value"
    )


@task("sizing.1")
def test_every_layer_head_and_position(student):
    """Every layer, every KV head and every position of the vector counts."""
    because = "2 x layers x KV heads x head dimension numbers of 1 byte"
    expect(student.kv_bytes_per_token, 3, 1, 1, bits=8).equals(6, because, tip="multiply by the number of layers")
    expect(student.kv_bytes_per_token, 1, 5, 1, bits=8).equals(10, because, tip="multiply by the number of KV heads")
    expect(student.kv_bytes_per_token, 1, 1, 7, bits=8).equals(14, because, tip="multiply by the head dimension")


@task("sizing.1")
def test_bits_become_bytes(student):
    """A number takes 16 bits unless said otherwise, and 8 bits are a byte."""
    expect(student.kv_bytes_per_token, 1, 1, 4).equals(
        16, because="8 numbers of 2 bytes", tip="bits / 8 bytes a number"
    )
    expect(student.kv_bytes_per_token, 1, 1, 4, bits=32).equals(32, because="8 numbers of 4 bytes")
    expect(student.kv_bytes_per_token, 1, 1, 4, bits=4).equals(4, because="8 numbers of half a byte")


@task("sizing.1")
def test_a_started_byte_counts(student):
    """Narrow numbers are packed, and a started byte counts as a whole one."""
    expect(student.kv_bytes_per_token, 1, 1, 1, bits=2).equals(
        1, because="2 numbers of 2 bits are 4 bits: one byte, half of it empty", tip="round up: (total bits + 7) // 8"
    )
    expect(student.kv_bytes_per_token, 1, 5, 1, bits=2).equals(3, because="10 numbers of 2 bits are 20 bits: 2.5 bytes")


@task("sizing.1")
def test_the_lesson_70b_shape(student):
    """The 70B shape of the lesson: 327,680 bytes per token at 16 bits, half of it at 8 bits."""
    expect(student.kv_bytes_per_token, 80, 8, 128).equals(327_680, because="2 x 80 x 8 x 128 x 2 bytes")
    expect(student.kv_bytes_per_token, 80, 8, 128, bits=8).equals(163_840, because="half the bits, half the bytes")


@task("sizing.1", after="test_the_lesson_70b_shape")
def test_nonsense_sizes_are_refused(student):
    """A size below 1 and an unknown width are refused by name."""
    tip = "raise ValueError with a sentence that names the argument: require() and require_bits() above do that"
    expect(student.kv_bytes_per_token, 0, 1, 1).refused(naming="layers", because="no layer, no cache", tip=tip)
    expect(student.kv_bytes_per_token, 1, -8, 1).refused(naming="kv_heads", because="heads are counted", tip=tip)
    expect(student.kv_bytes_per_token, 1, 1, 1, bits=7).refused(
        naming="bits", because="no cache has 7-bit numbers", tip=tip
    )


@task("sizing.3")
def test_a_sequence_grows_token_by_token(student):
    """With full attention every token costs the same."""
    config = tiny("LlamaConfig", num_key_value_heads=1)
    expect(student.sequence_bytes, config, 1).equals(
        16, because="2 layers x 4 numbers x 2 bytes", tip="sum over kv_layers"
    )
    expect(student.sequence_bytes, config, 10).equals(160, because="10 tokens", tip="multiply by the tokens")
    expect(student.sequence_bytes, config, 10, bits=8).equals(80, because="1 byte a number", tip="multiply by bits / 8")
    expect(student.sequence_bytes, config, 0).equals(0, because="no tokens, nothing stored")


@task("sizing.3")
def test_a_window_caps_and_is_capped(student):
    """A sliding layer keeps the window or the sequence, whichever is shorter."""
    config = tiny("MistralConfig", layers=1, num_key_value_heads=1, sliding_window=6)
    expect(student.sequence_bytes, config, 5).equals(
        40, because="5 tokens are fewer than the window of 6", tip="take the min"
    )
    expect(student.sequence_bytes, config, 100).equals(
        48, because="only the last 6 tokens are kept", tip="take the min"
    )


@task("sizing.3")
def test_whole_blocks(student):
    """An engine reserves whole blocks, in sliding layers too."""
    config = tiny("LlamaConfig", layers=1, num_key_value_heads=1)
    expect(student.sequence_bytes, config, 1, block_size=4).equals(
        32, because="a block of 4 tokens", tip="round up to blocks"
    )
    expect(student.sequence_bytes, config, 8, block_size=4).equals(64, because="exactly 2 blocks", tip="no extra block")
    sliding = tiny("MistralConfig", layers=1, num_key_value_heads=1, sliding_window=6)
    expect(student.sequence_bytes, sliding, 100, block_size=4).equals(
        800, because="25 blocks: the pages behind the window stay reserved", tip="with block_size ignore the window"
    )


@task("sizing.3")
def test_constant_state_is_added_once(student):
    """A constant state is added once, whatever the tokens and bits."""
    config = tiny("JambaConfig", num_key_value_heads=1, attn_layer_period=2, attn_layer_offset=1)
    state = 16 * 4 * 2 + 16 * 16 * 4
    tip = "add the constants after tokens and bits: they are bytes already"
    expect(student.sequence_bytes, config, 10).equals(
        80 + state, because="10 tokens x 4 numbers x 2 bytes + state", tip=tip
    )
    expect(student.sequence_bytes, config, 10, bits=8).equals(40 + state, because="the state keeps its width", tip=tip)


@task("sizing.3")
def test_gpt_oss_needs_and_reserves(student):
    """gpt-oss-20b, 32 requests of 8,192 tokens: 6.09 GiB needed, 12.00 GiB reserved."""
    config = real("gpt-oss-20b")
    expect(student.sequence_bytes, config, 8192).equals(
        195 * MIB, because="12 full layers and 12 of 128 tokens: x 32 = 6.09 GiB"
    )
    expect(student.sequence_bytes, config, 8192, block_size=16).equals(
        384 * MIB, because="24 full layers: x 32 = 12.00 GiB"
    )


@task("sizing.3", after="test_a_sequence_grows_token_by_token")
def test_nonsense_lengths_are_refused(student):
    """A negative length, a block of no tokens and an unknown width are refused by name."""
    config, tip = tiny("LlamaConfig"), "raise ValueError with a sentence that names the argument"
    expect(student.sequence_bytes, config, -1).refused(naming="tokens", because="tokens are counted", tip=tip)
    expect(student.sequence_bytes, config, 1, block_size=0).refused(
        naming="block_size", because="no block is empty", tip=tip
    )
    expect(student.sequence_bytes, config, 1, bits=5).refused(
        naming="bits", because="no cache has 5-bit numbers", tip=tip
    )


@task("sizing.4")
def test_a_share_of_the_free_memory(student):
    """The budget is a fraction of the free memory, from none of it to all of it."""
    expect(student.kv_budget, 80, 0.5).equals(40, because="half of 80 bytes", tip="multiply, then int()")
    expect(student.kv_budget, 7, 0.5).equals(3, because="half a byte is of no use", tip="round down")
    expect(student.kv_budget, 80_000_000_000, 0.8).equals(64_000_000_000, because="the B200 of the lesson: 64 GB")
    expect(student.kv_budget, 80, 0).equals(0, because="0 is allowed", tip="accept both ends of 0..1")
    expect(student.kv_budget, 80, 1).equals(80, because="1 is allowed", tip="accept both ends of 0..1")


@task("sizing.4")
def test_tokens_come_in_whole_blocks(student):
    """Tokens that fit are counted in whole blocks."""
    expect(student.tokens_that_fit, 100, 8).equals(
        12, because="12 x 8 = 96 bytes; 13 do not fit", tip="divide, rounding down"
    )
    expect(student.tokens_that_fit, 100, 8, block_size=5).equals(
        10, because="a block takes 40 bytes, 2 blocks fit", tip="count whole blocks first, then multiply by block_size"
    )


@task("sizing.4")
def test_the_lesson_64_gb(student):
    """64 GB hold 195,312 tokens of the lesson's 70B shape at 16 bits and 390,625 at 8 bits."""
    expect(student.tokens_that_fit, 64 * 10**9, 327_680).equals(
        195_312, because="64,000,000,000 / 327,680, rounded down"
    )
    expect(student.tokens_that_fit, 64 * 10**9, 163_840).equals(390_625, because="half the bytes, twice the tokens")
    expect(student.tokens_that_fit, 64 * GIB, 327_680).equals(209_715, because="a GiB is 7.4 % more than a GB")


@task("sizing.4")
def test_sequences_pay_for_blocks_and_state(student):
    """Each sequence pays for whole blocks, in sliding layers too, and for its constant state."""
    llama = tiny("LlamaConfig", layers=1, num_key_value_heads=1)
    expect(student.sequences_that_fit, llama, 100, 1).equals(12, because="8 bytes each", tip="divide by sequence_bytes")
    expect(student.sequences_that_fit, llama, 100, 1, block_size=4).equals(
        3, because="one token reserves a block of 4 tokens, 32 bytes", tip="pass block_size on to sequence_bytes"
    )
    expect(student.sequences_that_fit, llama, 100, 1, bits=8).equals(25, because="4 bytes each", tip="pass bits on")
    sliding = tiny("MistralConfig", layers=1, num_key_value_heads=1, sliding_window=6)
    expect(student.sequences_that_fit, sliding, 1000, 100).equals(
        1, because="an engine reserves all 100 tokens, 800 bytes", tip="pass block_size on, also where it is 1"
    )
    jamba = tiny("JambaConfig", num_key_value_heads=1, attn_layer_period=2, attn_layer_offset=1)
    expect(student.sequences_that_fit, jamba, 10_000, 16).equals(
        7, because="16 tokens x 8 bytes + 1,152 bytes of state = 1,280 each", tip="the state belongs to every sequence"
    )


@task("sizing.4", after="test_the_lesson_64_gb")
def test_nonsense_budgets_are_refused(student):
    """A negative budget, a fraction outside 0..1 and blocks of no tokens are refused by name."""
    tip = "raise ValueError with a sentence that names the argument"
    expect(student.kv_budget, 80, 1.5).refused(naming="fraction", because="more than all of it", tip=tip)
    expect(student.kv_budget, -1, 0.5).refused(naming="free_bytes", because="the weights do not fit", tip=tip)
    expect(student.tokens_that_fit, 100, 8, block_size=0).refused(
        naming="block_size", because="no block is empty", tip=tip
    )
    expect(student.sequences_that_fit, tiny("LlamaConfig"), 100, 0).refused(
        naming="tokens", because="0 bytes each", tip=tip
    )


@task("sizing.5")
def test_ranks_share_out_the_heads(student):
    """Each rank holds its share of the KV heads, and at least one."""
    config = tiny("LlamaConfig", layers=1, num_key_value_heads=4)
    expect(student.kv_bytes_per_rank, config, 1, 1).equals(
        32, because="one rank holds all 4 heads: 16 numbers of 2 bytes"
    )
    expect(student.kv_bytes_per_rank, config, 1, 2).equals(16, because="2 heads a rank", tip="divide the heads by tp")
    expect(student.kv_bytes_per_rank, config, 1, 8).equals(
        8, because="half a head cannot be stored", tip="round heads / tp up"
    )


@task("sizing.5")
def test_uneven_shares(student):
    """The fullest rank counts when the heads do not divide evenly."""
    config = tiny("Qwen3Config", layers=1, num_attention_heads=6, num_key_value_heads=6, head_dim=2)
    expect(student.kv_bytes_per_rank, config, 1, 4).equals(
        16, because="6 heads on 4 ranks: two ranks hold 2", tip="round heads / tp up, before you multiply"
    )


@task("sizing.5")
def test_a_latent_is_not_split(student):
    """A latent cache (MLA) is whole on every rank."""
    config = tiny("DeepseekV3Config", layers=1, kv_lora_rank=5, qk_rope_head_dim=2, n_routed_experts=8)
    expect(student.kv_bytes_per_rank, config, 1, 8).equals(
        14, because="every head needs all 7 numbers", tip="no heads, no split"
    )


@task("sizing.5")
def test_qwen_on_eight_gpus(student):
    """Qwen2.5-7B on 8 GPUs: 14,336 bytes per token on each."""
    expect(student.kv_bytes_per_rank, real("qwen2.5-7b"), 1, 8).equals(
        14_336, because="28 layers x 1 head x 256 numbers x 2"
    )
    expect(student.kv_bytes_per_rank, real("qwen2.5-7b"), 1000, 2).equals(
        28_672_000, because="2 of 4 heads on each of 2 GPUs"
    )


@task("sizing.5")
def test_windows_and_states_of_a_rank(student):
    """A window caps what a rank holds, and a constant state is split evenly."""
    sliding = tiny("MistralConfig", layers=1, num_key_value_heads=2, sliding_window=6)
    expect(student.kv_bytes_per_rank, sliding, 100, 2).equals(
        48, because="6 tokens x 4 numbers of one head x 2 bytes", tip="take min(tokens, window) again"
    )
    jamba = tiny("JambaConfig", num_key_value_heads=2, attn_layer_period=2, attn_layer_offset=1)
    expect(student.kv_bytes_per_rank, jamba, 10, 2).equals(
        80 + 576, because="10 tokens of one head, and half of 1,152 bytes of state", tip="divide each constant by tp"
    )


@task("sizing.5", after="test_ranks_share_out_the_heads")
def test_no_ranks_are_refused(student):
    """Fewer than one rank is refused by name."""
    tip = "raise ValueError with a sentence that names tp"
    expect(student.kv_bytes_per_rank, tiny("LlamaConfig"), 1, 0).refused(
        naming="tp", because="nobody holds the cache", tip=tip
    )
