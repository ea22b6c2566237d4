#include <cuda_fp16.h>

// chunked_prefill, the first rung: correct and coalesced, but every query reads its keys from global memory.
template <typename T, int D>
__global__ void chunked_prefill(T* out, const T* query, const T* k_pool, const T* v_pool, const int* block_table,
                                int count, int cached, int heads, int kv_heads, int block_size, float scale) {
  constexpr int EACH = (D + 31) / 32;
  const int head = blockIdx.x, i = blockIdx.y * 8 + threadIdx.y, lane = threadIdx.x;
  const int kv_head = head / (heads / kv_heads);
  if (i >= count) return;
  const long long mine = ((long long)i * heads + head) * D;
  float q[EACH], sum[EACH], high = -INFINITY, total = 0.0f;
  for (int e = 0; e < EACH; e++) {
    q[e] = e * 32 + lane < D ? (float)query[mine + e * 32 + lane] * scale : 0.0f;
    sum[e] = 0.0f;
  }
  for (int t = 0; t <= cached + i; t++) {
    const long long slot = (long long)block_table[t / block_size] * block_size + t % block_size;
    const long long at = (slot * kv_heads + kv_head) * D;
    float score = 0.0f;
    for (int e = 0; e < EACH; e++) {
      if (e * 32 + lane < D) score += q[e] * (float)k_pool[at + e * 32 + lane];
    }
    for (int offset = 16; offset > 0; offset /= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
    const float higher = fmaxf(high, score), rescale = __expf(high - higher), weight = __expf(score - higher);
    high = higher;
    total = total * rescale + weight;
    for (int e = 0; e < EACH; e++) {
      sum[e] *= rescale;
      if (e * 32 + lane < D) sum[e] += weight * (float)v_pool[at + e * 32 + lane];
    }
  }
  for (int e = 0; e < EACH; e++) {
    if (e * 32 + lane < D) out[mine + e * 32 + lane] = (T)(sum[e] / total);
  }
}
