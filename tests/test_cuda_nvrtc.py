"""NVIDIA's own compiler: our kernels compile for T4, A100 and H100, and both runs accept one language."""

from __future__ import annotations

import cuda_cases
import pytest
from cuda_broken import BROKEN, kernel

from kvcourse.cuda import CompileError, Kernel, LaunchError
from kvcourse.cuda.cpu.limits import Limits
from kvcourse.cuda.nvrtc import ARCHITECTURES, Resources, stop_server


@pytest.fixture(scope="module", autouse=True)
def nvrtc():
    try:
        Kernel(kernel("  out[0] = 1.0f;"), "k").compile_for("sm_75")
    except CompileError as error:
        if "is not there" not in str(error):
            raise
        pytest.skip(str(error))
    yield
    stop_server()


@pytest.mark.parametrize(
    "arch", [ARCHITECTURES[0], *(pytest.param(a, marks=pytest.mark.slow) for a in ARCHITECTURES[1:])]
)
@pytest.mark.parametrize("name", cuda_cases.CASES)
def test_every_kernel_compiles_for_every_gpu_without_spills(name, arch):
    resources = cuda_cases.CASES[name].kernel().compile_for(arch)
    assert 0 < resources.registers <= 255 and resources.spills == 0
    assert resources.shared <= 48 << 10


def test_resources_are_those_of_the_kernel_asked_for():
    source = kernel("  out[0] = 1.0f;") + "\n__global__ void big(float* out) { __shared__ float s[1000];"
    source += " s[threadIdx.x] = 1.0f; __syncthreads(); out[threadIdx.x] = s[999 - threadIdx.x]; }"
    assert Kernel(source, "big").compile_for("sm_75").shared == 4000
    assert isinstance(Kernel(source, "k").compile_for("sm_75"), Resources)
    assert Kernel(source, "k").compile_for("sm_75").shared == 0


def test_errors_name_the_lines_of_the_cell():
    with pytest.raises(CompileError, match=r'line 4: identifier "flot" is undefined'):
        Kernel(kernel("  out[0] = flot;"), "k", first_line=3).compile_for("sm_80")


def test_an_unknown_architecture_is_a_sentence():
    with pytest.raises(LaunchError, match="sm_75"):
        Kernel(kernel("  out[0] = 1.0f;"), "k").compile_for("T4")
    with pytest.raises(CompileError, match="does not know the architecture sm_20"):
        Kernel(kernel("  out[0] = 1.0f;"), "k").compile_for("sm_20")


def test_a_source_that_keeps_nvrtc_busy_is_stopped():
    bomb = (
        "template <int A, int B> struct F { static constexpr int v = F<A - 1, B>::v + F<A - 1, B + (1 << A)>::v; };\n"
    )
    bomb += "template <int B> struct F<0, B> { static constexpr int v = 1; };\n"
    with pytest.raises(CompileError, match=r"stopped|crashed"):
        Kernel(bomb + kernel("  out[0] = F<22, 0>::v;"), "k", limits=Limits(compile_seconds=3)).compile_for("sm_75")


# What only one of the two accepts, and why that is meant: the CPU run may refuse more, never less.
REFUSED_HERE_ONLY = ("new float[3]", "malloc(4)", "__attribute__((noinline))", "a##b", '#pragma GCC optimize("O3")')
AGREED = {
    "float x = INFINITY + NAN + FLT_MAX; out[0] = x;": True,
    "uint8_t x = 1; out[0] = x;": False,
    "out[0] = sqrt(2);": False,
    "out[0] = max(1.0f, 2);": False,
    "out[0] = max(1, 2u) + max(1.0, 2.0f) + min(threadIdx.x, 3);": True,
    "size_t n = 3; out[0] = min(n, 2);": False,
    "float4 v = float4(1, 2, 3, 4); out[0] = v.x;": None,  # the check build takes it
    "float4 v = {1, 2, 3}; float2 w{1, 2}; out[0] = v.x + w.y;": True,
    "float4 v = {1, 2, 3, 4}; v = v + v; out[0] = v.x;": False,
    "float a[n]; a[0] = 1; out[0] = a[0];": False,
    "atomicAdd(out, 1); out[1] = 2;": True,
    "atomicAdd((long long*)out, 1ll);": False,
    "atomicMax(out, 1.0f);": False,
    "__shared__ float s = 3;  out[0] = s;": False,
    "__half h; out[0] = 1;": False,
    "out[0] = std::max(1, 2);": False,
    "out[0] = ({ int a = 1; a; });": False,
    "throw 1;": False,
    "__nanosleep(5); out[0] = clock();": True,
    "int a = 3; float4 v = {a, 1, 2, 3}; out[0] = v.x;": True,
    "[[maybe_unused]] int a = 1; alignas(16) float b[4] = {1}; out[0] = b[0];": True,
    "out[0] = __reduce_add_sync(~0u, 1);": False,
    "out[0] = __float2int_rn(1.5f) + __popc(3u) + __dp4a(1, 2, 3) + __byte_perm(1, 2, 3) + umin(1, 2);": True,
}


@pytest.mark.parametrize("text", AGREED)
def test_both_runs_accept_the_same_language(text):
    source = kernel(f"  {text}", "float* out, int n")
    accepted = []
    for compile_it in (lambda k: k._cpu.program("check"), lambda k: k.compile_for("sm_75")):
        try:
            compile_it(Kernel(source, "k"))
            accepted.append(True)
        except CompileError:
            accepted.append(False)
    if AGREED[text] is not None:
        assert accepted == [AGREED[text]] * 2


@pytest.mark.slow
def test_nvrtc_accepts_the_broken_kernels_too():
    """They are wrong in ways that no compiler sees: so the check has to."""
    for pair in BROKEN:
        Kernel(pair.wrong, "k").compile_for("sm_75")


@pytest.mark.slow
def test_nvrtc_accepts_every_construct():
    from test_cuda_constructs import CONSTRUCTS

    for source, template, _ in CONSTRUCTS.values():
        Kernel(source, "k", template).compile_for("sm_75")
