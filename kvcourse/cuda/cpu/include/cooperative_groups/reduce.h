// Reductions over a tile. Subset of CUDA's header of this name.
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {
template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <int N, class T, class Operation> inline T reduce(const thread_block_tile<N>& tile, T value, Operation op) {
  for (int offset = N / 2; offset; offset /= 2) value = op(value, tile.shfl_xor(value, offset));
  return value;
}
}  // namespace cooperative_groups
