// out[i] = a * x[i] + y[i] for i = 0 .. n - 1.
// Launched with blocks of 128 threads, as many as it takes for n numbers.
extern "C" __global__ void axpy(float* out, const float* x, const float* y, float a, int n) {
  // BEGIN SOLUTION
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];  // the last block may reach beyond n
  // END SOLUTION
}
