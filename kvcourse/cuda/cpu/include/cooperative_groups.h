// Blocks and tiles as objects. Subset of CUDA's header of this name; no grid-wide groups.
#pragma once
#include "kvcuda/device.h"

namespace cooperative_groups {
struct thread_block {
  static void sync() { kvcuda_barrier(-1, 0); }
  static unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned size() { return num_threads(); }
  static uint3 group_index() { return blockIdx; }
  static uint3 thread_index() { return threadIdx; }
};
KVCUDA_HELPER thread_block this_thread_block() { return {}; }
KVCUDA_HELPER void sync(thread_block) { kvcuda_barrier(-1, 0); }

template <int N> struct thread_block_tile {
  static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");
  static unsigned thread_rank() { return thread_block::thread_rank() % N; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / N; }
  static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned lanes() { return N == 32 ? ~0u : ((1u << (N & 31)) - 1) << (kvcuda_lane() / N * N); }
  static void sync() { __syncwarp(lanes()); }
  template <class T> static T shfl(T value, int rank) { return __shfl_sync(lanes(), value, rank, N); }
  template <class T> static T shfl_up(T value, unsigned by) { return __shfl_up_sync(lanes(), value, by, N); }
  template <class T> static T shfl_down(T value, unsigned by) { return __shfl_down_sync(lanes(), value, by, N); }
  template <class T> static T shfl_xor(T value, unsigned with) { return __shfl_xor_sync(lanes(), value, with, N); }
  static int any(int predicate) { return __any_sync(lanes(), predicate); }
  static int all(int predicate) { return __all_sync(lanes(), predicate); }
  static unsigned ballot(int predicate) { return __ballot_sync(lanes(), predicate) >> (kvcuda_lane() / N * N); }
};
template <int N, class Group> KVCUDA_PLAIN inline thread_block_tile<N> tiled_partition(const Group&) { return {}; }
template <int N> KVCUDA_PLAIN inline void sync(thread_block_tile<N> tile) { tile.sync(); }
}  // namespace cooperative_groups
