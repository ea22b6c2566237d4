// C = A B for A of m x k and B of k x n, row by row in memory; blocks of 16 x 16 threads, one element of C each.
#define TILE 16

extern "C" __global__ void matmul(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                                  int m, int n, int k) {
  __shared__ float a[TILE][TILE];
  __shared__ float b[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < k; start += TILE) {
    int a_column = start + threadIdx.x, b_row = start + threadIdx.y;
    a[threadIdx.y][threadIdx.x] = row < m && a_column < k ? A[row * k + a_column] : 0.0f;
    b[threadIdx.y][threadIdx.x] = b_row < k && column < n ? B[b_row * n + column] : 0.0f;
    __syncthreads();  // both tiles are complete
    #pragma unroll
    for (int i = 0; i < TILE; i++) sum += a[threadIdx.y][i] * b[i][threadIdx.x];
    __syncthreads();  // both tiles may be overwritten
  }
  if (row < m && column < n) C[row * n + column] = sum;
}
