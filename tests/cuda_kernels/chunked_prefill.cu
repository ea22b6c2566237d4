// A chunk of queries of one sequence over its cached and its new keys: a block for each (head, ROWS queries), a warp a
// query; keys and values come through the block table in tiles of COLUMNS tokens. Query i stands at position cached + i
// and sees the keys up to itself.

// queries, out: [chunk, heads, D]; keys, values: [blocks, BLOCK, kv_heads, D]; table: [blocks of the sequence].
template <int D, int ROWS, int COLUMNS, int BLOCK>
__global__ void chunked_prefill(float* out, const float* queries, const float* keys, const float* values,
                                const int* table, int chunk, int cached, int heads, int kv_heads, float scale) {
  __shared__ float key[COLUMNS][D + 1];
  __shared__ float value[COLUMNS][D + 1];
  __shared__ float query[ROWS][D];
  __shared__ float weight[ROWS][COLUMNS + 1];
  const int head = blockIdx.x, kv_head = head / (heads / kv_heads), first = blockIdx.y * ROWS;
  const int row = threadIdx.y, lane = threadIdx.x, thread = row * 32 + lane;
  const int i = first + row, position = cached + i;
  const bool live = i < chunk;

  for (int d = lane; d < D; d += 32) query[row][d] = live ? queries[((size_t)i * heads + head) * D + d] * scale : 0.0f;
  float highest = -INFINITY, normaliser = 0.0f, sum[D / 32];
  for (int e = 0; e < D / 32; e++) sum[e] = 0.0f;

  const int end = cached + min(first + ROWS, chunk);  // keys that any query of this block sees
  for (int start = 0; start < end; start += COLUMNS) {
    for (int n = thread; n < COLUMNS * D; n += ROWS * 32) {
      const int t = n / D, d = n % D, at = start + t;
      const bool there = at < end;
      const size_t from = there ? (((size_t)table[at / BLOCK] * BLOCK + at % BLOCK) * kv_heads + kv_head) * D + d : 0;
      key[t][d] = there ? keys[from] : 0.0f;
      value[t][d] = there ? values[from] : 0.0f;
    }
    __syncthreads();

    float top = -INFINITY;
    for (int t = lane; t < COLUMNS; t += 32) {
      float score = 0.0f;
      for (int d = 0; d < D; d++) score += query[row][d] * key[t][d];
      if (start + t > position || start + t >= end) score = -INFINITY;
      weight[row][t] = score;
      top = fmaxf(top, score);
    }
    for (int offset = 16; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
    const float higher = fmaxf(highest, top), rescale = higher == -INFINITY ? 1.0f : __expf(highest - higher);
    float total = 0.0f;
    for (int t = lane; t < COLUMNS; t += 32) {
      const float w = weight[row][t] == -INFINITY ? 0.0f : __expf(weight[row][t] - higher);
      weight[row][t] = w;
      total += w;
    }
    for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
    normaliser = normaliser * rescale + total;
    highest = higher;
    __syncwarp();  // the weights of this row are complete
    for (int e = 0; e < D / 32; e++) {
      float s = sum[e] * rescale;
      for (int t = 0; t < COLUMNS; t++) s += weight[row][t] * value[t][e * 32 + lane];
      sum[e] = s;
    }
    __syncthreads();  // the tiles may be overwritten
  }
  if (!live) return;
  for (int e = 0; e < D / 32; e++) out[((size_t)i * heads + head) * D + e * 32 + lane] = sum[e] / normaliser;
}
