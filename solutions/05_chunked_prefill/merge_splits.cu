#include <cuda_fp16.h>

// The splits of paged_decode_int8 put together.
// Launched with grid (heads, sequences) and blocks of 128 threads.
// out: [sequences, heads, D]; partial: [sequences, heads, splits, D];
// lse: [sequences, heads, splits].
template <typename T, int D>
__global__ void merge_splits(T* out, const float* partial, const float* lse, int splits) {
  // BEGIN SOLUTION
  const long long which = blockIdx.y * gridDim.x + blockIdx.x;
  float top = -INFINITY, below = 0.0f;
  for (int z = 0; z < splits; z++) top = fmaxf(top, lse[which * splits + z]);
  for (int z = 0; z < splits; z++) below += __expf(lse[which * splits + z] - top);
  for (int d = threadIdx.x; d < D; d += blockDim.x) {
    float above = 0.0f;
    for (int z = 0; z < splits; z++) {
      above += __expf(lse[which * splits + z] - top) * partial[(which * splits + z) * D + d];
    }
    out[which * D + d] = (T)(above / below);
  }
  // END SOLUTION
}
