"""Unmodified Transformers models: which run, which are refused, and that nothing stays behind on the model object."""

from __future__ import annotations

import inspect

import pytest
import torch
import transformers
from engine_helpers import assert_exact, generate, ragged_prompts, random_model, serve, tokens

from kvcourse.engine import Engine
from kvcourse.engine.reference import PrefixCache
from kvcourse.engine.scheduler import schedule_chunked

SHAPE = {
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def tiny(kind: str, **changes):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **changes})
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {"num_key_value_heads": 1}),  # multi-query
        ("Llama", {"num_key_value_heads": 4, "head_dim": 24}),  # multi-head, explicit head size
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 32}),
        ("Mistral", {"sliding_window": None}),
    ],
)
def test_llama_type_models_run_unmodified(kind, changes):
    model = tiny(kind, **changes)
    engine = Engine(model, 48, 4, prefix_cache=PrefixCache, scheduler=schedule_chunked, budget=30)
    assert_exact(model, serve(engine, ragged_prompts(), 6), 6)
    assert engine.metrics.reused > 0


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("Mistral", {"sliding_window": 64}, "sliding"),
        (
            "Qwen2",
            {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1},
            "sliding_attention layers",
        ),
        ("Gemma2", {"head_dim": 16}, "sliding_attention layers"),
        ("Cohere2", {}, "sliding_attention layers"),
        (
            "DeepseekV3",
            {
                "kv_lora_rank": 16,
                "q_lora_rank": 16,
                "qk_rope_head_dim": 8,
                "qk_nope_head_dim": 8,
                "v_head_dim": 8,
                "n_routed_experts": 8,
            },
            "its cache is a latent vector (MLA)",
        ),
        ("Mamba", {}, "attention"),
    ],
)
def test_other_kinds_of_attention_are_refused(kind, changes, words):
    with pytest.raises(ValueError, match="The engine runs models with full attention in every layer") as caught:
        Engine(tiny(kind, **changes))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_two_engines_and_generate_on_one_model_do_not_disturb_each_other():
    model = random_model()
    before = model.config._attn_implementation
    prompts = [tokens(40, seed=1), tokens(30, seed=2)]
    engines = [
        Engine(model, 16, 16),
        Engine(model, 40, 4, prefix_cache=PrefixCache, scheduler=schedule_chunked, budget=9),
    ]
    for engine in engines:
        for prompt in prompts:
            engine.add_request(prompt, 8)
    ids = torch.tensor([prompts[0]])
    while any(engine.has_work for engine in engines):
        for engine in engines:
            engine.step()
            engine.check()
        with torch.no_grad():
            assert model.config._attn_implementation == before
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False, pad_token_id=0)
    want = [generate(model, prompt, 8)[0] for prompt in prompts]
    for engine in engines:
        assert [engine.request(i).output for i in (0, 1)] == want


def test_a_model_with_another_attention_setting_keeps_it():
    model = tiny("Llama")
    model.set_attn_implementation("eager")
    want = generate(model, tokens(20, seed=1), 5)[0]
    engine = Engine(model)
    engine.add_request(tokens(20, seed=1), 5)
    assert engine.run() == {0: want}
    assert model.config._attn_implementation == "eager"


@pytest.mark.slow
def test_transformers_own_continuous_batching_agrees():
    """The second oracle: another paged engine over the same model."""
    manager = pytest.importorskip("transformers.generation.continuous_batching")
    if not hasattr(manager, "ContinuousBatchingConfig") and not hasattr(transformers, "ContinuousBatchingConfig"):
        pytest.skip("this version configures continuous batching in another way")
    model = random_model(seed=3)
    prompts = [prompt for prompt in ragged_prompts() if len(prompt) > 1]
    config = transformers.GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)
    names = inspect.signature(transformers.ContinuousBatchingConfig).parameters
    size = {"page_size" if "page_size" in names else "block_size": 16}  # renamed in 5.17
    batching = transformers.ContinuousBatchingConfig(**size, num_blocks=128, max_batch_tokens=256)
    out = model.generate_batch(prompts, generation_config=config, continuous_batching_config=batching)
    theirs = {tuple(result.prompt_ids): result.generated_tokens for result in out.values()}
    model.set_attn_implementation("sdpa")
    requests = serve(Engine(model, 64, 16, prefix_cache=PrefixCache), prompts, 8)
    assert [r.output for r in requests] == [theirs[tuple(prompt)] for prompt in prompts]
