// CUDA's keywords, and the few names that every CUDA program has.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// Blocks run one after another, so one static copy of a block's memory is enough.
#define __shared__ static __attribute__((aligned(128)))

#define NULL nullptr
// NVRTC has none of these; the GPU run defines them too (see gpu.py).
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38f
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 750
#define KVCUDA_PLAIN __attribute__((no_sanitize("thread")))  // not the kernel's own memory access: no check calls

// Reads or writes the kernel's memory: becomes part of the kernel's own line, so that reports name that line.
#define KVCUDA_INLINE static inline __attribute__((always_inline, unused))

#ifdef KVCUDA_CHECK
#define KVCUDA_HELPER static inline __attribute__((noinline, unused)) KVCUDA_PLAIN
#define KVCUDA_HERE __builtin_return_address(0)
#else
#define KVCUDA_HELPER static inline __attribute__((unused))
#define KVCUDA_HERE nullptr
#endif

// Where accesses are checked, a vector or a half is copied as one number by code of its own. What compilers do by
// themselves shows too little: g++ says nothing when a call returns or takes a struct, clang calls memcpy.
#ifdef KVCUDA_CHECK
#define KVCUDA_COPIED_AS(NAME, CARRIER) \
  __attribute__((always_inline)) NAME(const NAME& from) { *(CARRIER*)this = *(const CARRIER*)&from; } \
  __attribute__((always_inline)) NAME& operator=(const NAME& from) { \
    *(CARRIER*)this = *(const CARRIER*)&from; \
    return *this; \
  }
#else
#define KVCUDA_COPIED_AS(NAME, CARRIER)
#endif

using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype((char*)0 - (char*)0);

namespace kvcuda {
template <class To, class From> KVCUDA_PLAIN inline To bits_as(From value) {
  static_assert(sizeof(To) >= sizeof(From), "bits would be lost");
  To out{};
  __builtin_memcpy(&out, &value, sizeof(From));
  return out;
}
template <class To> KVCUDA_PLAIN inline To from_bits(unsigned long long bits) {
  static_assert(sizeof(To) <= 8, "warp functions move at most 8 bytes");
  To out;
  __builtin_memcpy(&out, &bits, sizeof(To));
  return out;
}
}  // namespace kvcuda
