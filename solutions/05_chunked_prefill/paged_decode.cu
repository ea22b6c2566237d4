#include <cuda_fp16.h>

// The sum of `value` over the 32 lanes of a warp, in every lane.
__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

// One query a sequence over its paged keys and values.
// Launched with grid (heads, sequences) and blocks of 128 threads, which are 4 warps.
// query, out: [sequences, heads, D]; k_pool, v_pool: [blocks, block_size, kv_heads, D];
// block_tables: [sequences, max_blocks]; context_lens: [sequences], at least 1.
template <typename T, int D>
__global__ void paged_decode(T* out, const T* query, const T* k_pool, const T* v_pool,
                             const int* block_tables, const int* context_lens, int heads,
                             int kv_heads, int block_size, int max_blocks, float scale) {
  // BEGIN SOLUTION
  constexpr int WARPS = 4, AT_ONCE = 4, EACH = (D + 31) / 32;  // a lane holds numbers lane, lane + 32, ... of D
  __shared__ float sums[WARPS][D], highs[WARPS], totals[WARPS];
  const int head = blockIdx.x, sequence = blockIdx.y, kv_head = head / (heads / kv_heads);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int context = context_lens[sequence];
  const int* table = block_tables + sequence * max_blocks;
  const T* my_query = query + (sequence * heads + head) * D;

  float q[EACH], sum[EACH], high = -INFINITY, total = 0.0f;
  for (int e = 0; e < EACH; e++) {
    q[e] = e * 32 + lane < D ? (float)my_query[e * 32 + lane] * scale : 0.0f;
    sum[e] = 0.0f;
  }
  for (int first = warp * AT_ONCE; first < context; first += WARPS * AT_ONCE) {
    float k[AT_ONCE][EACH], v[AT_ONCE][EACH], score[AT_ONCE], higher = high;
    for (int j = 0; j < AT_ONCE; j++) {  // all loads first: the more are under way, the less the warp waits
      const int t = first + j;
      const bool there = t < context;
      const long long slot = there ? (long long)table[t / block_size] * block_size + t % block_size : 0;
      const long long at = (slot * kv_heads + kv_head) * D;
      for (int e = 0; e < EACH; e++) {
        const bool mine = there && e * 32 + lane < D;
        k[j][e] = mine ? (float)k_pool[at + e * 32 + lane] : 0.0f;
        v[j][e] = mine ? (float)v_pool[at + e * 32 + lane] : 0.0f;
      }
    }
    for (int j = 0; j < AT_ONCE; j++) {
      float dot = 0.0f;
      for (int e = 0; e < EACH; e++) dot += q[e] * k[j][e];
      dot = warp_sum(dot);
      score[j] = first + j < context ? dot : -INFINITY;
      higher = fmaxf(higher, score[j]);
    }
    const float rescale = __expf(high - higher);  // what was summed up so far belongs to the old maximum
    high = higher;
    total *= rescale;
    for (int e = 0; e < EACH; e++) sum[e] *= rescale;
    for (int j = 0; j < AT_ONCE; j++) {
      const float weight = __expf(score[j] - high);
      total += weight;
      for (int e = 0; e < EACH; e++) sum[e] += weight * v[j][e];
    }
  }

  for (int e = 0; e < EACH; e++) {
    if (e * 32 + lane < D) sums[warp][e * 32 + lane] = sum[e];
  }
  if (lane == 0) {
    highs[warp] = high;
    totals[warp] = total;
  }
  __syncthreads();
  float top = -INFINITY, below = 0.0f, factor[WARPS];
  for (int w = 0; w < WARPS; w++) top = fmaxf(top, highs[w]);
  for (int w = 0; w < WARPS; w++) {  // a warp without tokens has the maximum -INFINITY and counts nothing
    factor[w] = __expf(highs[w] - top);
    below += factor[w] * totals[w];
  }
  for (int d = threadIdx.x; d < D; d += blockDim.x) {
    float above = 0.0f;
    for (int w = 0; w < WARPS; w++) above += factor[w] * sums[w][d];
    out[(sequence * heads + head) * D + d] = (T)(above / below);
  }
  // END SOLUTION
}
