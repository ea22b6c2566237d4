"""Arguments become what the kernel's parameters declare, or one sentence says which does not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kvcourse.cuda import Kernel, LaunchError
from kvcourse.cuda.arguments import bind

SOURCE = """
#include <cuda_fp16.h>
extern "C" __global__ void k(double* out, signed char c, short s, int i, unsigned u, long long l, size_t z, float f,
                             double d, bool b, __half h) {
  out[0] = c; out[1] = s; out[2] = i; out[3] = u; out[4] = l;
  out[5] = z; out[6] = f; out[7] = d; out[8] = b; out[9] = (float)h;
}
extern "C" __global__ void copy(float* out, const float* in, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void sizes(int* out, int n, float f, int m) { out[0] = n; out[1] = f; out[2] = m; }
"""


def test_numbers_arrive_in_the_declared_type():
    out = torch.zeros(10, dtype=torch.float64)
    values = (-100, -30_000, -2_000_000_000, 4_000_000_000, -(2**60), 2**63, 0.1, 0.1, True, 1.5)
    Kernel(SOURCE, "k").launch(1, 1, out, *values)
    wanted = [float(v) for v in values]
    wanted[6] = float(np.float32(0.1))
    assert out.tolist() == wanted


def test_an_int_parameter_gets_four_bytes_whatever_python_holds():
    out = torch.zeros(3, dtype=torch.int32)
    Kernel(SOURCE, "sizes").launch(1, 1, out, np.int64(7), 3, True)
    assert out.tolist() == [7, 3, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((torch.zeros(4), torch.zeros(4)), ["takes 3 arguments", "out, in, n", "got 2"]),
        ((torch.zeros(4), torch.zeros(4), 4, 5), ["got 4"]),
        ((torch.zeros(4), 1.0, 4), ["in is a pointer", "float"]),
        ((torch.zeros(4), torch.zeros(4), torch.tensor(4)), ["n is a int", "tensor"]),
        ((torch.zeros(4), torch.zeros(4), 4.0), ["n is a int", "whole number"]),
        ((torch.zeros(4), torch.zeros(4), 2**31), ["cannot hold 2147483648"]),
        ((torch.zeros(4), torch.zeros(4), "4"), ["n is a int", "str"]),
        ((torch.zeros(4), torch.zeros(4, dtype=torch.float64), 4), ["in is a float*", "float64"]),
        ((torch.zeros(4), torch.zeros(4, dtype=torch.int32), 4), ["int32"]),
        ((torch.zeros(4, 4).T, torch.zeros(16), 4), ["out is not contiguous", "out.contiguous()"]),
        ((torch.zeros(4), torch.zeros(8)[::2], 4), ["in is not contiguous"]),
        ((torch.zeros(4), torch.zeros(4, device="meta"), 4), ["in is on the device meta", "cpu and cuda"]),
    ],
)
def test_what_does_not_fit_is_one_sentence_before_anything_runs(arguments, words):
    for run in (Kernel(SOURCE, "copy").launch, Kernel(SOURCE, "copy").check):
        with pytest.raises(LaunchError) as error:
            run(1, 4, *arguments)
        message = str(error.value)
        assert all(word in message for word in words), message
        assert "\n" not in message


def test_tensors_of_one_launch_are_on_one_device():
    class OnTheGpu(torch.Tensor):
        @property
        def device(self):
            return torch.device("cuda:0")

    with pytest.raises(LaunchError, match=r"one device; here out is on cpu and in is on cuda:0"):
        bind(Kernel(SOURCE, "copy").signature, (torch.zeros(4), torch.zeros(4).as_subclass(OnTheGpu), 4))


@pytest.mark.parametrize(
    ("parameter", "dtype"),
    [
        ("float", torch.float32), ("double", torch.float64), ("__half", torch.float16),
        ("__nv_bfloat16", torch.bfloat16),
        ("int", torch.int32), ("long long", torch.int64), ("short", torch.int16), ("signed char", torch.int8),
        ("unsigned char", torch.uint8), ("bool", torch.bool), ("unsigned", torch.int32), ("long", torch.int64),
    ],
)  # fmt: skip
def test_every_element_type_crosses_unchanged(parameter, dtype):
    source = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    source += f"__global__ void k({parameter}* out, const {parameter}* in) {{ out[threadIdx.x] = in[threadIdx.x]; }}"
    values = torch.randint(0, 2, (64,)).to(dtype) if dtype == torch.bool else (torch.randn(64) * 50).to(dtype)
    out = torch.zeros(64, dtype=dtype)
    assert Kernel(source, "k").check(1, 64, out, values)
    assert torch.equal(out, values)


def test_vector_pointers_take_tensors_of_their_elements():
    body = "char4 v = in[threadIdx.x]; out[threadIdx.x] = make_float4(v.x, v.y, v.z, v.w);"
    source = f"__global__ void k(float4* out, const char4* in) {{ {body} }}"
    values = torch.randint(-128, 127, (8, 4), dtype=torch.int8)
    out = torch.zeros(8, 4)
    assert Kernel(source, "k").check(1, 8, out, values)
    assert torch.equal(out, values.float())
    with pytest.raises(LaunchError, match="multiple of 4"):
        Kernel(source, "k").launch(1, 8, out, torch.zeros(30, dtype=torch.int8))


def test_none_is_a_null_pointer():
    source = "__global__ void k(const float* bias, float* out) { out[threadIdx.x] = bias ? 1.0f : 2.0f; }"
    out = torch.zeros(4)
    Kernel(source, "k").launch(1, 4, None, out)
    assert out.tolist() == [2.0] * 4


def test_views_are_changed_in_place_and_nothing_else():
    pool = torch.zeros(4, 8)
    Kernel(SOURCE, "copy").launch(1, 8, pool[2], torch.arange(8.0), 8)
    assert torch.equal(pool[2], torch.arange(8.0)) and pool.count_nonzero() == 7 and pool[[0, 1, 3]].sum() == 0


def test_overlapping_tensors_are_the_same_memory_for_the_kernel():
    source = "__global__ void k(float* a, float* b) { a[0] = 5.0f; b[0] = a[0] + 1.0f; }"
    base = torch.zeros(8)
    Kernel(source, "k").launch(1, 1, base[2:], base[:4])
    assert base.tolist() == [6, 0, 5, 0, 0, 0, 0, 0]


def test_neighbours_in_memory_are_told_apart():
    source = "__global__ void k(float* a, float* b) { a[threadIdx.x] = 1.0f; b[threadIdx.x] = 2.0f; }"
    pool = torch.zeros(2, 8)
    report = Kernel(source, "k").check(1, 8, pool[0], pool[1])
    assert report and pool.tolist() == [[1.0] * 8, [2.0] * 8]
    beyond = Kernel(source.replace("a[threadIdx.x]", "a[threadIdx.x + 8]"), "k").check(1, 8, pool[0], pool[1])
    assert beyond.faults[0].kind == "out-of-bounds" and "a[8]" in beyond.faults[0].message


def test_empty_tensors_may_be_handed_over():
    Kernel(SOURCE, "copy").launch(1, 4, torch.zeros(0), torch.zeros(0), 0)


def test_special_numbers_cross():
    out = torch.zeros(3, dtype=torch.int32)
    body = "out[0] = isnan(a); out[1] = isinf(b); out[2] = c < 0.0f;"
    source = f"__global__ void k(int* out, float a, float b, float c) {{ {body} }}"
    Kernel(source, "k").launch(1, 1, out, math.nan, math.inf, -math.inf)
    assert out.tolist() == [1, 1, 1]
