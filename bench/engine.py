"""The engine beside Transformers' `generate()` and its own continuous batching, in one run.

    python bench/engine.py --model random       about 2 minutes on one core
    python bench/engine.py --model smollm2      about 30 minutes with --repeats 1

The second one needs `kvcourse models fetch smollm2` first.

Seconds are CPU seconds of the whole process with one torch thread, so that neighbours on the machine matter little.
Repeats alternate between the systems; the best of each counts. Every answer is compared with generate()'s; where one
differs, the row says by how much the model preferred generate()'s token: far below 1e-3, rounding breaks a tie.
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import inspect
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from kvcourse.engine import Engine
from kvcourse.engine.fake import FakeModel
from kvcourse.engine.reference import PrefixCache
from kvcourse.models.load import load_model

SHARED, OWN, NEW = 512, 64, 32
LONG_PROMPT, QUESTION = 2000, 64
BLOCK = 16
OUT = Path(__file__).parent / "results"

Answers = list[list[int]]
System = Callable[[list[list[int]], int], Callable[[], Answers]]  # prompts and new tokens -> the work that is timed


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", choices=["random", "smollm2"], default="random")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=1)
    chosen = arguments.parse_args()
    torch.set_num_threads(chosen.threads)
    transformers.logging.set_verbosity_error()
    model = load_model(chosen.model).model
    results = {
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": chosen.threads,
            "load": os.getloadavg()[0],
            "clock": "CPU seconds of the process",
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "model": chosen.model,
        "throughput": [throughput(model, count, chosen.repeats) for count in (8, 32)],
        "shared_prompt": shared_prompt(model, chosen.repeats),
        "overhead": overhead(model),
        "step_cost": step_cost(),
    }
    OUT.mkdir(exist_ok=True)
    path = OUT / f"engine_{chosen.model}.json"
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"written: {path.name}")


# ---------------------------------------------------------------- throughput


def throughput(model: Any, count: int, repeats: int) -> dict:
    """`count` requests of SHARED + OWN tokens, NEW new ones: all prefill (one token each), then all of it."""
    prompts = make_prompts(model.config.vocab_size, count, SHARED, OWN)
    systems: dict[str, System] = {
        "generate, one by one": lambda ps, new: lambda: [generate(model, p, new) for p in ps],
        "transformers batching, no sharing": lambda ps, new: their_batching(model, ps, new, sharing=False),
        "transformers batching, sharing": lambda ps, new: their_batching(model, ps, new, sharing=True),
        "engine, no reuse": lambda ps, new: our_engine(model, ps, new),
        "engine, prefix cache": lambda ps, new: our_engine(model, ps, new, prefix_cache=PrefixCache),
    }
    best: dict[tuple[str, int], float] = {}
    answers: dict[str, Answers] = {}
    for _ in range(repeats):
        for new in (1, NEW):
            for name, system in systems.items():
                work = system(prompts, new)
                start = time.process_time()
                answers[name] = work()
                seconds = time.process_time() - start
                best[name, new] = min(seconds, best.get((name, new), seconds))
    rows = []
    for name in systems:
        prefill, total = best[name, 1], best[name, NEW]
        exact = sum(a == b for a, b in zip(answers[name], answers["generate, one by one"], strict=True))
        rows.append(
            {
                "system": name,
                "seconds": round(total, 3),
                "prefill_tokens_per_s": round(count * (SHARED + OWN) / prefill),
                "decode_tokens_per_s": round(count * (NEW - 1) / max(total - prefill, 1e-9), 1),
                "output_tokens_per_s": round(count * NEW / total, 1),
                "exact": f"{exact}/{count}",
                "margins_where_different": margins(model, prompts, answers["generate, one by one"], answers[name]),
            }
        )
        print(
            f"{count:3} requests  {name:<36}",
            *(f"{key} {value}" for key, value in list(rows[-1].items())[1:]),
            flush=True,
        )
    by_name = {row["system"]: row["seconds"] for row in rows}
    peers = min(by_name["generate, one by one"], by_name["transformers batching, no sharing"])
    ratio = round(peers / by_name["engine, no reuse"], 2)
    print(f"{count:3} requests  engine without reuse against the better peer: {ratio}x")
    return {
        "requests": count,
        "shared": SHARED,
        "own": OWN,
        "new": NEW,
        "rows": rows,
        "engine_against_better_peer": ratio,
    }


@torch.inference_mode()
def margins(model: Any, prompts: list[list[int]], wanted: Answers, got: Answers) -> list[float]:
    """For each answer that differs: the logit of generate()'s token minus that of ours at the first difference."""
    found = []
    for prompt, want, other in zip(prompts, wanted, got, strict=True):
        at = next((i for i, (a, b) in enumerate(zip(want, other, strict=True)) if a != b), None)
        if at is not None:
            logits = model(input_ids=torch.tensor([prompt + want[:at]]), use_cache=False, logits_to_keep=1).logits[
                0, -1
            ]
            found.append(float(logits[want[at]] - logits[other[at]]))
    return found


def generate(model: Any, prompt: list[int], new: int) -> list[int]:
    ids = torch.tensor([prompt])
    ones = torch.ones_like(ids)
    out = model.generate(
        ids, attention_mask=ones, max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return out[0, len(prompt) :].tolist()


def their_batching(model: Any, prompts: list[list[int]], new: int, sharing: bool) -> Callable[[], Answers]:
    before = model.config._attn_implementation
    config = transformers.GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    names = inspect.signature(transformers.ContinuousBatchingConfig).parameters
    size = {"page_size" if "page_size" in names else "block_size": BLOCK}
    blocks = pool_blocks(prompts, new)
    batching = transformers.ContinuousBatchingConfig(
        **size, num_blocks=blocks, max_batch_tokens=1024, allow_block_sharing=sharing
    )

    def work() -> Answers:
        out = model.generate_batch(prompts, config, batching, progress_bar=False)
        model.set_attn_implementation(before)
        by_prompt = {tuple(result.prompt_ids): result.generated_tokens for result in out.values()}
        return [by_prompt[tuple(prompt)] for prompt in prompts]

    return work


def our_engine(model: Any, prompts: list[list[int]], new: int, **sockets: Any) -> Callable[[], Answers]:
    engine = Engine(model, pool_blocks(prompts, new), BLOCK, **sockets)

    def work() -> Answers:
        for prompt in prompts:
            engine.add_request(prompt, new, eos=())
        return [tokens for _, tokens in sorted(engine.run().items())]

    return work


def pool_blocks(prompts: Sequence[Sequence[int]], new: int) -> int:
    return sum(-(-(len(prompt) + new) // BLOCK) for prompt in prompts) + 8


# ---------------------------------------------------------------- prefix cache


def shared_prompt(model: Any, repeats: int) -> dict:
    """Time to first token and tokens computed: a long prompt cold, then another question behind the same prompt."""
    prompts = make_prompts(model.config.vocab_size, 2, LONG_PROMPT, QUESTION)
    cold, warm = [], []
    for _ in range(repeats):
        engine = Engine(model, 400, BLOCK, prefix_cache=PrefixCache, clock=time.process_time)
        for prompt, times in zip(prompts, (cold, warm), strict=True):
            request = engine.request(engine.add_request(prompt, 1, eos=()))
            engine.run()
            times.append(request.metrics.ttft)
    assert request.metrics.reused == LONG_PROMPT // BLOCK * BLOCK, "exactly the shared full blocks are reused"
    assert request.output == generate(model, prompts[1], 1)
    result = {
        "shared": LONG_PROMPT,
        "own": QUESTION,
        "cold_ttft_s": round(min(cold), 4),
        "warm_ttft_s": round(min(warm), 4),
        "ratio": round(min(cold) / min(warm), 1),
        "computed_cold": len(prompts[0]),
        "computed_warm": request.metrics.computed,
    }
    print("shared prompt:", result, flush=True)
    return result


# ---------------------------------------------------------------- overhead


def overhead(model: Any) -> dict:
    """A decode step of 8 requests: what everything but the model call costs."""
    prompts = make_prompts(model.config.vocab_size, 8, SHARED, OWN)
    engine = Engine(model, pool_blocks(prompts, 64), BLOCK, prefix_cache=PrefixCache, clock=time.process_time)
    for prompt in prompts:
        engine.add_request(prompt, 64, eos=())
    engine.run()
    steps = [event for event in engine.events if event.tokens == 8]
    step = statistics.median(event.seconds for event in steps)
    rest = statistics.median(event.seconds - event.model_seconds for event in steps)
    result = {"step_ms": round(step * 1e3, 3), "overhead_ms": round(rest * 1e3, 3), "share": round(rest / step, 4)}
    print("overhead of a decode step with 8 requests:", result, flush=True)
    return result


def step_cost() -> list[dict]:
    """Seconds of a decode step of 8 requests with a fake model, against finished and queued requests."""
    rows = []
    for finished, queued in ((0, 0), (1_000, 0), (20_000, 0), (0, 1_000), (0, 10_000), (0, 100_000)):
        engine = Engine(
            FakeModel(), 128, BLOCK, prefix_cache=PrefixCache, max_running=8, keep_events=50, clock=time.process_time
        )
        for _ in range(finished):
            engine.add_request([1, 2, 3], 1)
        engine.run()
        for index in range(8 + queued):
            engine.add_request([index % 97] * 100, 100)
        for _ in range(80):
            engine.step()
        steps = [event.seconds for event in engine.events]
        rows.append({"finished": finished, "queued": queued, "step_ms": round(statistics.median(steps) * 1e3, 3)})
        print("step cost:", rows[-1], flush=True)
    return rows


def make_prompts(vocab_size: int, count: int, shared: int, own: int) -> list[list[int]]:
    draw = random.Random(0)
    head = draw.choices(range(3, vocab_size), k=shared)
    return [head + draw.choices(range(3, vocab_size), k=own) for _ in range(count)]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
