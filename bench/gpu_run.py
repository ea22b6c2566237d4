"""The parts of bench/gpu.sh, one after the other, within the time that is left; one JSON, whatever happens.

agreement    every kernel on both runs, against torch
sanitizer    compute-sanitizer's verdict beside ours on every broken kernel
sectors      Nsight Compute's counters beside ours for the stride and transpose kernels
bandwidth    bytes a second of each kernel against a plain copy
lesson       the kernels of lesson 5: answers, speed against a copy and torch's attention, a model served by them
engine       a model's tokens through our kernels against Transformers' generate
tests        the tests that have a part for a GPU
"""

from __future__ import annotations

import argparse
import copy
import csv
import io
import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import cuda_cases  # noqa: E402
from cuda_broken import BROKEN, Pair  # noqa: E402

from bench.gpu_lesson import lesson  # noqa: E402
from bench.gpu_timing import best_seconds, launcher, on  # noqa: E402
from kvcourse.cuda import Kernel  # noqa: E402
from kvcourse.cuda.cpu.limits import Limits  # noqa: E402

RESULTS = Path(__file__).parent / "results"
SECONDS = 440.0
TOOLS = {
    "race": "racecheck",
    "same-value-writes": "racecheck",
    "unset": "initcheck",
    "barrier-diverged": "synccheck",
    "early-return": "synccheck",
    "warp-diverged": "synccheck",
    "warp-waits-forever": "synccheck",
    "outside-mask": "synccheck",
    "absent-lane": "synccheck",
}  # every other kind: memcheck
NOT_ON_A_GPU = ("time-limit", "stack-overflow")  # would hang the device, or need its settings changed
COUNTED = ("strided_copy", "transpose_naive", "transpose_tiled", "transpose_padded")
METRICS = {
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "load_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "store_sectors",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "waves",
}
TOLERANCE = {torch.float16: 1e-3, torch.float32: 1e-5}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dry-run", action="store_true", help="on the CPU: whatever needs a GPU is left out")
    options.add_argument("--out", type=Path, help="the JSON to write, by default bench/results/gpu.json")
    options.add_argument("--one", metavar="NAME", help="launch one kernel on the GPU and stop (for the other tools)")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    if chosen.one:
        launch_one(chosen.one)
        return
    device = "cpu" if chosen.dry_run else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("There is no GPU that torch can use here: bench/gpu.sh --dry-run does what a CPU allows.")
    out = chosen.out or RESULTS / ("gpu_dry_run.json" if chosen.dry_run else "gpu.json")
    started = time.monotonic()
    parts: dict[str, Callable[[str, float], Any]] = {
        "agreement": agreement,
        "bandwidth": bandwidth,
        "lesson": lesson,
        "engine": engine,
        "tests": tests,
        "sectors": sectors,
        "sanitizer": sanitizer,
    }
    result: dict[str, Any] = {"machine": machine(device), "seconds": {}}
    for name, part in parts.items():
        left = SECONDS - (time.monotonic() - started)
        before = time.monotonic()
        try:
            result[name] = part(device, left) if left > 10 else "no time left"
        except Exception as error:
            result[name] = f"failed: {type(error).__name__}: {error}"
        result["seconds"][name] = round(time.monotonic() - before, 1)
        print(f"{name}: {json.dumps(result[name])[:400]}")
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def machine(device: str) -> dict[str, Any]:
    about = {"python": platform.python_version(), "torch": torch.__version__, "cuda_of_torch": torch.version.cuda}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        about |= {"gpu": properties.name, "architecture": f"sm_{properties.major}{properties.minor}"}
        about["memory_gb"] = round(properties.total_memory / 1e9, 1)
    for tool in ("compute-sanitizer", "ncu"):
        about[tool] = _first_line([tool, "--version"])
    return about


def agreement(device: str, _left: float) -> dict[str, Any]:
    """The largest difference from torch on each run, and between the runs, relative to 1 + |value|."""
    rows = {}
    for name, case in cuda_cases.CASES.items():
        here, there = case.problem(), case.problem()
        kernel = case.kernel()
        report = kernel.check(here.grid, here.block, *here.arguments, shared=here.shared, empty=case.empty)
        arguments = on(device, there.arguments)
        kernel.launch(there.grid, there.block, *arguments, shared=there.shared)
        ours, theirs, between = 0.0, 0.0, 0.0
        for position, want in here.outputs.items():
            a, b = here.arguments[position], arguments[position].cpu()
            ours, theirs = max(ours, _difference(a, want)), max(theirs, _difference(b, want))
            between = max(between, _difference(a, b))
        limit = max(TOLERANCE.get(want.dtype, 0.0) for want in here.outputs.values())
        rows[name] = {"cpu": ours, "device": theirs, "between": between, "limit": limit, "checked": bool(report)}
        rows[name]["agrees"] = bool(report) and between <= limit
    return {"all_agree": all(row["agrees"] for row in rows.values()), "kernels": rows}


def bandwidth(device: str, _left: float) -> dict[str, Any]:
    """GB a second of each kernel, bytes as its arguments need them, against a copy by torch."""
    if device == "cpu":
        n, rounds = 1 << 16, 2
    else:
        n, rounds = 1 << 26, 20
    side = 1 << ((n.bit_length() - 1) // 2)
    problems = {
        "vector_add": (cuda_cases.vector_add(n), 3 * n * 4),
        "strided_copy": (cuda_cases.strided_copy(n // 8, 8), 2 * (n // 8) * 4),
        "transpose_naive": (cuda_cases.transpose(side, side), 2 * side * side * 4),
        "transpose_tiled": (cuda_cases.transpose(side, side), 2 * side * side * 4),
        "transpose_padded": (cuda_cases.transpose(side, side), 2 * side * side * 4),
    }
    a, b = torch.empty(n, device=device), torch.empty(n, device=device)
    copied = 2 * n * 4 / best_seconds(device, lambda: b.copy_(a), rounds) / 1e9
    rows: dict[str, Any] = {"copy": round(copied, 1)}
    for name, (problem, moved) in problems.items():
        kernel = cuda_cases.CASES[name].kernel()
        arguments = on(device, problem.arguments)
        run = launcher(device, kernel, problem.grid, problem.block, arguments, problem.shared)
        speed = moved / best_seconds(device, run, rounds) / 1e9
        rows[name] = {"gb_s": round(speed, 2), "of_copy": round(speed / copied, 3)}
    return rows


def engine(device: str, _left: float) -> dict[str, Any]:
    """Tokens of the random model, greedy, through plain attention and through our kernels."""
    from cuda_attention import KernelAttention
    from engine_helpers import generate, random_model, tokens

    from kvcourse.engine import Engine
    from kvcourse.engine.scheduler import schedule_chunked

    model = random_model()
    there = copy.deepcopy(model).to(device)
    count = 3 if device == "cpu" else 8
    prompts = [tokens(20 + 13 * i, seed=i) for i in range(count)]
    want = [generate(model, prompt, 8)[0] for prompt in prompts]
    rows = {}
    for name, attention in (("plain", None), ("kernels", KernelAttention(32, 16))):
        served = Engine(there, 128, 16, budget=48, scheduler=schedule_chunked, attention=attention)
        numbers = [served.add_request(prompt, 8) for prompt in prompts]
        while served.has_work:
            served.step()
        same = [served.request(number).output == tokens_ for number, tokens_ in zip(numbers, want, strict=True)]
        rows[name] = {"requests": len(same), "equal_to_generate": sum(same)}
    return rows


def tests(_device: str, left: float) -> dict[str, Any]:
    """The last line of pytest for the files that use a GPU where there is one."""
    files = [str(ROOT / "tests" / f"test_cuda_{name}.py") for name in ("gpu", "engine")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not runs_dry", *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=min(120.0, left - 5))
    return {"passed": done.returncode == 0, "summary": (done.stdout.strip().splitlines() or [done.stderr[-300:]])[-1]}


def sectors(device: str, left: float) -> dict[str, Any]:
    """Counters of Nsight Compute beside ours; "not available" with its own words where it may not count."""
    rows: dict[str, Any] = {}
    for name in COUNTED:
        counters = cuda_cases.CASES[name].check().counters.as_dict() | {"sectors": None}
        rows[name] = {"ours": {ours: counters[ours] for ours in METRICS.values()}}
    if device == "cpu" or shutil.which("ncu") is None:
        return {"ncu": "not available", "kernels": rows}
    for name in COUNTED:
        command = ["ncu", "--csv", "--metrics", ",".join(METRICS), *_one(name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(20, min(60, left / 5)))
        theirs = _ncu_values(done.stdout)
        rows[name] |= {"ncu": theirs or (done.stdout + done.stderr).strip()[-300:]}
        rows[name]["equal"] = theirs == rows[name]["ours"] if theirs else None
    return {"ncu": "ran", "kernels": rows}


def _ncu_values(text: str) -> dict[str, int]:
    start = text.find('"ID"')
    if start < 0:
        return {}
    values = {}
    for row in csv.DictReader(io.StringIO(text[start:])):
        name = METRICS.get(row.get("Metric Name", ""))
        if name:
            values[name] = int(float(row["Metric Value"].replace(",", "")))
    return values


def sanitizer(device: str, left: float) -> dict[str, Any]:
    """For every broken kernel, and the repaired one: what we say, what compute-sanitizer says."""
    pairs = [pair for pair in BROKEN if pair.kind not in NOT_ON_A_GPU]
    ours = {pair.name: {"wrong": _our_verdict(pair, True), "right": _our_verdict(pair, False)} for pair in pairs}
    if device == "cpu" or shutil.which("compute-sanitizer") is None:
        return {"compute-sanitizer": "not available", "kernels": {name: {"ours": row} for name, row in ours.items()}}
    jobs = [(pair, wrong) for pair in pairs for wrong in (True, False)]
    until = time.monotonic() + left - 20
    with ThreadPoolExecutor(6) as pool:  # starting torch takes most of the time
        verdicts = list(pool.map(lambda job: _their_verdict(*job, until), jobs))
    rows: dict[str, Any] = {
        name: {"ours": row, "tool": TOOLS.get(_kind(name), "memcheck")} for name, row in ours.items()
    }
    for (pair, wrong), verdict in zip(jobs, verdicts, strict=True):
        rows[pair.name]["theirs_wrong" if wrong else "theirs_right"] = verdict
    found = sum(row["theirs_wrong"].startswith("errors") for row in rows.values())
    return {"compute-sanitizer": "ran", "broken": len(rows), "found_by_them": found, "kernels": rows}


def _our_verdict(pair: Pair, wrong: bool) -> str:
    shared = pair.broken_shared if wrong and pair.broken_shared is not None else pair.shared
    kernel = Kernel(pair.wrong if wrong else pair.right, "k", limits=Limits(seconds=1.0))
    report = kernel.check(pair.grid, pair.block, *pair.arguments(), shared=shared, empty=pair.empty)
    return ", ".join(f.kind for f in (*report.faults, *report.notes)) or "clean"


def _their_verdict(pair: Pair, wrong: bool, until: float) -> str:
    seconds = until - time.monotonic()
    if seconds < 5:
        return "no time left"
    tool = TOOLS.get(pair.kind, "memcheck")
    command = ["compute-sanitizer", "--tool", tool, *_one(f"{pair.name}/{'wrong' if wrong else 'right'}")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=min(60.0, seconds))
    except subprocess.TimeoutExpired:
        return "hangs"
    text = done.stdout + done.stderr
    summary = [line.strip("= ") for line in text.splitlines() if "SUMMARY" in line]
    clean = bool(summary) and all(" 0 " in line for line in summary)
    return ("clean: " if clean else "errors: ") + "; ".join(summary)[:200]


def launch_one(name: str) -> None:
    """Launch a kernel of ours by its name, or a broken one as `name/wrong` or `name/right`."""
    torch.cuda.init()
    if "/" in name:
        which, kind = name.rsplit("/", 1)
        pair = next(pair for pair in BROKEN if pair.name == which)
        shared = pair.broken_shared if kind == "wrong" and pair.broken_shared is not None else pair.shared
        kernel = Kernel(pair.wrong if kind == "wrong" else pair.right, "k")
        kernel.launch(pair.grid, pair.block, *on("cuda", pair.arguments()), shared=shared)
        return
    case = cuda_cases.CASES[name]
    problem = case.problem()
    case.kernel().launch(problem.grid, problem.block, *on("cuda", problem.arguments), shared=problem.shared)


def _one(name: str) -> list[str]:
    # Without torch's cache every tensor is an allocation of its own, so that memcheck sees where it ends.
    return ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", sys.executable, "-P", __file__, "--one", name]


def _kind(name: str) -> str:
    return next(pair.kind for pair in BROKEN if pair.name == name)


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.double(), b.double()
    return float(((a - b).abs() / (1 + b.abs())).max())


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "not installed"
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    lines = [line for line in done.stdout.splitlines() if "ersion" in line]
    return lines[0].strip() if lines else "installed"


if __name__ == "__main__":
    main()
