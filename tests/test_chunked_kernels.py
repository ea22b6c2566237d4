"""The kernels of lesson 5: what wrong ones are told, what right ones compile to, and the engine that runs on them."""

from __future__ import annotations

import copy
import importlib
import random
import re
import shutil
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_helpers import assert_exact, generate, random_model, serve, tokens

from autograde.faults import Fault, load_faults
from autograde.sources import solution_namespace
from kvcourse.check.gpu import Gpu
from kvcourse.check.runner import PropertyResult, run_test
from kvcourse.check.student import LocalStudent
from kvcourse.cuda import Kernel
from kvcourse.cuda.errors import NoCompilerError
from kvcourse.cuda.nvrtc import ARCHITECTURES, stop_server
from kvcourse.engine import Engine
from kvcourse.engine.attention import GatherAttention
from kvcourse.models.load import load_model
from kvcourse.models.random_llama import random_llama
from kvcourse.tasks import api
from kvcourse.tasks import kernel_problems as problems
from kvcourse.tasks.course import UserError, find_lesson
from kvcourse.tasks.kernel_kit import Problem, fresh

NAMES = solution_namespace(find_lesson("chunked"))
solved = SimpleNamespace(**NAMES)
KERNEL_TASKS = ("chunked.3", "chunked.4", "chunked.5", "chunked.6")
FAULTS = [fault for fault in load_faults("chunked") if fault.task in KERNEL_TASKS]
PLACE = re.compile(r"line (\d+): .*thread \(\d+, \d+, \d+\) of block \(\d+, \d+, \d+\)")
HEAD_SIZES = (32, 64, 80, 96, 128)
DTYPES = {"float": torch.float32, "__half": torch.float16}


def properties(folder: str, hidden: bool) -> list[api.Test]:
    module = importlib.import_module(f"{folder}.chunked")
    return [test for task in KERNEL_TASKS for test in api.tests_of(module, task, hidden)]


@cache
def everything() -> dict[str, api.Test]:
    """The properties of the four tasks by name."""
    return {t.name: t for t in properties("kvcourse.tasks", False) + properties("autograde.hidden", True)}


def judged(test: api.Test, names: dict[str, Any], **more: Any) -> PropertyResult:
    fixtures = {"rng": random.Random(f"spring {test.name}"), "solution": solved}
    return run_test(test, LocalStudent(names), fixtures | more)


def told(fault: Fault) -> PropertyResult:
    """What the property that catches the fault says to a learner."""
    return judged(everything()[fault.caught_by], fault.plant(NAMES))


# --- wrong kernels


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.task} {fault.why}" for fault in FAULTS])
def test_a_wrong_kernel_is_told_where(fault):
    result = told(fault)
    assert result.status == "failed" and result.call and result.expected and result.got
    if result.because.startswith("on a GPU:"):
        assert PLACE.match(result.got) and result.tip


@pytest.mark.parametrize(
    ("task", "why", "title", "line"),
    [
        ("chunked.3", "axpy: no bounds check", "out of bounds", "out[i] = a * x[i] + y[i];"),
        ("chunked.3", "axpy: changes its input x", "write to a const input", "((float*)x)[i] = 0;"),
        ("chunked.3", "write_kv: writes padding", "out of bounds", "k_pool[to + i] = key[from + i];"),
        ("chunked.4", "does not divide by the total", "", ""),
        ("chunked.4", "no barrier before the merge", "race", "highs[w]"),
        ("chunked.4", "a barrier for the warp in place of the block", "race", "sums[warp]"),
        ("chunked.4", "the total of each warp is never written", "read before written", "totals[w]"),
        ("chunked.4", "the mask of the shuffle names half of the lanes", "lane outside the mask", "__shfl_xor_sync"),
        ("chunked.4", "32 bits for the index", "out of bounds", "k_pool[at + e * 32 + lane]"),
    ],
)
def test_the_words_for_a_mistake(task, why, title, line):
    fault = next(fault for fault in FAULTS if (fault.task, fault.why) == (task, why))
    result = told(fault)
    assert result.status == "failed"
    if not title:  # no fault that a watched launch sees: the wrong number is named
        assert re.match(r"-?[\d.]+ for sequence 0, head 0 .*, number 0$", result.expected)
        return
    place = PLACE.match(result.got)
    assert place and title in result.got and line in result.got
    planted = fault.plant(NAMES)
    source = next(planted[name] for name in ("axpy", "write_kv", "paged_decode") if isinstance(planted[name], str))
    assert line in source.splitlines()[int(place.group(1)) - 1]


# --- on a GPU: the CPU stands in for it here


@pytest.mark.slow
@pytest.mark.parametrize("name", [test.name for test in everything().values() if test.gpu])
def test_gpu_properties_hold_for_the_solution(name):
    assert judged(everything()[name], NAMES, gpu=Gpu("cpu")).status == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("name", [test.name for test in everything().values() if test.gpu])
def test_gpu_properties_fail_for_a_kernel_that_does_nothing(name):
    idle = {n: re.sub(r"// BEGIN.*// END SOLUTION", "", kernel.source, flags=re.S) for n, kernel in kernels().items()}
    assert judged(everything()[name], idle, gpu=Gpu("cpu")).status == "failed"


def kernels() -> dict[str, Kernel]:
    return {name: value for name, value in NAMES.items() if isinstance(value, Kernel)}


# --- NVIDIA's compiler


@pytest.fixture(scope="module")
def nvrtc():
    try:
        solved.axpy.compile_for("sm_75")
    except NoCompilerError as error:
        pytest.skip(str(error))
    yield
    stop_server()


def instances() -> list[tuple[str, str | None]]:
    """Every kernel with every type and head size that the lesson allows."""
    found: list[tuple[str, str | None]] = []
    for name, kernel in kernels().items():
        if kernel.template is None:
            found.append((name, None))
        elif "," in kernel.template:
            found += [(name, f"{dtype}, {head_dim}") for dtype in DTYPES for head_dim in HEAD_SIZES]
        else:
            found += [(name, dtype) for dtype in DTYPES]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("name", "template"), instances())
def test_the_solution_compiles_for_every_gpu_without_spills(nvrtc, name, template, arch):
    resources = Kernel(kernels()[name].source, name, template).compile_for(arch)
    assert 0 < resources.registers <= 255 and resources.spills == 0
    assert resources.shared <= 48 << 10


# --- two compilers for the CPU


def cases() -> dict[str, Problem]:
    rng, half = random.Random(5), torch.float16
    return {
        "axpy": problems.axpy(rng, 300),
        "write_kv": problems.write_kv(rng, 4, 3, 80, dtype=half),
        "paged_decode": problems.paged_decode(rng, [37, 5, 1], head_dim=80),
        "paged_decode half": problems.paged_decode(rng, [37, 5, 1], dtype=half),
        "chunked_prefill": problems.chunked_prefill(rng, 11, 9),
        "paged_decode_int8": problems.paged_decode_int8(rng, [37, 5], 16),
        "merge_splits": problems.merge_splits(rng, 2, 3),
    }


@pytest.mark.parametrize("case", cases())
def test_compilers_count_alike(case, monkeypatch):
    if shutil.which("clang++") is None or shutil.which("g++") is None:
        pytest.skip("this test needs both g++ and clang++")
    problem, found = cases()[case], []
    for compiler in ("g++", "clang++"):
        monkeypatch.setenv("CXX", compiler)
        kernel = Kernel(kernels()[problem.kernel].source, problem.kernel, problem.template)
        report = kernel.check(problem.grid, problem.block, *fresh(problem.arguments).values(), empty=problem.empty)
        assert report, report
        lines = [(c.line, c.kind, c.shared, c.bytes_each, c.requests, c.sectors, c.waves) for c in report.lines]
        found.append((report.counters.as_dict(), lines))
    assert found[0] == found[1]


# --- the engine


@cache
def small_model():
    """Two layers; 8 heads of 32 share 2 KV heads."""
    return random_llama(3, num_hidden_layers=2)


def prompts() -> list[list[int]]:
    """A shared prefix, one token, a block-aligned length, and a prompt that is another one's prefix."""
    shared = tokens(20, seed=4)
    return [shared + tokens(17, seed=5), [7], tokens(16, seed=6), shared, shared + tokens(3, seed=7)]


def engine_of(model, chunk: int, **more: Any) -> Engine:
    """Room for a chunk and for the decodes beside it."""
    scheduler = partial(solved.schedule_step, longest=chunk)
    return Engine(model, num_blocks=48, block_size=16, budget=chunk + 4, scheduler=scheduler, **more)


def late(engine: Engine, first: list[list[int]], then: list[list[int]], count: int) -> list:
    """`first` decode already when `then` arrive: prompts and decodes share steps."""
    ids = [engine.add_request(prompt, count) for prompt in first]
    while not all(engine.request(i).output for i in ids):
        engine.step()
    ids += [engine.add_request(prompt, count) for prompt in then]
    while engine.has_work:
        engine.step()
        engine.check()
    return [engine.request(i) for i in ids]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 7, 16])
@pytest.mark.parametrize("cache", ["no cache", "the cache of lesson 2"])
def test_tokens_through_the_kernels_equal_generate(chunk, cache):
    prefix = solution_namespace(find_lesson("prefix"))["PrefixCache"]
    more = {"prefix_cache": prefix} if cache != "no cache" else {}
    engine = engine_of(small_model(), chunk, attention=solved.KernelAttention(32), **more)
    requests = serve(engine, prompts(), 5)
    assert_exact(small_model(), requests, 5)
    if more:  # the first ones have left their blocks behind
        engine.events.clear()
        assert_exact(small_model(), serve(engine, prompts()[:1], 5), 5)
        assert [tokens for event in engine.events for _, _, tokens in event.found] == [32]


def test_prompts_and_decodes_share_steps():
    engine = engine_of(small_model(), 7, attention=solved.KernelAttention(32))
    requests = late(engine, prompts()[1:2], prompts()[:1], 8)
    sizes = [{count for _, _, count in event.rows} for event in engine.events]
    assert any(1 in counts and len(counts) > 1 for counts in sizes)
    for request in requests:
        want, _ = generate(small_model(), request.tokens[: request.num_prompt], 8)
        assert request.error is None and request.output == want


@pytest.mark.slow
def test_half_precision_through_the_kernels():
    """Chunks of 6: the last token of the first prompt is computed alone, by the kernel for decodes, the others not."""
    model = copy.deepcopy(small_model()).half()
    found = []
    for attention in (solved.KernelAttention(32, "__half"), GatherAttention()):
        found.append(serve(engine_of(model, 6, attention=attention), prompts(), 1))
    for mine, plain in zip(*found, strict=True):
        assert mine.error is None and plain.error is None
        assert (mine.first_logits - plain.first_logits).abs().max() < 0.05
        assert plain.first_logits.max() - plain.first_logits[mine.output[0]] < 0.05


@pytest.mark.slow
def test_the_four_layer_model_through_the_kernels():
    engine = engine_of(random_model(), 16, attention=solved.KernelAttention(32))
    assert_exact(random_model(), serve(engine, prompts()[:3], 4), 4)


@pytest.mark.slow
def test_the_real_model_through_the_kernels():
    """30 layers, 9 heads on 3 KV heads of 64: prompts in chunks of 7, the tokens are those of generate()."""
    try:
        real = load_model("smollm2")
    except UserError as absent:
        pytest.skip(str(absent))
    asked = [
        real.tokenizer.encode(text) for text in ("The capital of France is", "Once upon a time there was a dog who")
    ]
    engine = engine_of(real.model, 7, attention=solved.KernelAttention(64))
    for request, prompt in zip(serve(engine, asked, 5), asked, strict=True):
        assert request.error is None and request.output == generate(real.model, prompt, 5)[0]
