#include <cuda_fp16.h>

// The sum of `value` over the 32 lanes of a warp, in every lane.
__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

// paged_decode over an 8-bit pool, split over the sequence.
// Launched with grid (heads, sequences, splits) and blocks of 128 threads. Split z covers the
// tokens z * split_tokens .. min((z + 1) * split_tokens, context) - 1 of its sequence.
// A key is k_pool * k_scale[kv_head * D + d], a value v_pool * v_scale[slot * kv_heads + kv_head].
// partial: [sequences, heads, splits, D], what attention over the split alone gives;
// lse: [sequences, heads, splits], the logarithm of the sum of exp(score) over the split.
// A split without tokens writes zeros and -INFINITY.
template <typename T, int D>
__global__ void paged_decode_int8(float* partial, float* lse, const T* query,
                                  const signed char* k_pool, const signed char* v_pool,
                                  const float* k_scale, const float* v_scale,
                                  const int* block_tables, const int* context_lens, int heads,
                                  int kv_heads, int block_size, int max_blocks,
                                  int split_tokens, float scale) {
  // BEGIN SOLUTION
  constexpr int WARPS = 4, EACH = (D + 31) / 32;
  __shared__ float sums[WARPS][D], highs[WARPS], totals[WARPS];
  const int head = blockIdx.x, sequence = blockIdx.y, kv_head = head / (heads / kv_heads);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int begin = blockIdx.z * split_tokens, end = min(begin + split_tokens, context_lens[sequence]);
  const int* table = block_tables + sequence * max_blocks;
  const long long which = (long long)(sequence * heads + head) * gridDim.z + blockIdx.z;

  float q[EACH], sum[EACH], high = -INFINITY, total = 0.0f;
  for (int e = 0; e < EACH; e++) {  // the scales of the keys go into the query once, not into every key
    const int d = e * 32 + lane;
    q[e] = d < D ? (float)query[(sequence * heads + head) * D + d] * scale * k_scale[kv_head * D + d] : 0.0f;
    sum[e] = 0.0f;
  }
  for (int t = begin + warp; t < end; t += WARPS) {
    const long long slot = (long long)table[t / block_size] * block_size + t % block_size;
    const long long at = (slot * kv_heads + kv_head) * D;
    float score = 0.0f;
    for (int e = 0; e < EACH; e++) {
      if (e * 32 + lane < D) score += q[e] * k_pool[at + e * 32 + lane];
    }
    score = warp_sum(score);
    const float higher = fmaxf(high, score), rescale = __expf(high - higher), weight = __expf(score - higher);
    high = higher;
    total = total * rescale + weight;
    const float factor = weight * v_scale[slot * kv_heads + kv_head];
    for (int e = 0; e < EACH; e++) {
      sum[e] *= rescale;
      if (e * 32 + lane < D) sum[e] += factor * v_pool[at + e * 32 + lane];
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
  float top = -INFINITY, below = 0.0f;
  for (int w = 0; w < WARPS; w++) top = fmaxf(top, highs[w]);
  for (int w = 0; w < WARPS; w++) below += top > -INFINITY ? __expf(highs[w] - top) * totals[w] : 0.0f;
  for (int d = threadIdx.x; d < D; d += blockDim.x) {
    float above = 0.0f;
    for (int w = 0; w < WARPS; w++) above += top > -INFINITY ? __expf(highs[w] - top) * sums[w][d] : 0.0f;
    partial[which * D + d] = below > 0.0f ? above / below : 0.0f;
  }
  if (threadIdx.x == 0) lse[which] = below > 0.0f ? top + logf(below) : -INFINITY;
  // END SOLUTION
}
