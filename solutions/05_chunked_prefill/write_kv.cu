#include <cuda_fp16.h>

// New keys and values into the paged pool: token t, which is block t of the grid, goes to slot
// slot_mapping[t]. Launched with 128 threads a block. A negative slot is padding: write nothing.
// key, value: [tokens, width]; k_pool, v_pool: [slots, width]; width = kv_heads * head_dim.
template <typename T>
__global__ void write_kv(T* k_pool, T* v_pool, const T* key, const T* value,
                         const long long* slot_mapping, int width) {
  // BEGIN SOLUTION
  const long long slot = slot_mapping[blockIdx.x];
  if (slot < 0) return;
  const long long from = (long long)blockIdx.x * width, to = slot * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {  // neighbours in the warp touch neighbours in memory
    k_pool[to + i] = key[from + i];
    v_pool[to + i] = value[from + i];
  }
  // END SOLUTION
}
