#include <cuda_fp16.h>

// paged_decode, the first rung: correct, but a thread takes a whole token, so that neighbours read far apart.
template <typename T, int D>
__global__ void paged_decode(T* out, const T* query, const T* k_pool, const T* v_pool, const int* block_tables,
                             const int* context_lens, int heads, int kv_heads, int block_size, int max_blocks,
                             float scale) {
  constexpr int THREADS = 128;
  __shared__ float sums[THREADS], highs[THREADS], totals[THREADS];
  const int head = blockIdx.x, sequence = blockIdx.y, kv_head = head / (heads / kv_heads), me = threadIdx.x;
  const int context = context_lens[sequence];
  const T* my_query = query + ((long long)sequence * heads + head) * D;
  float sum[D], high = -INFINITY, total = 0.0f;
  for (int d = 0; d < D; d++) sum[d] = 0.0f;
  for (int t = me; t < context; t += THREADS) {
    const int block = block_tables[sequence * max_blocks + t / block_size];
    const long long at = (((long long)block * block_size + t % block_size) * kv_heads + kv_head) * D;
    float score = 0.0f;
    for (int d = 0; d < D; d++) score += (float)my_query[d] * scale * (float)k_pool[at + d];
    const float higher = fmaxf(high, score), rescale = __expf(high - higher), weight = __expf(score - higher);
    high = higher;
    total = total * rescale + weight;
    for (int d = 0; d < D; d++) sum[d] = sum[d] * rescale + weight * (float)v_pool[at + d];
  }
  highs[me] = high;
  totals[me] = total;
  __syncthreads();
  float top = -INFINITY, below = 0.0f;
  for (int i = 0; i < THREADS; i++) top = fmaxf(top, highs[i]);
  for (int i = 0; i < THREADS; i++) below += __expf(highs[i] - top) * totals[i];
  for (int d = 0; d < D; d++) {
    sums[me] = __expf(high - top) * sum[d];
    __syncthreads();
    if (me == 0) {
      float above = 0.0f;
      for (int i = 0; i < THREADS; i++) above += sums[i];
      out[((long long)sequence * heads + head) * D + d] = (T)(above / below);
    }
    __syncthreads();
  }
}
