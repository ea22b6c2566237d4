// Neighbouring threads read numbers that lie `stride` apart: the further, the more sectors for the same numbers.
extern "C" __global__ void strided_copy(const float* in, float* out, int n, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[(size_t)i * stride];
}
