// One query a sequence over a paged cache: a block for each (query head, sequence), four warps that take every fourth
// token, an online softmax in each warp, merged at the end.
#include <cuda_fp16.h>

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// keys, values: [blocks, BLOCK, kv_heads, D]; queries, out: [sequences, heads, D]; table: [sequences, most_blocks].
// Dynamic shared memory: 4 * (D + 2) floats.
template <typename T, int D, int BLOCK>
__global__ void __launch_bounds__(128) paged_decode(T* __restrict__ out, const T* __restrict__ queries,
                                                    const T* __restrict__ keys, const T* __restrict__ values,
                                                    const int* __restrict__ table, const int* __restrict__ lengths,
                                                    int heads, int kv_heads, int most_blocks, float scale) {
  constexpr int WARPS = 4, EACH = D / 32;
  const int sequence = blockIdx.y, head = blockIdx.x, kv_head = head / (heads / kv_heads);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  extern __shared__ float partial[];  // for each warp: D sums, the maximum, the normaliser

  float query[EACH], sum[EACH], highest = -INFINITY, normaliser = 0.0f;
  #pragma unroll
  for (int e = 0; e < EACH; e++) {
    query[e] = (float)queries[((size_t)sequence * heads + head) * D + e * 32 + lane] * scale;
    sum[e] = 0.0f;
  }
  const int length = lengths[sequence];
  for (int t = warp; t < length; t += WARPS) {
    const int block = table[sequence * most_blocks + t / BLOCK];
    const size_t at = (((size_t)block * BLOCK + t % BLOCK) * kv_heads + kv_head) * D;
    float score = 0.0f;
    #pragma unroll
    for (int e = 0; e < EACH; e++) score += query[e] * (float)keys[at + e * 32 + lane];
    score = warp_sum(score);
    const float higher = fmaxf(highest, score), rescale = __expf(highest - higher), weight = __expf(score - higher);
    normaliser = normaliser * rescale + weight;
    highest = higher;
    #pragma unroll
    for (int e = 0; e < EACH; e++) sum[e] = sum[e] * rescale + weight * (float)values[at + e * 32 + lane];
  }

  float* mine = partial + warp * (D + 2);
  for (int e = 0; e < EACH; e++) mine[e * 32 + lane] = sum[e];
  if (lane == 0) {
    mine[D] = highest;
    mine[D + 1] = normaliser;
  }
  __syncthreads();
  for (int d = threadIdx.x; d < D; d += blockDim.x) {
    float top = -INFINITY, below = 0.0f, above = 0.0f;
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, partial[w * (D + 2) + D]);
    for (int w = 0; w < WARPS; w++) {
      const float theirs = partial[w * (D + 2) + D];
      const float factor = theirs == -INFINITY ? 0.0f : __expf(theirs - top);
      below += factor * partial[w * (D + 2) + D + 1];
      above += factor * partial[w * (D + 2) + d];
    }
    out[((size_t)sequence * heads + head) * D + d] = (T)(above / below);
  }
}
