"""Every construct of CUDA C++ that the course may use compiles, runs clean, and gives the right numbers."""

from __future__ import annotations

import math

import pytest
import torch
from cuda_broken import kernel

from kvcourse.cuda import Kernel

FP16, BF16 = "#include <cuda_fp16.h>\n", "#include <cuda_bf16.h>\n"
CG = "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\nnamespace cg = cooperative_groups;\n"
I = torch.arange(32.0)  # noqa: E741


def body(text: str) -> str:
    return kernel(f"  int i = threadIdx.x;\n  {text}")


# name -> (source, template, what `out` of 32 floats holds afterwards)
CONSTRUCTS = {
    "template kernel": (
        "template <int N> __global__ void k(float* out) { out[threadIdx.x] = N; }",
        "3",
        torch.full((32,), 3.0),
    ),
    "template with type and default": (
        "template <class T, class U = float> __global__ void k(T* out) { out[threadIdx.x] = (T)(U)1.5; }",
        "float",
        torch.full((32,), 1.5),
    ),
    "dynamic shared memory at file level": (
        "extern __shared__ float s[];\n" + body("s[i] = i; __syncthreads(); out[i] = s[31 - i];"),
        None,
        31 - I,
    ),
    "dynamic shared memory as bytes": (
        body(
            "extern __shared__ __align__(16) unsigned char raw[]; float* s = "
            "reinterpret_cast<float*>(raw); s[i] = i; __syncthreads();"
            " out[i] = s[31 - i];"
        ),
        None,
        31 - I,
    ),
    "dynamic shared memory of a template's type": (
        "template <class T> __global__ void k(T* out) { extern __shared__ T s[]; int i = threadIdx.x; "
        "s[i] = i; __syncthreads(); out[i] = s[31 - i]; }",
        "float",
        31 - I,
    ),
    "dynamic shared memory of rows": (
        body("extern __shared__ float s[][8]; s[i / 8][i % 8] = i; __syncthreads(); out[i] = s[3 - i / 8][i % 8];"),
        None,
        (3 - I // 8) * 8 + I % 8,
    ),
    "launch bounds and restrict": (
        'extern "C" __global__ void __launch_bounds__(128, 2) k(float* __restrict__ out) { out[threadIdx.x] = 1; }',
        None,
        torch.ones(32),
    ),
    "constant memory": ("__constant__ float c[4] = {1, 2, 3, 4};\n" + body("out[i] = c[i & 3];"), None, I % 4 + 1),
    "table of constants": (
        "__device__ const float t[2] = {5, 6};\nconstexpr int two = 2;\n" + body("out[i] = t[i % two];"),
        None,
        5 + I % 2,
    ),
    "variable of the grid": (
        "__device__ int g;\n" + body("atomicAdd(&g, 1); __syncthreads(); out[i] = g;"),
        None,
        torch.full((32,), 32.0),
    ),
    "static variable in a function": (
        body("static int n; atomicAdd(&n, 2); __syncthreads(); out[i] = n;"),
        None,
        torch.full((32,), 64.0),
    ),
    "shared struct": (
        "struct S { float a; int b; };\n"
        + body("__shared__ S s[32]; s[i].a = i; s[i].b = 1; __syncthreads(); out[i] = s[31 - i].a + s[i].b;"),
        None,
        32 - I,
    ),
    "shared float4 in two dimensions": (
        body(
            "__shared__ float4 s[8][4]; s[i / 4][i % 4] = make_float4(i, 2, 3, 4); __syncthreads(); "
            "out[i] = s[0][i % 4].x + s[7][3].z;"
        ),
        None,
        I % 4 + 3,
    ),
    "class with device functions": (
        "struct P { float x; __device__ P(float a) : x(a) {} __device__ float twice() const { return 2 * x; } };\n"
        + body("P p(i); out[i] = p.twice();"),
        None,
        2 * I,
    ),
    "lambda, auto, constexpr": (
        body("auto f = [=](float x) { return x * 2; }; constexpr int n = 2; out[i] = f(n) + i;"),
        None,
        4 + I,
    ),
    "if constexpr and structured binding": (
        "struct P { int a, b; };\ntemplate <int N> __device__ int f() { if constexpr (N > 1) return "
        "1; else return 2; }\n" + body("P p{1, 2}; auto [x, y] = p; out[i] = f<2>() + x + y;"),
        None,
        torch.full((32,), 4.0),
    ),
    "switch, goto, do, break, continue": (
        body(
            "int n = 0; again: switch (n) { case 0: n = 2; goto again; default: break; } do { n++; if "
            "(n == 4) continue; } while (n < 6); out[i] = n;"
        ),
        None,
        torch.full((32,), 6.0),
    ),
    "recursion": (
        "__device__ int f(int n) { return n < 2 ? 1 : n * f(n - 1); }\n" + body("out[i] = f(5);"),
        None,
        torch.full((32,), 120.0),
    ),
    "operators on vectors": (
        "__device__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }\n"
        + body("float2 a = {1, 2}; a = a + make_float2(i, 1); out[i] = a.x + a.y;"),
        None,
        4 + I,
    ),
    "union and reinterpretation": (
        body(
            "union { float f; unsigned u; } v; v.f = 1.0f; out[i] = v.u == 0x3f800000u && __float_as_int(1.0f) == v.u;"
        ),
        None,
        torch.ones(32),
    ),
    "half arithmetic": (
        FP16
        + body("__half a = __float2half(1.5f), b = i; half c = a * b + a; out[i] = __half2float(c) + (float)(a < b);"),
        None,
        1.5 * I + 1.5 + (I > 1.5),
    ),
    "half2 arithmetic": (
        FP16
        + body(
            "half2 a = __halves2half2(1.5f, 2.0f); a = __hfma2(a, a, a); out[i] = __low2float(a) + __high2float(a);"
        ),
        None,
        torch.full((32,), 9.75),
    ),
    "half rounding": (FP16 + body("out[i] = (float)__float2half(i * 0.1f);"), None, (I * 0.1).half().float()),
    "bfloat16": (
        BF16 + body("__nv_bfloat16 a = __float2bfloat16(i * 0.1f); out[i] = __bfloat162float(a);"),
        None,
        (I * 0.1).bfloat16().float(),
    ),
    "eight halves in a uint4": (
        FP16
        + body(
            "__shared__ half h[32 * 8]; for (int n = 0; n < 8; n++) h[i * 8 + n] = i + n; uint4 v = "
            "*reinterpret_cast<const uint4*>(h + 8 * i);"
            " const half2* p = reinterpret_cast<const half2*>(&v); out[i] = __low2float(p[1]);"
        ),
        None,
        I + 2,
    ),
    "loads with a hint": (
        body(
            "out[i] = i; __syncthreads(); float a = __ldg(out + i), b = __ldcs(out + (i ^ 1));"
            " __syncthreads(); out[i] = a + b;"
        ),
        None,
        I + (I.int() ^ 1),
    ),
    "all shuffles": (
        body(
            "float v = i; v = __shfl_up_sync(~0u, v, 1) + __shfl_down_sync(~0u, v, 1) + "
            "__shfl_sync(~0u, v, 3) + __shfl_xor_sync(~0u, v, 1); out[i] = v;"
        ),
        None,
        (I - 1).clamp(min=0) + (I + 1).clamp(max=31) + 3 + (I.int() ^ 1),
    ),
    "shuffles in segments": (
        body("out[i] = __shfl_sync(~0u, (float)i, 1, 8) + __shfl_down_sync(~0u, (double)i, 2, 4);"),
        None,
        I // 8 * 8 + 1 + torch.where(I % 4 < 2, I + 2, I),
    ),
    "ballot, any, all, match, popc": (
        body(
            "unsigned b = __ballot_sync(~0u, i < 5); out[i] = __popc(b) + __any_sync(~0u, i == 3) + "
            "__all_sync(~0u, i < 32)"
            " + __popc(__match_any_sync(~0u, i & 1)) + __ffs(__activemask());"
        ),
        None,
        torch.full((32,), 24.0),
    ),
    "partial masks": (
        body("if (i < 8) { float v = __shfl_xor_sync(0xffu, (float)i, 1); out[i] = v; } else out[i] = -1;"),
        None,
        torch.where(I < 8, (I.int() ^ 1).float(), torch.tensor(-1.0)),
    ),
    "barriers that count": (
        body("out[i] = __syncthreads_count(i < 5) + __syncthreads_and(i < 32) + __syncthreads_or(i == 99);"),
        None,
        torch.full((32,), 6.0),
    ),
    "atomics on integers": (
        body(
            "__shared__ unsigned a[8]; if (i < 8) a[i] = 0; __syncthreads(); atomicAdd(a, 1u); "
            "atomicMax(a + 1, i); atomicOr(a + 2, 1u << i);"
            " atomicInc(a + 3, 9u); atomicExch(a + 4, 7u); atomicSub(a + 5, 1u); atomicXor(a + 6, 3u); __syncthreads();"
            " out[i] = a[0] + a[1] + (a[2] == ~0u) + a[3] + a[4] + (int)a[5] + a[6];"
        ),
        None,
        torch.full((32,), 32.0 + 31 + 1 + 2 + 7 - 32 + 0),
    ),
    "atomics on floats": (
        body(
            "__shared__ float s; if (i == 0) s = 0; __syncthreads(); atomicAdd(&s, (float)i); "
            "__syncthreads(); out[i] = s;"
        ),
        None,
        torch.full((32,), 496.0),
    ),
    "atomic maximum of floats by CAS": (
        body(
            "__shared__ int bits; if (i == 0) bits = __float_as_int(-1.0f); __syncthreads(); int seen "
            "= bits, was; do { was = seen;"
            " seen = atomicCAS(&bits, was, __float_as_int(fmaxf(__int_as_float(was), (float)i))); } "
            "while (seen != was); __syncthreads();"
            " out[i] = __int_as_float(bits);"
        ),
        None,
        torch.full((32,), 31.0),
    ),
    "volatile shared memory": (
        body("__shared__ volatile float s[32]; s[i] = i; __syncwarp(); out[i] = s[31 - i];"),
        None,
        31 - I,
    ),
    "INFINITY, NAN, FLT_MAX": (
        body("out[i] = isinf(-INFINITY) + isnan(NAN) + (FLT_MAX > 1e38f);"),
        None,
        torch.full((32,), 3.0),
    ),
    "fast and exact maths": (
        body(
            "float x = i * 0.1f; out[i] = sinf(x) + cosf(x) + tanhf(x) + erff(x) + rsqrtf(x + 1) + "
            "__expf(x) + exp2f(x) + log2f(x + 1) + __fdividef(x, 2)"
            " + fmaf(x, x, 1) + fabsf(-x) + floorf(x) + sqrt(x) + pow(x, 2.0f);"
        ),
        None,
        (
            lambda x: (
                x.sin()
                + x.cos()
                + x.tanh()
                + x.erf()
                + (x + 1).rsqrt()
                + x.exp()
                + x.exp2()
                + (x + 1).log2()
                + x / 2
                + x * x
                + 1
                + x
                + x.floor()
                + x.sqrt()
                + x * x
            )
        )(I * 0.1),
    ),
    "minimum and maximum of mixed types": (
        body("out[i] = max(1, 2) + min(3.0f, 4.0f) + fmaxf(1, 2) + max(i, 5) + min(threadIdx.x, 7);"),
        None,
        7 + I.clamp(min=5) + I.clamp(max=7),
    ),
    "integer intrinsics": (
        body(
            "out[i] = __clz(1) + __brev(1u << 31) + __dp4a(0x01020304, 0x01010101, 5) + "
            "__byte_perm(0x3210, 0, 0x4401) / 65536;"
        ),
        None,
        torch.full((32,), 31.0 + 1 + 15 + 0),
    ),
    "rounding to integers": (
        body(
            "out[i] = __float2int_rn(2.5f) + __float2int_rz(-2.7f) + (int)3.99f + __float2int_ru(1e20f) / 2147483647;"
        ),
        None,
        torch.full((32,), 2.0 - 2 + 3 + 1),
    ),
    "three dimensions": (
        'extern "C" __global__ void k(float* out) { out[threadIdx.x + 4 * threadIdx.y + 8 * '
        "threadIdx.z] = blockDim.y * 10 + gridDim.x; }",
        None,
        torch.full((32,), 21.0),
    ),
    "cooperative groups": (
        CG
        + body(
            "auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<8>(block); float v "
            "= 1; for (int n = 4; n; n /= 2) v += tile.shfl_xor(v, n);"
            " block.sync(); out[i] = v + cg::reduce(tile, 1.0f, cg::plus<float>()) + "
            "tile.thread_rank() + tile.meta_group_rank();"
        ),
        None,
        16 + I % 8 + I // 8,
    ),
    "printf": (body('if (i == 0) printf("%d %s\\n", i, "x"); out[i] = 1;'), None, torch.ones(32)),
    "assert": (body("assert(i < 32); out[i] = 1;"), None, torch.ones(32)),
    "memcpy and memset": (
        body(
            "__shared__ float s[32]; float mine = i; memcpy(s + i, &mine, 4); __syncthreads(); out[i] = s[31 - i];"
            " if (i == 0) memset(out, 0, 4);"
        ),
        None,
        torch.where(I == 0, torch.tensor(0.0), 31 - I),
    ),
    "clock and nanosleep": (
        body("long long t = clock64(); __nanosleep(10); out[i] = clock64() >= t;"),
        None,
        torch.ones(32),
    ),
    "structs taken and given by value": (
        "struct Part { float top, sum; };\n__device__ Part merge(Part a, Part b) { return "
        "{fmaxf(a.top, b.top), a.sum + b.sum}; }\n"
        + body(
            "__shared__ Part p[32]; p[i] = {(float)i, 1.0f}; __syncthreads(); for (int half = 16; "
            "half > 0; half /= 2) {"
            " if (i < half) p[i] = merge(p[i], p[i + half]); __syncthreads(); } out[i] = p[0].top + p[0].sum;"
        ),
        None,
        torch.full((32,), 63.0),
    ),
    "comment traps": (
        "// \" a quote, '\n/* __global__ void x() { asm } */\n" + body("out[i] = 1; /* \" */ // it's fine"),
        None,
        torch.ones(32),
    ),
}


@pytest.mark.parametrize("mode", ["check", pytest.param("fast", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_runs_and_is_right(name, mode):
    source, template, want = CONSTRUCTS[name]
    out = torch.full((32,), math.nan)
    k = Kernel(source, "k", template)
    block = (4, 2, 4) if name == "three dimensions" else 32
    if mode == "check":
        report = k.check(1, block, out, shared=2048)
        assert report and not report.notes, report
    else:
        k.launch(1, block, out, shared=2048)
    torch.testing.assert_close(out, want.float())


@pytest.mark.parametrize(
    "use",
    [
        "struct P { float a, b; };\n#define T P\n__device__ float f(P p) { return p.a; }",
        "#include <cuda_fp16.h>\n#define T half\n__device__ float f(half p) { return __half2float(p); }",
        "#include <cuda_fp16.h>\n#define T half2\n__device__ float f(half2 p) { return __low2float(p); }",
        "#define T float4\n__device__ float f(float4 p) { return p.x; }",
    ],
)
def test_what_is_taken_and_given_by_value_is_watched_too(use):
    """A struct in shared memory that goes straight into a call, or comes straight out of one."""
    right = (
        use
        + "\n__device__ T make() { T t{}; return t; }\n"
        + body("__shared__ T s[32];\n  s[i] = make();\n  __syncwarp();\n  out[i] = f(s[31 - i]);")
    )
    report = Kernel(right, "k").check(1, 32, torch.zeros(32))
    assert report and report.counters.shared_requests >= 2, report
    unset = Kernel(right.replace("s[i] = make();", ""), "k").check(1, 32, torch.zeros(32))
    assert [fault.kind for fault in unset.faults][:1] == ["unset"], unset
    race = Kernel(right.replace("__syncwarp();", ""), "k").check(1, 32, torch.zeros(32))
    assert "race" in [fault.kind for fault in race.faults], race


def test_tensor_cores_multiply_exactly():
    source = """
    #include <mma.h>
    #include <cuda_fp16.h>
    using namespace nvcuda;
    __global__ void k(const half* a, const half* b, float* c, int depth) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
      wmma::fill_fragment(sum, 0.0f);
      for (int at = 0; at < depth; at += 16) {
        wmma::load_matrix_sync(left, a + at, depth);
        wmma::load_matrix_sync(right, b + at, depth);
        wmma::mma_sync(sum, left, right, sum);
      }
      wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
    }"""
    a, b, c = torch.randint(-8, 8, (16, 64)).half(), torch.randint(-8, 8, (16, 64)).half(), torch.zeros(16, 16)
    assert Kernel(source, "k").check(1, 32, a, b, c, 64)
    assert torch.equal(c, a.float() @ b.float().T)


def test_every_half_and_bfloat_is_converted_as_torch_does():
    source = (
        FP16
        + BF16
        + kernel(
            "  int i = blockIdx.x * 256 + threadIdx.x;\n  h[i] = __float2half(x[i]);\n  b[i] = "
            "__float2bfloat16(x[i]);\n  back[i] = (float)all[i];",
            "const float* x, __half* h, __nv_bfloat16* b, const __half* all, float* back",
        )
    )
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16)
    x = (torch.randn(65536) * 10.0 ** torch.randint(-9, 7, (65536,))).float()
    h, b, back = torch.zeros(65536, dtype=torch.float16), torch.zeros(65536, dtype=torch.bfloat16), torch.zeros(65536)
    Kernel(source, "k").launch(256, 256, x, h, b, every, back)
    assert torch.equal(h, x.half()) and torch.equal(b, x.bfloat16())
    torch.testing.assert_close(back, every.float(), rtol=0, atol=0, equal_nan=True)
