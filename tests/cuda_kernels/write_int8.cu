// Quantise new keys to 8 bits on their way into the paged cache, and read them back.

// One warp a token: scale = largest magnitude / 127; slot -1 means: do not store.
extern "C" __global__ void write_int8(signed char* cache, float* scales, const float* keys, const long long* slots, int d) {
  const int token = blockIdx.x;
  const long long slot = slots[token];
  if (slot < 0) return;
  float largest = 0.0f;
  for (int i = threadIdx.x; i < d; i += 32) largest = fmaxf(largest, fabsf(keys[token * d + i]));
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  const float scale = largest > 0.0f ? largest / 127.0f : 1.0f;
  if (threadIdx.x == 0) scales[slot] = scale;
  for (int i = threadIdx.x; i < d; i += 32) cache[slot * d + i] = (signed char)__float2int_rn(keys[token * d + i] / scale);
}

// Four numbers a thread, one 16-byte store each.
extern "C" __global__ void gather_int8(float4* out, const char4* cache, const float* scales, const int* table, int tokens,
                                       int quarter_d, int block) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= tokens * quarter_d) return;
  const int token = i / quarter_d, part = i % quarter_d;
  const size_t slot = (size_t)table[token / block] * block + token % block;
  const float scale = scales[slot];
  const char4 four = cache[slot * quarter_d + part];
  out[i] = make_float4(four.x * scale, four.y * scale, four.z * scale, four.w * scale);
}
