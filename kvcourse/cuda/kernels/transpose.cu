// out[c][r] = in[r][c] for a matrix of rows x columns; blocks of 32 x 32 threads.

// Straight from global to global memory: the reads are in order, every write of a warp goes to another line.
extern "C" __global__ void transpose_naive(const float* in, float* out, int rows, int columns) {
  int r = blockIdx.y * 32 + threadIdx.y, c = blockIdx.x * 32 + threadIdx.x;
  if (r < rows && c < columns) out[(size_t)c * rows + r] = in[(size_t)r * columns + c];
}

// Through a tile of shared memory, so that reads and writes are both in order. PAD = 1 moves each row of the tile to
// other banks; with PAD = 0 a warp reads a column from one single bank.
template <int PAD>
__global__ void transpose_tiled(const float* in, float* out, int rows, int columns) {
  __shared__ float tile[32][32 + PAD];
  int r = blockIdx.y * 32 + threadIdx.y, c = blockIdx.x * 32 + threadIdx.x;
  if (r < rows && c < columns) tile[threadIdx.y][threadIdx.x] = in[(size_t)r * columns + c];
  __syncthreads();
  int out_r = blockIdx.x * 32 + threadIdx.y, out_c = blockIdx.y * 32 + threadIdx.x;
  if (out_r < columns && out_c < rows) out[(size_t)out_r * rows + out_c] = tile[threadIdx.x][threadIdx.y];
}
