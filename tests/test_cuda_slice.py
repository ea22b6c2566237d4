"""A part of a huge array as an argument: 64-bit index arithmetic passes, and what loses the upper bits is found."""

from __future__ import annotations

import re

import pytest
import torch

from kvcourse.cuda import Kernel, KernelError, LaunchError, Slice
from kvcourse.cuda.arguments import bind

START = 2**33
COPY = """template <typename T>
__global__ void copy(T* out, const T* in, INDEX begin, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  INDEX at = begin + i;
  if (i < n) out[at] = in[at];
}
"""
STRIDE = """__global__ void add_one(float* pool, const long long* slots, int width) {
  INDEX at = (INDEX)slots[blockIdx.x] * width + threadIdx.x;
  pool[at] += 1.0f;
}
"""


def copy(index: str, kind: str = "float") -> Kernel:
    return Kernel(COPY.replace("INDEX", index), "copy", kind)


def add_one(index: str) -> Kernel:
    return Kernel(STRIDE.replace("INDEX", index), "add_one")


@pytest.mark.parametrize(
    ("kind", "dtype"), [("float", torch.float32), ("__half", torch.float16), ("double", torch.float64)]
)
def test_indices_of_64_bits_reach_the_part_that_is_there(kind, dtype):
    source = "#include <cuda_fp16.h>\n" + COPY.replace("INDEX", "long long")
    values, kernel = torch.randn(100).to(dtype), Kernel(source, "copy", kind)
    for run in (kernel.launch, kernel.check):
        out = torch.full((100,), float("nan"), dtype=dtype)
        report = run(4, 32, Slice(out, START), Slice(values, START), START, 100)
        assert torch.equal(out, values)
        assert report is None or report


@pytest.mark.parametrize("index", ["int", "unsigned"])
def test_an_index_of_32_bits_is_out_of_bounds_with_its_line(index):
    pool, slots, width = torch.zeros(4, 64), torch.tensor([2**27 + 3, 2**27 + 1]), 64
    report = add_one(index).check(2, 64, Slice(pool, START), slots, width)
    (fault,) = report.faults
    assert (fault.kind, fault.line, fault.thread, fault.block) == ("out-of-bounds", 3, (0, 0, 0), (0, 0, 0))
    assert f"reads pool[192], but only pool[{START}] to pool[{START + 255}] are there." in fault.message
    assert pool.count_nonzero() == 0
    with pytest.raises(KernelError, match=re.escape("line 3: out of bounds")):
        add_one(index).launch(2, 64, Slice(pool, START), slots, width)
    good = add_one("long long").check(2, 64, Slice(pool, START), slots, width, orders=("forward", "reverse"))
    assert good and pool.sum(1).tolist() == [0, 64, 0, 64]


def test_a_negative_index_is_out_of_bounds_too():
    pool, slots = torch.zeros(64), torch.tensor([2**25 + 2**24])  # times 64: the bits of -2**30 in an int
    report = add_one("int").check(1, 64, Slice(pool, 3 * 2**30), slots, 64)
    assert report.faults[0].kind == "out-of-bounds" and f"pool[{-(2**30)}]" in report.faults[0].message


def test_elements_beside_the_part_are_out_of_bounds():
    out, values = torch.zeros(100), torch.zeros(100)
    for begin in (START - 1, START + 1):
        report = copy("long long").check(4, 32, Slice(out, START), Slice(values, START), begin, 100)
        wrong = START - 1 if begin < START else START + 100
        assert report.faults[0].kind == "out-of-bounds" and f"in[{wrong}]" in report.faults[0].message
    for begin in (START - 4096, START + 4096):
        with pytest.raises(KernelError, match="out of bounds"):
            copy("long long").launch(4, 32, Slice(out, START), Slice(values, START), begin, 100)


def test_two_parts_of_one_tensor_are_the_same_memory():
    base = torch.arange(256.0)
    report = copy("long long").check(1, 32, Slice(base[128:], START), base, 0, 32)
    assert report.faults[0].kind == "out-of-bounds" and report.faults[0].write
    source = "__global__ void k(float* a, float* b, long long at) { a[at] = 5.0f; b[at - 128] = a[at] + 1.0f; }"
    assert Kernel(source, "k").check(1, 1, Slice(base[128:], START), Slice(base, START - 128), START)
    assert base[128] == 5 and base[0] == 6 and base[127] == 127


def test_counted_sectors_are_those_of_the_tensor_alone():
    out, values = torch.zeros(128), torch.ones(128)
    plain = copy("long long").check(1, 128, out, values, 0, 128)
    part = copy("long long").check(1, 128, Slice(out, START), Slice(values, START), START, 128)
    assert plain.counters.as_dict() == part.counters.as_dict() and plain.counters.sectors == 32


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (Slice(torch.zeros(8), -512), ["out", "0 or more", "-512"]),
        (Slice(torch.zeros(8), 2.0**33), ["out", "whole number"]),
        (Slice(torch.zeros(8), True), ["out", "whole number"]),
        (Slice(torch.zeros(8), 100), ["out", "multiple of 512 bytes", "byte 400"]),
        (Slice(torch.zeros(8), 2**43), ["out", "at most"]),
        (Slice(torch.zeros(8, dtype=torch.float64), START), ["out is a float*", "float64"]),
        (Slice(torch.zeros(16)[::2], START), ["out is not contiguous"]),
        (Slice([0.0] * 8, START), ["out", "torch tensor", "list"]),
        (Slice(None, START), ["out", "torch tensor"]),
    ],
)
def test_a_wrong_part_is_one_sentence_before_anything_runs(out, words):
    for run in (copy("long long").launch, copy("long long").check):
        with pytest.raises(LaunchError) as error:
            run(1, 8, out, torch.zeros(8), 0, 8)
        assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)


def test_a_part_is_no_number():
    with pytest.raises(LaunchError, match="n is a int, got a Slice"):
        copy("long long").launch(1, 8, torch.zeros(8), torch.zeros(8), 0, Slice(torch.zeros(8), START))


def test_on_a_gpu_element_0_may_lie_below_all_memory():
    from kvcourse.cuda.gpu import _as_cuda

    class OnTheGpu(torch.Tensor):
        def data_ptr(self):
            return 0x7_0000_0000  # lower than the 32 GB that lie ahead

    tensor = torch.zeros(8).as_subclass(OnTheGpu)
    arguments = (Slice(tensor, START), torch.zeros(8), 0, 8)
    address = _as_cuda(bind(copy("long long").signature, arguments)[0])
    assert address.nbytes == 8 and (int(address) + 4 * START) % 2**64 == 0x7_0000_0000
