// New keys and values into the paged pool: token t goes to slot slots[t]; a block a token, negative slots are left out.
extern "C" __global__ void write_kv(const float* key, const float* value, float* key_pool, float* value_pool,
                                    const long long* slots, int width) {
  const long long slot = slots[blockIdx.x];
  if (slot < 0) return;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    key_pool[slot * width + i] = key[(size_t)blockIdx.x * width + i];
    value_pool[slot * width + i] = value[(size_t)blockIdx.x * width + i];
  }
}
