"""The reference solution of lesson 1 against figures that nobody here made up, and against real Transformers caches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autograde.faults import load_faults
from autograde.sources import solution_namespace
from kvcourse.models.catalog import catalog, model_config
from kvcourse.models.measure import measured_cache_bytes
from kvcourse.tasks.course import find_lesson

GB, GIB = 10**9, 2**30

# Bytes per token at 16 bits: of a short context, and beyond every window.
TRUTH = {
    "llama-3-8b": (131_072, 131_072),
    "llama-3-70b": (327_680, 327_680),
    "qwen2.5-7b": (57_344, 57_344),
    "qwen3-0.6b": (114_688, 114_688),
    "qwen3-32b": (262_144, 262_144),
    "mistral-7b-v0.1": (131_072, 0),
    "gemma-2-2b": (106_496, 53_248),
    "gemma-2-9b": (344_064, 172_032),
    "gemma-3-1b": (26_624, 4_096),
    "gemma-3-12b": (393_216, 65_536),
    "gemma-3-27b": (507_904, 81_920),
    "phi-3-mini": (393_216, 393_216),
    "falcon-7b": (8_192, 8_192),
    "falcon-40b": (122_880, 122_880),
    "starcoder": (20_480, 20_480),
    "gpt-2": (36_864, 36_864),
    "gpt-oss-20b": (49_152, 24_576),
    "command-r7b": (131_072, 32_768),
    "mixtral-8x7b": (131_072, 131_072),
    "deepseek-v2": (69_120, 69_120),
    "deepseek-v3": (70_272, 70_272),
    "jamba-v0.1": (16_384, 16_384),
    "qwen3-next-80b": (24_576, 24_576),
    "gemma-4-31b": (901_120, 81_920),
    "gemma-4-e2b": (18_432, 6_144),
    "mimo-v2.5": (222_720, 23_040),
}

# What a common misreading of the config gives: the figure, and the planted fault that makes the mistake.
MISREAD = {
    "llama-3-8b": (524_288, "counts query heads"),
    "qwen3-0.6b": (57_344, "divides hidden size by heads always"),
    "qwen3-32b": (163_840, "divides hidden size by heads always"),
    "gemma-3-12b": (368_640, "divides hidden size by heads always"),
    "deepseek-v3": (4_997_120, "stores expanded keys and values"),
    "falcon-7b": (581_632, "believes num_kv_heads of the config class"),
    "falcon-40b": (15_360, "believes multi_query of Falcon-40B"),
    "mixtral-8x7b": (8 * 131_072, "multiplies by Mixtral's experts"),
    "qwen3-next-80b": (4 * 24_576, "lets linear layers store keys"),
    "jamba-v0.1": (8 * 16_384, "lets linear layers store keys"),
}

# Bytes of 128,000 tokens at 16 bits, states left out: the model catalogue of kvcache-simulator 0.1.3.
CATALOGUE = {
    "gemma-4-31b": 11_324_620_800,
    "gemma-4-e2b": 792_723_456,
    "command-r7b": 4_596_957_184,
    "mimo-v2.5": 2_974_679_040,
    "llama-3-8b": 16_777_216_000,
    "qwen2.5-7b": 7_340_032_000,
    "qwen3-0.6b": 14_680_064_000,
    "qwen3-32b": 33_554_432_000,
    "deepseek-v3": 8_994_816_000,
}

# Falcon-40B is not measured: Transformers copies each of its 8 KV heads 16 times before it caches them.
QUICK = ("llama-3-8b", "falcon-7b", "mistral-7b-v0.1", "gemma-3-1b", "gpt-oss-20b", "gemma-4-e2b", "deepseek-v3")
SLOW = tuple(name for name in catalog() if name not in (*QUICK, "falcon-40b"))

solved = SimpleNamespace(**solution_namespace(find_lesson("sizing")))


def bytes_per_token(layers, beyond: bool = False) -> int:
    return sum(2 * layer.elements for layer in layers if not beyond or layer.window is None)


@pytest.mark.parametrize("name", TRUTH)
def test_bytes_per_token(name):
    config, (short, beyond) = model_config(name), TRUTH[name]
    layers = solved.kv_layers(config)
    assert (bytes_per_token(layers), bytes_per_token(layers, beyond=True)) == (short, beyond)
    state = sum(layer.constant for layer in layers)
    assert solved.sequence_bytes(config, 100) == 100 * short + state
    assert solved.sequence_bytes(config, 100_001) - solved.sequence_bytes(config, 100_000) == beyond
    assert solved.sequence_bytes(config, 100_001, block_size=1) == 100_001 * short + state


@pytest.mark.parametrize("name", TRUTH)
def test_every_row_can_fail(name):
    """A layer that is left out breaks the row, whichever of the layers that store something it is."""
    layers = solved.kv_layers(model_config(name))
    for i, layer in enumerate(layers):
        if layer.elements:
            assert bytes_per_token(layers[:i] + layers[i + 1 :]) != TRUTH[name][0]


@pytest.mark.parametrize("name", MISREAD)
def test_planted_misreadings_give_the_figures_seen_in_the_wild(name):
    wrong, reading = MISREAD[name]
    fault = next(fault for fault in load_faults("sizing") if fault.why == reading)
    planted = fault.plant(solution_namespace(find_lesson("sizing")))
    assert bytes_per_token(planted["kv_layers"](model_config(name))) == wrong != TRUTH[name][0]


def test_every_pitfall_of_the_notes_is_planted():
    planted = {source for fault in load_faults("sizing") for source in fault.source.split(", ")}
    assert {f"P1.{number}" for number in range(1, 19)} <= planted


@pytest.mark.parametrize("name", CATALOGUE)
def test_another_catalogue_agrees(name):
    assert solved.sequence_bytes(model_config(name), 128_000) == CATALOGUE[name]


def test_uniform_models_follow_the_formula():
    shapes = {
        "llama-3-8b": (32, 8, 128),
        "llama-3-70b": (80, 8, 128),
        "qwen2.5-7b": (28, 4, 128),
        "gpt-2": (12, 12, 64),
    }
    shapes |= {
        "qwen3-0.6b": (28, 8, 128),
        "qwen3-32b": (64, 8, 128),
        "phi-3-mini": (32, 32, 96),
        "falcon-7b": (32, 1, 64),
    }
    for name, shape in shapes.items():
        assert solved.kv_bytes_per_token(*shape) == TRUTH[name][0]


def test_the_numbers_of_the_lesson():
    token, half = solved.kv_bytes_per_token(80, 8, 128), solved.kv_bytes_per_token(80, 8, 128, bits=8)
    assert (token, half) == (327_680, 163_840)
    gigabytes = [(round(n * token / GB, 1), round(n * half / GB, 1)) for n in (4_000, 32_000, 128_000)]
    assert gigabytes == [(1.3, 0.7), (10.5, 5.2), (41.9, 21.0)]
    assert solved.kv_budget(180 * GB - 100 * GB, 0.8) == 64 * GB
    assert (solved.tokens_that_fit(64 * GB, token), solved.tokens_that_fit(64 * GB, half)) == (195_312, 390_625)


def test_gigabytes_are_not_gibibytes():
    assert solved.tokens_that_fit(64 * GIB, 327_680) == 209_715


def test_a_fraction_of_free_or_of_total_memory():
    of_total = solved.kv_budget(180 * GB, 0.8) - 100 * GB
    assert (solved.kv_budget(80 * GB, 0.8), of_total) == (64 * GB, 44 * GB)
    assert (solved.kv_budget(80 * GB, 0.0), solved.kv_budget(80 * GB, 1.0)) == (0, 80 * GB)


def test_need_and_reservation_of_gpt_oss():
    config = model_config("gpt-oss-20b")
    assert 32 * solved.sequence_bytes(config, 8_192) == 6.09375 * GIB
    assert 32 * solved.sequence_bytes(config, 8_192, block_size=16) == 12 * GIB
    assert solved.sequences_that_fit(config, 12 * GIB, 8_192, block_size=16) == 32


def test_windows_are_capped_by_the_context():
    config = model_config("gemma-3-1b")
    assert solved.sequence_bytes(config, 128) == 128 * 26_624
    assert solved.sequence_bytes(model_config("mistral-7b-v0.1"), 100_000) == 512 * 2**20


def test_gemma_4_read_as_global_holds_a_tenth():
    """50 GB hold about 55 thousand tokens if every layer is taken for a global one."""
    config = model_config("gemma-4-31b")
    assert solved.tokens_that_fit(50 * GB, solved.sequence_bytes(config, 1)) == 55_486
    assert solved.sequence_bytes(config, 500_000) < 50 * GB


def test_shared_layers_store_nothing():
    layers = solved.kv_layers(model_config("gemma-3n-e4b"))
    assert len(layers) == 35 and [tuple(layer) for layer in layers[20:]] == [(0, None, 0)] * 15
    assert sum(layer.elements > 0 for layer in solved.kv_layers(model_config("gemma-4-e2b"))) == 15


def test_blocks():
    assert solved.tokens_that_fit(100 * 327_680, 327_680, block_size=16) == 96
    config = model_config("llama-3-8b")
    assert solved.sequence_bytes(config, 1, block_size=16) == 16 * 131_072
    assert solved.sequences_that_fit(config, 33 * 131_072, 1, block_size=16) == 2


def test_states_are_paid_for_by_every_sequence():
    config = model_config("qwen3-next-80b")
    state = sum(layer.constant for layer in solved.kv_layers(config))
    budget = 10 * (state + 1000 * 24_576)
    assert solved.sequences_that_fit(config, budget, 1000) == 10
    assert budget // (1000 * 24_576) == 41


def test_tensor_parallel_ranks():
    qwen, deepseek = model_config("qwen2.5-7b"), model_config("deepseek-v3")
    assert [solved.kv_bytes_per_rank(qwen, 1, tp) for tp in (1, 2, 4, 8)] == [57_344, 28_672, 14_336, 14_336]
    assert 8 * solved.kv_bytes_per_rank(qwen, 1, 8) == 114_688
    assert [solved.kv_bytes_per_rank(deepseek, 1, tp) for tp in (1, 8)] == [70_272, 70_272]


def test_quantised_bits_with_scales():
    assert (solved.quantized_bits(2, 32), solved.quantized_bits(4, 64)) == (3.0, 4.5)


def test_widths():
    gpt2 = model_config("gpt-2")
    assert [solved.sequence_bytes(gpt2, 1, bits) for bits in (8, 16, 32)] == [18_432, 36_864, 73_728]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_real_cache_holds_what_the_config_says(name):
    """Layer by layer: below every window, and beyond it, where Transformers keeps window - 1 tokens."""
    config = model_config(name)
    layers = solved.kv_layers(config)
    assert measured_cache_bytes(config, 5) == [2 * 5 * layer.elements + layer.constant for layer in layers]
    if any(layer.window for layer in layers):
        kept = [9 if layer.window is None else 3 for layer in layers]
        held = [2 * n * layer.elements + layer.constant for n, layer in zip(kept, layers, strict=True)]
        assert measured_cache_bytes(config, 9, window=4) == held


@pytest.mark.slow
def test_a_real_cache_of_32_bit_numbers():
    assert sum(measured_cache_bytes(model_config("gpt-2"), 5, bits=32)) == 5 * 73_728
