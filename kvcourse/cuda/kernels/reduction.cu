// Sums: of each row with one block a row, and of a whole vector with the last block adding up.

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// The sum over the block, in every thread of its first warp.
__device__ float block_sum(float value) {
  __shared__ float of_warp[32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) value = warp_sum(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f);
  return value;
}

extern "C" __global__ void row_sum(const float* in, float* sums, int columns) {
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += in[(size_t)blockIdx.x * columns + c];
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Each block writes its part and counts itself; the block that counts last adds up the parts. `counter` starts at 0.
extern "C" __global__ void total_sum(const float* in, float* parts, float* total, unsigned* counter, int n) {
  __shared__ bool last;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
    __threadfence();  // the part is there before the count says so
    last = atomicAdd(counter, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  if (threadIdx.x == 0) {
    float all = 0.0f;
    for (int b = 0; b < gridDim.x; b++) all += parts[b];
    *total = all;
  }
}
