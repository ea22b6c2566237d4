"""The kernels of lesson 5 on a device: answers, speed, and a model served by them. A part of bench/gpu_run.py.

answers      every reference kernel on the CPU, watched, and on the device, against plain attention in double precision
decode       bytes a second of paged_decode against a copy by torch; paged_decode_int8 with merge_splits against it
prefill      chunked_prefill against torch's scaled_dot_product_attention with an explicit mask
served       smollm2 in half precision (else random weights) through the engine with the kernels in it, and its memory
"""

from __future__ import annotations

import importlib.util
import random
import sys
import time
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import torch

from bench.gpu_timing import best_seconds, launcher
from kvcourse.check.gpu import Gpu
from kvcourse.cuda import Kernel
from kvcourse.engine import Engine
from kvcourse.engine.attention import GatherAttention
from kvcourse.models.load import load_model
from kvcourse.models.random_llama import random_llama
from kvcourse.tasks import kernel_problems as problems
from kvcourse.tasks.api import Failure
from kvcourse.tasks.kernel_kit import Problem, launch, launch_on_gpu

SCRIPT = Path(__file__).parents[1] / "solutions" / "05_chunked_prefill" / "chunked_prefill.py"
HALF = torch.float16
T4_BYTES = 16e9
BLOCK, THREADS, ROWS = 16, 128, 8


def lesson(device: str, left: float) -> dict[str, Any]:
    """All four, `left` seconds at most: what comes last is left out first."""
    until, script = time.monotonic() + left, lesson_script()
    sizes = SMALL if device == "cpu" else LARGE
    result: dict[str, Any] = {"answers": answers(device, script)}
    for name, part in (("decode", decode), ("prefill", prefill), ("served", served)):
        enough = until - time.monotonic() > 30
        result[name] = part(device, script, sizes) if enough else "no time left"
    return result


def lesson_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chunked_prefill_lesson", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SMALL = {"sequences": 2, "context": 64, "heads": 2, "head_dim": 64, "split": 32, "count": 16, "cached": 48, "rounds": 1}
LARGE = {
    "sequences": 32,
    "context": 4096,
    "heads": 8,
    "head_dim": 128,
    "split": 1024,
    "count": 512,
    "cached": 3584,
    "rounds": 20,
}


# ---------------------------------------------------------------- answers


def answers(device: str, script: ModuleType) -> dict[str, Any]:
    """For every problem: "agrees", or what is wrong on which side."""
    rows: dict[str, str] = {}
    gpu = Gpu(device)
    for problem in lesson_problems(Random(5)):
        verdict = []
        for where, run in (("CPU", launch), ("device", lambda *args: launch_on_gpu(gpu, *args))):
            try:
                run(script, problem)
            except Failure as failure:
                verdict.append(f"{where}: expected {failure.expected}, got {failure.got}")
        rows[problem.call] = "; ".join(verdict) or "agrees"
    return {"all_agree": all(row == "agrees" for row in rows.values()), "problems": rows}


def lesson_problems(rng: Random) -> list[Problem]:
    """Every kernel, in both types, with tails and groups."""
    found = [problems.axpy(rng, 300)]
    for dtype in (torch.float32, HALF):
        found += [
            problems.write_kv(rng, 9, 3, 80, dtype=dtype),
            problems.paged_decode(rng, [5, 33, 100], 6, 2, 80, dtype=dtype),
            problems.paged_decode(rng, [1, 17], 4, 1, 128, 4, dtype, logits="far below zero"),
            problems.chunked_prefill(rng, 11, 0, 4, 4, dtype=dtype),
            problems.chunked_prefill(rng, 20, 45, 6, 2, 80, dtype=dtype),
            problems.chunked_prefill(rng, 9, 56, 2, 2, 128, 8, dtype, logits="rising"),
            problems.paged_decode_int8(rng, [40, 5, 64], 16, 4, 2, 96, dtype=dtype),
            problems.merge_splits(rng, 3, 5, 4, 80, dtype, empty_splits=1),
        ]
    return found


# ---------------------------------------------------------------- speed


def paged(device: str, sequences: int, context: int, kv_heads: int, head_dim: int) -> tuple[torch.Tensor, ...]:
    """Key and value pool in half precision, a shuffled block table [sequences, blocks], and context lengths."""
    each = -(-context // BLOCK)
    generator = torch.Generator().manual_seed(0)
    table = torch.randperm(sequences * each, generator=generator).view(sequences, each).int().to(device)
    shape = (sequences * each, BLOCK, kv_heads, head_dim)
    pools = [torch.randn(shape, device=device, dtype=torch.float32 if device == "cpu" else HALF).half() for _ in "kv"]
    return *pools, table, torch.full((sequences,), context, dtype=torch.int32, device=device)


def decode(device: str, script: ModuleType, sizes: dict[str, int]) -> dict[str, Any]:
    """One new token for each of many long sequences: this moves memory and does little else."""
    sequences, context, heads, d = sizes["sequences"], sizes["context"], sizes["heads"], sizes["head_dim"]
    k_pool, v_pool, table, lengths = paged(device, sequences, context, heads, d)
    query = torch.randn(sequences, heads, d, device=device).half()
    out, scale, rounds = torch.empty_like(query), d**-0.5, sizes["rounds"]
    shape = (heads, heads, BLOCK, table.shape[1])
    fp16 = Kernel(script.paged_decode.source, "paged_decode", f"__half, {d}")
    given = (out, query, k_pool, v_pool, table, lengths, *shape, scale)
    seconds = best_seconds(device, launcher(device, fp16, (heads, sequences), THREADS, given), rounds)
    moved = 2 * sequences * context * heads * d * 2
    copied = copy_speed(device, moved // 2, rounds)

    scales = [pool.abs().amax((0, 1)).float() / 127 for pool in (k_pool, v_pool)]  # the values' are alike for all slots
    codes = [
        (pool / s.half().clamp(min=1e-4)).round().clamp(-127, 127).to(torch.int8)
        for pool, s in zip((k_pool, v_pool), (scales[0], scales[1].amax(-1, keepdim=True)), strict=True)
    ]
    slots, splits = k_pool.shape[0] * BLOCK, -(-context // sizes["split"])
    v_scale = scales[1].amax(-1).expand(slots, heads).contiguous()
    partial = torch.empty(sequences, heads, splits, d, device=device)
    lse, merged = torch.empty(sequences, heads, splits, device=device), torch.empty_like(out)
    int8 = Kernel(script.paged_decode_int8.source, "paged_decode_int8", f"__half, {d}")
    merge = Kernel(script.merge_splits.source, "merge_splits", f"__half, {d}")
    given = (partial, lse, query, *codes, scales[0], v_scale, table, lengths, *shape, sizes["split"], scale)
    first = launcher(device, int8, (heads, sequences, splits), THREADS, given)
    second = launcher(device, merge, (heads, sequences), THREADS, (merged, partial, lse, splits))
    seconds_int8 = best_seconds(device, lambda: (first(), second()), rounds)
    return {
        "sizes": f"{sequences} sequences of {context} tokens, {heads} heads of {d}, half precision",
        "ms": round(seconds * 1e3, 4),
        "gb_s": round(moved / seconds / 1e9, 2),
        "copy_gb_s": round(copied / 1e9, 2),
        "of_copy": round(moved / seconds / copied, 3),
        "int8_ms": round(seconds_int8 * 1e3, 4),
        "int8_against_fp16": round(seconds / seconds_int8, 3),
        "int8_difference": round(float((merged.float() - out.float()).abs().max()), 4),
    }


def copy_speed(device: str, count: int, rounds: int) -> float:
    """Bytes read and written a second by a copy of `count` bytes."""
    a, b = (torch.empty(count, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * count / best_seconds(device, lambda: b.copy_(a), rounds)


def prefill(device: str, script: ModuleType, sizes: dict[str, int]) -> dict[str, Any]:
    """A chunk behind a long cached prefix, against torch's attention over keys that lie ready in one piece."""
    count, cached, heads, d = sizes["count"], sizes["cached"], sizes["heads"], sizes["head_dim"]
    k_pool, v_pool, table, _ = paged(device, 1, cached + count, heads, d)
    query = torch.randn(count, heads, d, device=device).half()
    out, rounds = torch.empty_like(query), sizes["rounds"]
    kernel = Kernel(script.chunked_prefill.source, "chunked_prefill", f"__half, {d}")
    given = (out, query, k_pool, v_pool, table[0].contiguous(), count, cached, heads, heads, BLOCK, d**-0.5)
    seconds = best_seconds(
        device, launcher(device, kernel, (heads, -(-count // ROWS)), (32, ROWS), given), max(rounds // 4, 1)
    )
    keys, values = (pool[table[0].long()].flatten(0, 1)[: cached + count].transpose(0, 1)[None].contiguous()
                    for pool in (k_pool, v_pool))  # fmt: skip
    rows = query.transpose(0, 1)[None].contiguous()
    positions = cached + torch.arange(count, device=device)
    mask = torch.arange(cached + count, device=device)[None, :] <= positions[:, None]
    attend = torch.nn.functional.scaled_dot_product_attention
    want = attend(rows, keys, values, attn_mask=mask)[0].transpose(0, 1)
    theirs = best_seconds(device, lambda: attend(rows, keys, values, attn_mask=mask), rounds)
    return {
        "sizes": f"{count} queries behind {cached} cached keys, {heads} heads of {d}, half precision",
        "ms": round(seconds * 1e3, 4),
        "sdpa_ms": round(theirs * 1e3, 4),
        "times_sdpa": round(seconds / theirs, 2),
        "difference": round(float((out.float() - want.float()).abs().max()), 5),
    }


# ---------------------------------------------------------------- a model


def served(device: str, script: ModuleType, _sizes: dict[str, int]) -> dict[str, Any]:
    """Requests through plain attention and through the kernels, in half precision: times, tokens, peak of memory."""
    name, model = served_model(device)
    requests, length, new = (2, 24, 3) if device == "cpu" else (16, 1000, 64)
    draw = random.Random(0)
    prompts = [draw.choices(range(3, model.config.vocab_size), k=length + 7 * i) for i in range(requests)]
    blocks = sum(-(-(len(prompt) + new) // BLOCK) for prompt in prompts) + 8
    head_dim = model.config.hidden_size // model.config.num_attention_heads
    parts = {"plain": GatherAttention(), "kernels": script.KernelAttention(head_dim, "__half")}
    rows: dict[str, Any] = {"model": name, "requests": requests, "prompt_tokens": sum(map(len, prompts))}
    answers: dict[str, list[list[int]]] = {}
    for part, attention in parts.items():
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        for _ in range(1 if device == "cpu" else 2):  # the first time compiles
            engine = Engine(
                model, blocks, BLOCK, budget=512, scheduler=script.schedule_step, attention=attention, keep_events=10
            )
            for prompt in prompts:
                engine.add_request(prompt, new, eos=())
            before = time.perf_counter()
            out = engine.run()
            seconds = time.perf_counter() - before
        answers[part] = [tokens for _, tokens in sorted(out.items())]
        rows[part] = {"seconds": round(seconds, 3), "tokens_out": sum(map(len, answers[part]))}
        if device == "cuda":
            peak = torch.cuda.max_memory_allocated()
            rows[part] |= {"peak_gb": round(peak / 1e9, 2), "fits_a_t4": peak < 0.9 * T4_BYTES}
    pairs = list(zip(answers["plain"], answers["kernels"], strict=True))
    rows["equal_answers"] = sum(a == b for a, b in pairs)
    rows["equal_first_tokens"] = sum(a[0] == b[0] for a, b in pairs)
    return rows


def served_model(device: str) -> tuple[str, Any]:
    """smollm2 in half precision if its weights are here and there is a GPU, else random weights."""
    if device == "cuda":
        try:
            return "smollm2", load_model("smollm2", device, "float16").model
        except Exception as error:
            return f"random ({type(error).__name__}: no smollm2)", random_llama().half().to(device)
    return "random", random_llama().half()
