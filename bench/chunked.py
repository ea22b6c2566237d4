"""Lesson 5 in figures: seconds of a check, what each rung of the ladder asks of memory, what chunks do to waiting.

    python bench/chunked.py         about a minute on one core; writes bench/results/chunked.json

What is compared runs in one process, in turns, and stands in the result as a ratio: neighbours on the machine slow both
sides. Counted sectors and waves are the same on every machine. Times of the engine are CPU seconds of the process.
"""

from __future__ import annotations

import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import torch

from autograde.sources import solution_namespace
from kvcourse.check.runner import run_task
from kvcourse.check.student import LocalStudent
from kvcourse.cuda import Kernel
from kvcourse.cuda.cpu.compilers import find_compiler
from kvcourse.engine import Engine
from kvcourse.engine.scheduler import schedule_whole
from kvcourse.models.random_llama import VOCAB, random_llama
from kvcourse.tasks import kernel_problems as problems
from kvcourse.tasks.api import tests_of
from kvcourse.tasks.course import Lesson, find_lesson
from kvcourse.tasks.kernel_kit import Problem, launch

HERE = Path(__file__).parent
OUT = HERE / "results" / "chunked.json"
EMPTY_KERNEL = "__global__ void nothing(float* x) { x[0] = 1.0f; }"
LONGEST_CHECK = 6.0  # seconds, asked for
CHUNKS = (32, 64, 128, 256, 512)  # tokens of a step
DECODES, DECODED, PROMPT = 4, 160, 64  # requests that are being answered, new tokens and prompt of each
LONG, ARRIVALS = 1000, (10, 45, 80, 115)  # tokens of a long prompt; one arrives when so many tokens are answered
ROUNDS = 3
BLOCK = 16


def main() -> None:
    torch.set_num_threads(1)
    lesson = find_lesson("chunked")
    names = solution_namespace(lesson)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["KVCOURSE_CACHE"] = cache  # nothing is compiled yet
        result: dict[str, Any] = {
            "machine": {"cpu": _processor(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "compiler": find_compiler().version,
            },
            "checks": checks(lesson, names),
            "ladder": ladder(names),
        }
    result["engine"] = engine(names["schedule_step"])
    result["goals"] = goals(result)
    OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


# ---------------------------------------------------------------- checks


def checks(lesson: Lesson, names: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each task's public check: with nothing of it compiled yet, and again. The runtime is there."""
    runtime = _seconds(lambda: Kernel(EMPTY_KERNEL, "nothing").check(1, 1, torch.zeros(1)))
    tests, rows = importlib.import_module("kvcourse.tasks.chunked"), {}
    for task in lesson.tasks:

        def check(task: Any = task) -> None:
            done = run_task(task, LocalStudent(names), [t for t in tests_of(tests, task.name) if not t.gpu])
            assert done.status == "passed", done

        rows[task.name] = {"cold_s": round(_seconds(check), 3), "warm_s": round(_seconds(check), 3)}
    return {"first_runtime_s": round(runtime, 3), "tasks": rows}


# ---------------------------------------------------------------- ladder


def ladder(names: dict[str, Any]) -> dict[str, Any]:
    """Counted requests to memory of every rung, and how many times more than the reference that is."""
    prefill, decode = names["chunked_prefill"].source, names["paged_decode"].source
    padding = "keys[COLUMNS][D + 1]"
    assert prefill.count(padding) == 1, "the reference pads its tile of keys"
    chunk = problems.chunked_prefill(Random(1), 32, 96, 4, 2)
    sequences = problems.paged_decode(Random(1), [128, 100, 57], 4, 2)
    return {
        "prefill": _rungs(
            chunk,
            {
                "untiled": (HERE / "ladder" / "prefill_untiled.cu").read_text(encoding="utf-8"),
                "tiled": prefill.replace(padding, "keys[COLUMNS][D]"),
                "tiled and padded": prefill,
            },
        ),
        "decode": _rungs(
            sequences,
            {
                "a token a thread": (HERE / "ladder" / "decode_token_a_thread.cu").read_text(encoding="utf-8"),
                "a token a warp": decode,
            },
        ),
    }


def _rungs(problem: Problem, sources: dict[str, str]) -> dict[str, Any]:
    """The last source is the reference."""
    rows: dict[str, dict[str, Any]] = {}
    for name, source in sources.items():
        counters = launch(SimpleNamespace(**{problem.kernel: source}), problem).counters
        rows[name] = {
            "load_sectors": counters.load_sectors,
            "of_least": round(counters.sectors / counters.least_sectors, 2),
            "waves": counters.waves,
            "least_waves": counters.least_waves,
        }
    last = list(rows.values())[-1]
    for row in rows.values():
        row["times_sectors"] = round(row["load_sectors"] / last["load_sectors"], 2)
        row["times_waves"] = round(row["waves"] / last["waves"], 2)
    return {"case": problem.words, "rungs": rows}


# ---------------------------------------------------------------- engine


def engine(schedule_step: Callable[..., Any]) -> dict[str, Any]:
    """Long prompts arrive while other requests are answered: whole prompts beside chunks of every size, in turns."""
    model = random_llama()
    draw = Random(0)
    short = [draw.choices(range(VOCAB), k=PROMPT) for _ in range(DECODES)]
    long = [draw.choices(range(VOCAB), k=LONG) for _ in ARRIVALS]
    settings: dict[str, dict[str, Any]] = {"whole prompts": {"scheduler": schedule_whole, "budget": 8192}}
    settings |= {f"chunks of {size}": {"scheduler": schedule_step, "budget": size} for size in CHUNKS}
    best: dict[str, dict[str, Any]] = {}
    answers: dict[str, list[list[int]]] = {}
    for _ in range(ROUNDS):
        for name, setting in settings.items():
            row, answers[name] = _serve(model, short, long, setting)
            if name not in best or row["seconds"] < best[name]["seconds"]:
                best[name] = row
    whole = best["whole prompts"]
    for row in best.values():
        for figure in ("tbt_p50_ms", "tbt_p99_ms", "ttft_long_ms"):
            row[f"{figure.removesuffix('_ms')}_of_whole"] = round(row[figure] / whole[figure], 3)
    same = all(answer == answers["whole prompts"] for answer in answers.values())
    case = f"{DECODES} requests of {PROMPT} + {DECODED} tokens, {len(ARRIVALS)} prompts of {LONG:,} tokens in between"
    return {"case": case, "model": "random", "same_tokens": same, "rows": best}


def _serve(
    model: Any, short: list[list[int]], long: list[list[int]], setting: dict[str, Any]
) -> tuple[dict[str, Any], list[list[int]]]:
    blocks = sum(-(-(len(prompt) + DECODED) // BLOCK) for prompt in [*short, *long]) + 8
    served = Engine(model, blocks, BLOCK, clock=time.process_time, **setting)
    began = time.process_time()
    first = [served.add_request(prompt, DECODED, eos=()) for prompt in short]
    later = []
    for prompt, arrival in zip(long, ARRIVALS, strict=True):
        while len(served.request(first[0]).output) < arrival:
            served.step()
        later.append(served.add_request(prompt, 8, eos=()))
    served.run()
    seconds = time.process_time() - began
    waits = [gap for number in first for gap in served.request(number).metrics.tbt]
    ttft = [served.request(number).metrics.ttft or 0.0 for number in later]
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    row = {
        "seconds": round(seconds, 3),
        "steps": served.metrics.steps,
        "tokens_computed": served.metrics.computed,
        "tbt_p50_ms": round(cuts[49] * 1e3, 2),
        "tbt_p99_ms": round(cuts[98] * 1e3, 2),
        "tbt_longest_ms": round(max(waits) * 1e3, 2),
        "ttft_long_ms": round(statistics.mean(ttft) * 1e3, 1),
    }
    return row, [served.request(number).output for number in [*first, *later]]


# ---------------------------------------------------------------- the rest


def goals(result: dict[str, Any]) -> dict[str, bool]:
    """The figures asked for, and whether this run meets them."""
    tasks, rungs, rows = result["checks"]["tasks"], result["ladder"], result["engine"]["rows"]
    computed = {row["tokens_computed"] for row in rows.values()}
    return {
        f"every public check under {LONGEST_CHECK:g} s": all(row["cold_s"] < LONGEST_CHECK for row in tasks.values()),
        "tiles save sectors": rungs["prefill"]["rungs"]["untiled"]["times_sectors"] > 4,
        "padding saves waves": rungs["prefill"]["rungs"]["tiled"]["times_waves"] > 4,
        "a token a warp saves sectors": rungs["decode"]["rungs"]["a token a thread"]["times_sectors"] > 4,
        "chunks give the same tokens": result["engine"]["same_tokens"],
        "chunks compute as many tokens as whole prompts": len(computed) == 1,
        "the smallest chunks: p99 below whole prompts": rows[f"chunks of {CHUNKS[0]}"]["tbt_p99_of_whole"] < 1,
    }


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
