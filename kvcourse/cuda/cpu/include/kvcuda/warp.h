// Warp functions. Each lane hands its value to the runtime, waits for the lanes of its mask, and gets its answer.
#pragma once

KVCUDA_HELPER void __syncwarp(unsigned mask = 0xffffffffu) { kvcuda_syncwarp(KVCUDA_HERE, mask); }
KVCUDA_HELPER unsigned __activemask() { return kvcuda_active_mask(); }

#define KVCUDA_SHUFFLE(NAME, KIND, OPERAND) \
  template <class T> KVCUDA_HELPER T NAME(unsigned mask, T value, OPERAND operand, int width = 32) { \
    auto bits = kvcuda::bits_as<unsigned long long>(value); \
    return kvcuda::from_bits<T>(kvcuda_shuffle(KVCUDA_HERE, mask, bits, KIND, (int)operand, width)); \
  }
KVCUDA_SHUFFLE(__shfl_sync, KVCUDA_FROM_LANE, int)
KVCUDA_SHUFFLE(__shfl_up_sync, KVCUDA_UP, unsigned)
KVCUDA_SHUFFLE(__shfl_down_sync, KVCUDA_DOWN, unsigned)
KVCUDA_SHUFFLE(__shfl_xor_sync, KVCUDA_XOR, int)
#undef KVCUDA_SHUFFLE

KVCUDA_HELPER unsigned __ballot_sync(unsigned mask, int predicate) {
  return kvcuda_vote(KVCUDA_HERE, mask, predicate != 0, KVCUDA_BALLOT);
}
KVCUDA_HELPER int __any_sync(unsigned mask, int predicate) {
  return kvcuda_vote(KVCUDA_HERE, mask, predicate != 0, KVCUDA_BALLOT) != 0;
}
KVCUDA_HELPER int __all_sync(unsigned mask, int predicate) {
  return kvcuda_vote(KVCUDA_HERE, mask, predicate == 0, KVCUDA_BALLOT) == 0;
}
template <class T> KVCUDA_HELPER unsigned __match_any_sync(unsigned mask, T value) {
  return kvcuda_vote(KVCUDA_HERE, mask, kvcuda::bits_as<unsigned long long>(value), KVCUDA_MATCH);
}
template <class T> KVCUDA_HELPER unsigned __match_all_sync(unsigned mask, T value, int* all_equal) {
  unsigned same = kvcuda_vote(KVCUDA_HERE, mask, kvcuda::bits_as<unsigned long long>(value), KVCUDA_MATCH);
  *all_equal = same == mask;
  return *all_equal ? mask : 0;
}
