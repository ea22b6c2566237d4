"""Kernels with one mistake each, and the same kernels without it, with the report that each mistake must cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Pair:
    """`right` is the sound source; `good` in it is replaced by `bad` to break it. Lines count from 1."""

    name: str
    kind: str
    right: str
    good: str
    bad: str
    line: int  # that the report must name
    arguments: Callable[[], list[Any]]
    grid: int | tuple[int, ...] = 1
    block: int | tuple[int, ...] = 32
    shared: int = 0
    broken_shared: int | None = None
    broken_arguments: Callable[[], list[Any]] | None = None
    empty: tuple[str, ...] = ()
    other_line: int | None = None
    note: bool = False
    says: tuple[str, ...] = field(default=())  # words of the message

    @property
    def wrong(self) -> str:
        assert self.good in self.right or not self.good, self.name
        return self.right.replace(self.good, self.bad, 1) if self.good else self.right


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + 1


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


def kernel(body: str, parameters: str = "float* out") -> str:
    """A kernel `k` whose body begins on line 2."""
    return f'extern "C" __global__ void k({parameters}) {{\n{body}\n}}'


SUM = kernel(
    """  __shared__ float part[64];
  part[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = part[0];""",
    "const float* in, float* out",
)
LAST_BLOCK = kernel(
    """  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = blockIdx.x + 1.0f;
    __threadfence();
    last = atomicAdd(count, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float sum = 0.0f;
    for (int b = 0; b < gridDim.x; b++) sum += parts[b];
    *out = sum;
  }""",
    "float* parts, float* out, unsigned* count",
)

BROKEN = [
    Pair(
        "no bounds check",
        "out-of-bounds",
        kernel(
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) out[i] = in[i];",
            "const float* in, float* out, int n",
        ),
        "if (i < n) ",
        "",
        3,
        lambda: [numbers(100), zeros(100), 100],
        grid=4,
        says=("reads in[100]", "100 elements"),
    ),
    Pair(
        "negative index",
        "out-of-bounds",
        kernel("  int i = threadIdx.x;\n  out[i] = i > 0 ? in[i - 1] : 0.0f;", "const float* in, float* out"),
        "i > 0 ? in[i - 1] : 0.0f",
        "in[i - 1]",
        3,
        lambda: [numbers(32), zeros(32)],
        says=("in[-1]",),
    ),
    Pair(
        "write beyond a shared array",
        "out-of-bounds",
        kernel(
            "  __shared__ float tile[33];\n  float* next = tile + 1;\n  next[threadIdx.x] = 1.0f;\n  __syncthreads();\n"
            "  out[threadIdx.x] = next[threadIdx.x];"
        ),
        "tile[33]",
        "tile[32]",
        4,
        lambda: [zeros(32)],
        says=("tile[32]", "32 elements"),
    ),
    Pair(
        "too little dynamic shared memory",
        "out-of-bounds",
        kernel(
            "  extern __shared__ float s[];\n  s[threadIdx.x] = 1.0f;\n  __syncthreads();\n  "
            "out[threadIdx.x] = s[31 - threadIdx.x];"
        ),
        "",
        "",
        3,
        lambda: [zeros(32)],
        shared=128,
        broken_shared=64,
        says=("byte 64", "shared=64"),
    ),
    Pair(
        "index beyond a shared array",
        "array-index",
        kernel(
            "  __shared__ float tile[4][8];\n  int i = threadIdx.x;\n  tile[i / 8][i % 8] = i;\n  __syncthreads();\n"
            "  out[i] = tile[3 - i / 8][i % 8];"
        ),
        "i % 8] = i",
        "i % 8 + 1] = i",
        4,
        lambda: [zeros(32)],
        says=("index 8", "float[8]"),
    ),
    Pair(
        "index beyond a local array",
        "array-index",
        kernel(
            "  float a[4];\n  for (int i = 0; i < n; i++) a[i] = i;\n  out[threadIdx.x] = a[n - 1];",
            "float* out, int n",
        ),
        "i < n",
        "i <= n",
        3,
        lambda: [zeros(32), 4],
        says=("index 4",),
    ),
    Pair(
        "missing barrier after the load",
        "race",
        SUM,
        "  __syncthreads();\n  for",
        "  \n  for",
        6,
        lambda: [numbers(64), zeros(1)],
        block=64,
        other_line=3,
        says=("part[",),
    ),
    Pair(
        "missing barrier in the loop",
        "race",
        SUM,
        "    __syncthreads();\n  }",
        "    \n  }",
        6,
        lambda: [numbers(64), zeros(1)],
        block=64,
        other_line=6,
    ),
    Pair(
        "missing barrier before the tile is used again",
        "race",
        kernel(
            "  __shared__ float tile[64];\n  float sum = 0.0f;\n  for (int t = 0; t < 4; t++) {\n    "
            "tile[threadIdx.x] = in[t * 64 + threadIdx.x];\n"
            "    __syncthreads();\n    sum += tile[63 - threadIdx.x];\n    __syncthreads();\n  }\n  "
            "out[threadIdx.x] = sum;",
            "const float* in, float* out",
        ),
        "    __syncthreads();\n  }",
        "    \n  }",
        5,
        lambda: [numbers(256), zeros(64)],
        block=64,
        other_line=7,
    ),
    Pair(
        "missing __syncwarp",
        "race",
        kernel(
            "  __shared__ float s[32];\n  s[threadIdx.x] = in[threadIdx.x];\n  __syncwarp();\n  "
            "out[threadIdx.x] = s[31 - threadIdx.x];",
            "const float* in, float* out",
        ),
        "__syncwarp();",
        "",
        5,
        lambda: [numbers(32), zeros(32)],
        other_line=3,
    ),
    Pair(
        "__syncwarp where the block must meet",
        "race",
        kernel(
            "  __shared__ float s[64];\n  s[threadIdx.x] = in[threadIdx.x];\n  __syncthreads();\n  "
            "out[threadIdx.x] = s[63 - threadIdx.x];",
            "const float* in, float* out",
        ),
        "__syncthreads",
        "__syncwarp",
        5,
        lambda: [numbers(64), zeros(64)],
        block=64,
        other_line=3,
    ),
    Pair(
        "__syncwarp of the wrong half",
        "race",
        kernel(
            "  __shared__ float s[32];\n  s[threadIdx.x] = in[threadIdx.x];\n"
            "  __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);\n  out[threadIdx.x] = s[threadIdx.x ^ 1];",
            "const float* in, float* out",
        ),
        "threadIdx.x ^ 1",
        "threadIdx.x ^ 16",
        5,
        lambda: [numbers(32), zeros(32)],
        other_line=3,
    ),
    Pair(
        "a shuffle taken for a barrier",
        "race",
        kernel(
            "  __shared__ float s[32];\n  s[threadIdx.x] = in[threadIdx.x];\n  float v = "
            "__shfl_xor_sync(0xffffffffu, in[threadIdx.x], 1);\n"
            "  __syncwarp();\n  out[threadIdx.x] = s[threadIdx.x ^ 1] - v;",
            "const float* in, float* out",
        ),
        "  __syncwarp();\n",
        "\n",
        6,
        lambda: [numbers(32), zeros(32)],
        other_line=3,
    ),
    Pair(
        "sum without an atomic",
        "race",
        kernel("  atomicAdd(out, in[blockIdx.x * 32 + threadIdx.x]);", "const float* in, float* out"),
        "atomicAdd(out, in[blockIdx.x * 32 + threadIdx.x]);",
        "*out += in[blockIdx.x * 32 + threadIdx.x];",
        2,
        lambda: [numbers(128), zeros(1)],
        grid=4,
    ),
    Pair(
        "one block reads what another writes",
        "race",
        kernel("  int i = blockIdx.x * 32 + threadIdx.x;\n  out[i] = in[(i + 32) % 64];", "float* in, float* out"),
        "out[i] =",
        "in[i] = out[i] =",
        3,
        lambda: [numbers(64), zeros(64)],
        grid=2,
    ),
    Pair(
        "counter read while others add to it",
        "race",
        kernel(
            "  __shared__ int n;\n  if (threadIdx.x == 0) n = 0;\n  __syncthreads();\n  atomicAdd(&n, "
            "1);\n  __syncthreads();\n  out[threadIdx.x] = n;"
        ),
        "  __syncthreads();\n  out",
        "  \n  out",
        7,
        lambda: [zeros(64)],
        block=64,
        other_line=5,
    ),
    Pair(
        "last block without __threadfence",
        "race",
        LAST_BLOCK,
        "    __threadfence();\n",
        "\n",
        11,
        lambda: [zeros(8), zeros(1), zeros(1, dtype=torch.int32)],
        grid=8,
        other_line=4,
        says=("parts[",),
    ),
    Pair(
        "fence only for the block",
        "race",
        LAST_BLOCK,
        "__threadfence()",
        "__threadfence_block()",
        11,
        lambda: [zeros(8), zeros(1), zeros(1, dtype=torch.int32)],
        grid=8,
        other_line=4,
    ),
    Pair(
        "all threads write one value",
        "same-value-writes",
        kernel("  __shared__ int n;\n  if (threadIdx.x == 0) n = 7;\n  __syncthreads();\n  out[threadIdx.x] = n;"),
        "if (threadIdx.x == 0) n = 7",
        "n = 7",
        3,
        lambda: [zeros(64)],
        block=64,
        note=True,
        other_line=3,
    ),
    Pair(
        "shared memory read before it was written",
        "unset",
        kernel(
            "  __shared__ float s[64];\n  s[threadIdx.x] = 1.0f;\n  s[threadIdx.x + 32] = 0.0f;\n  __syncthreads();\n"
            "  out[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 32];"
        ),
        "  s[threadIdx.x + 32] = 0.0f;",
        "",
        6,
        lambda: [zeros(32)],
        says=("s[32]",),
    ),
    Pair(
        "output read before it was written",
        "unset",
        kernel("  out[threadIdx.x] = 0.0f;\n  out[threadIdx.x] += 1.0f;"),
        "out[threadIdx.x] = 0.0f;",
        "",
        3,
        lambda: [zeros(32)],
        empty=("out",),
        says=("out[0]",),
    ),
    Pair(
        "barriers in both branches",
        "barrier-diverged",
        kernel("  if (threadIdx.x < 16) out[threadIdx.x] = 1.0f;\n  else out[threadIdx.x] = 2.0f;\n  __syncthreads();"),
        "= 1.0f;\n  else out[threadIdx.x] = 2.0f;\n  __syncthreads();",
        "= 1.0f, __syncthreads();\n  else __syncthreads();",
        3,
        lambda: [zeros(32)],
        other_line=2,
    ),
    Pair(
        "barrier in one branch",
        "warp-waits-forever",
        kernel(
            "  float v = threadIdx.x;\n  __syncthreads();\n  v += __shfl_xor_sync(0xffffffffu, v, "
            "1);\n  out[threadIdx.x] = v;"
        ),
        "__syncthreads();",
        "if (threadIdx.x < 16) __syncthreads();",
        4,
        lambda: [zeros(32)],
        other_line=3,
    ),
    Pair(
        "barrier after a return",
        "early-return",
        kernel(
            "  __shared__ float s[32];\n  if (threadIdx.x < n) s[threadIdx.x] = 1.0f;\n  "
            "__syncthreads();\n  if (threadIdx.x < n) out[threadIdx.x] = s[0];",
            "float* out, int n",
        ),
        "if (threadIdx.x < n) s[threadIdx.x] = 1.0f;",
        "if (threadIdx.x >= n) return;\n  s[threadIdx.x] = 1.0f;",
        5,
        lambda: [zeros(32), 20],
        note=True,
        says=("12 threads",),
    ),
    Pair(
        "shuffle in a branch",
        "warp-waits-forever",
        kernel(
            "  float v = threadIdx.x;\n  float w = __shfl_down_sync(0xffffffffu, v, 8);\n  "
            "__syncthreads();\n  out[threadIdx.x] = v + w;"
        ),
        "float w = ",
        "float w = 0.0f;\n  if (threadIdx.x < 16) w = ",
        4,
        lambda: [zeros(32)],
        other_line=5,
    ),
    Pair(
        "shuffles in both branches",
        "warp-diverged",
        kernel("  float v = threadIdx.x;\n  v += __shfl_xor_sync(0xffffffffu, v, 1);\n  out[threadIdx.x] = v;"),
        "v += __shfl_xor_sync(0xffffffffu, v, 1);",
        "if (v < 16.0f) v += __shfl_xor_sync(0xffffffffu, v, 1);\n  else v -= __shfl_xor_sync(0xffffffffu, v, 1);",
        4,
        lambda: [zeros(32)],
        other_line=3,
    ),
    Pair(
        "shuffle from a lane that has returned",
        "absent-lane",
        kernel(
            "  float v = __shfl_down_sync(0xffffffffu, 1.0f, 1);\n  if (threadIdx.x >= 20) return;\n  "
            "out[threadIdx.x] = v;"
        ),
        "float v = __shfl_down_sync(0xffffffffu, 1.0f, 1);\n  if (threadIdx.x >= 20) return;",
        "if (threadIdx.x >= 20) return;\n  float v = __shfl_down_sync(0xffffffffu, 1.0f, 1);",
        3,
        lambda: [zeros(32)],
        says=("lane 20",),
    ),
    Pair(
        "lane outside its own mask",
        "outside-mask",
        kernel("  float v = 1.0f;\n  v += __shfl_xor_sync(0xffffffffu, v, 1);\n  out[threadIdx.x] = v;"),
        "0xffffffffu",
        "0x0000ffffu",
        3,
        lambda: [zeros(32)],
        says=("0xffff",),
    ),
    Pair(
        "misaligned float4",
        "misaligned",
        kernel(
            "  float4 v = *(const float4*)(in + 4 * threadIdx.x);\n  out[threadIdx.x] = v.x;",
            "const float* in, float* out",
        ),
        "in + 4 * threadIdx.x",
        "in + 4 * threadIdx.x + 1",
        2,
        lambda: [numbers(132), zeros(32)],
        says=("16 bytes at byte 4",),
    ),
    Pair(
        "null pointer",
        "null-pointer",
        kernel("  out[threadIdx.x] = bias ? bias[threadIdx.x] : 0.0f;", "const float* bias, float* out"),
        "bias ? bias[threadIdx.x] : 0.0f",
        "bias[threadIdx.x]",
        2,
        lambda: [None, zeros(32)],
    ),
    Pair(
        "invalid address",
        "wild-pointer",
        kernel(
            "  const float* p = (const float*)address;\n  out[threadIdx.x] = n > 0 ? p[threadIdx.x] : 0.0f;",
            "float* out, long long address, int n",
        ),
        "n > 0 ? p[threadIdx.x] : 0.0f",
        "p[threadIdx.x]",
        3,
        lambda: [zeros(32), 0x123456789000, 0],
    ),
    Pair(
        "write to a const input",
        "read-only",
        kernel("  ((float*)out)[threadIdx.x] = in[threadIdx.x];", "const float* in, float* out"),
        "((float*)out)",
        "((float*)in)",
        2,
        lambda: [numbers(32), zeros(32)],
        says=("in is const",),
    ),
    Pair(
        "pointer to another thread's variable",
        "foreign-local",
        kernel(
            "  __shared__ float* where;\n  __shared__ float value;\n  float mine = threadIdx.x;\n  if "
            "(threadIdx.x == 3) where = &mine, value = mine;\n"
            "  __syncthreads();\n  out[threadIdx.x] = value;"
        ),
        "= value;",
        "= *where;",
        7,
        lambda: [zeros(32)],
    ),
    Pair(
        "recursion without an end",
        "stack-overflow",
        "__device__ int depth(int n) {\n  return n > 0 ? 1 + depth(n - 1) : 0;\n}\n"
        + kernel("  out[threadIdx.x] = depth(3);"),
        "n > 0 ?",
        "n >= 0 || n < 0 ?",
        2,
        lambda: [zeros(32)],
    ),
    Pair(
        "division by zero",
        "division",
        kernel("  out[threadIdx.x] = n ? 7 / n : 0;", "float* out, int n"),
        "n ? 7 / n : 0",
        "7 / n",
        2,
        lambda: [zeros(32), 0],
    ),
    Pair(
        "assert",
        "trap",
        kernel("  assert(threadIdx.x < 32);\n  out[threadIdx.x] = 1.0f;"),
        "< 32",
        "< 20",
        2,
        lambda: [zeros(32)],
        says=("threadIdx.x < 20",),
    ),
    Pair(
        "endless loop",
        "time-limit",
        kernel(
            "  float v = in[threadIdx.x];\n  while (v > 0.0f) v -= 1.0f;\n  out[threadIdx.x] = v;",
            "const float* in, float* out",
        ),
        "v -= 1.0f",
        "v += 0.0f",
        3,
        lambda: [ones(32), zeros(32)],
    ),
]
