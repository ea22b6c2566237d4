#include <cuda_fp16.h>

// A chunk of queries of one sequence over its cached and its new keys, which are all in the pool.
// Launched with grid (heads, ceil(count / 8)) and blocks of (32, 8) threads: warp threadIdx.y
// takes query blockIdx.y * 8 + threadIdx.y.
// query, out: [count, heads, D]; k_pool, v_pool: [blocks, block_size, kv_heads, D];
// block_table: the blocks of the sequence, in order.
// Query i stands at position cached + i and sees the keys 0 .. cached + i.
template <typename T, int D>
__global__ void chunked_prefill(T* out, const T* query, const T* k_pool, const T* v_pool,
                                const int* block_table, int count, int cached, int heads,
                                int kv_heads, int block_size, float scale) {
  // BEGIN SOLUTION
  constexpr int ROWS = 8, COLUMNS = 32, EACH = (D + 31) / 32;
  __shared__ float keys[COLUMNS][D + 1];  // one more than D: lanes that read different rows meet different banks
  __shared__ float values[COLUMNS][D];
  __shared__ float queries[ROWS][D];
  __shared__ float weights[ROWS][COLUMNS];
  const int head = blockIdx.x, first = blockIdx.y * ROWS, kv_head = head / (heads / kv_heads);
  const int lane = threadIdx.x, row = threadIdx.y, i = first + row;
  const bool live = i < count;

  for (int d = lane; d < D; d += 32) {
    queries[row][d] = live ? (float)query[((long long)i * heads + head) * D + d] * scale : 0.0f;
  }
  float sum[EACH], high = -INFINITY, total = 0.0f;
  for (int e = 0; e < EACH; e++) sum[e] = 0.0f;

  const int end = cached + min(first + ROWS, count);  // keys that any query of this block sees
  for (int start = 0; start < end; start += COLUMNS) {
    for (int t = row; t < COLUMNS; t += ROWS) {  // the block loads a tile together: a warp a key and its value
      const int position = start + t;
      const bool there = position < end;
      const long long slot =
          there ? (long long)block_table[position / block_size] * block_size + position % block_size : 0;
      const long long at = (slot * kv_heads + kv_head) * D;
      for (int d = lane; d < D; d += 32) {
        keys[t][d] = there ? (float)k_pool[at + d] : 0.0f;
        values[t][d] = there ? (float)v_pool[at + d] : 0.0f;
      }
    }
    __syncthreads();

    float score = 0.0f;  // of the query of this warp and the key number `lane` of the tile
    for (int d = 0; d < D; d++) score += queries[row][d] * keys[lane][d];
    if (start + lane > cached + i || !live) score = -INFINITY;
    float higher = fmaxf(high, score);
    for (int offset = 16; offset > 0; offset /= 2) {
      higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, offset));
    }
    const bool any = higher > -INFINITY;
    const float weight = any ? __expf(score - higher) : 0.0f, rescale = any ? __expf(high - higher) : 1.0f;
    weights[row][lane] = weight;
    float more = weight;
    for (int offset = 16; offset > 0; offset /= 2) more += __shfl_xor_sync(0xffffffffu, more, offset);
    total = total * rescale + more;
    high = higher;
    __syncwarp();  // the weights of this row are complete
    for (int e = 0; e < EACH; e++) {
      const int d = e * 32 + lane;
      sum[e] *= rescale;
      for (int t = 0; t < COLUMNS && d < D; t++) sum[e] += weights[row][t] * values[t][d];
    }
    __syncthreads();  // everybody is done with the tile
  }
  for (int e = 0; e < EACH; e++) {
    const int d = e * 32 + lane;
    if (live && d < D) out[((long long)i * heads + head) * D + d] = (T)(sum[e] / total);
  }
  // END SOLUTION
}
