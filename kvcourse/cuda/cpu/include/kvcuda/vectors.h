// float4, int2, char4 and their kind, with CUDA's sizes and alignments: one load or store moves the whole.
#pragma once

#ifdef KVCUDA_CHECK
#define KVCUDA_PAIR(T, NAME, ALIGN) \
  struct __attribute__((aligned(ALIGN))) NAME { \
    typedef T kvcuda_whole __attribute__((vector_size(2 * sizeof(T)), aligned(ALIGN), may_alias)); \
    T x, y; \
    NAME() = default; \
    KVCUDA_PLAIN constexpr NAME(T x, T y) : x(x), y(y) {} \
    KVCUDA_COPIED_AS(NAME, kvcuda_whole) \
  };
#define KVCUDA_FOUR(T, NAME, ALIGN) \
  struct __attribute__((aligned(ALIGN))) NAME { \
    typedef T kvcuda_whole __attribute__((vector_size(4 * sizeof(T)), aligned(ALIGN), may_alias)); \
    T x, y, z, w; \
    NAME() = default; \
    KVCUDA_PLAIN constexpr NAME(T x, T y, T z = 0, T w = 0) : x(x), y(y), z(z), w(w) {} \
    KVCUDA_COPIED_AS(NAME, kvcuda_whole) \
  };
#else
#define KVCUDA_PAIR(T, NAME, ALIGN) struct __attribute__((aligned(ALIGN))) NAME { T x, y; };
#define KVCUDA_FOUR(T, NAME, ALIGN) struct __attribute__((aligned(ALIGN))) NAME { T x, y, z, w; };
#endif
#define KVCUDA_PLAIN_FOUR(T, NAME, ALIGN) struct __attribute__((aligned(ALIGN))) NAME { T x, y, z, w; };

#define KVCUDA_SINGLE(T, NAME) struct NAME { T x; };
#define KVCUDA_TRIPLE(T, NAME) struct NAME { T x, y, z; };
#define KVCUDA_MAKE(T, NAME) \
  KVCUDA_HELPER NAME##1 make_##NAME##1(T x) { return {x}; } \
  KVCUDA_HELPER NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
  KVCUDA_HELPER NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; } \
  KVCUDA_HELPER NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

#define KVCUDA_VECTORS(T, NAME, ALIGN2, ALIGN4) \
  KVCUDA_SINGLE(T, NAME##1) KVCUDA_PAIR(T, NAME##2, ALIGN2) KVCUDA_FOUR(T, NAME##4, ALIGN4)
KVCUDA_VECTORS(signed char, char, 2, 4)
KVCUDA_VECTORS(unsigned char, uchar, 2, 4)
KVCUDA_VECTORS(short, short, 4, 8)
KVCUDA_VECTORS(unsigned short, ushort, 4, 8)
KVCUDA_VECTORS(int, int, 8, 16)
KVCUDA_VECTORS(unsigned, uint, 8, 16)
KVCUDA_VECTORS(float, float, 8, 16)
// 32 bytes are two accesses on a GPU as well.
KVCUDA_SINGLE(double, double1) KVCUDA_PAIR(double, double2, 16) KVCUDA_PLAIN_FOUR(double, double4, 16)
KVCUDA_SINGLE(long long, longlong1) KVCUDA_PAIR(long long, longlong2, 16) KVCUDA_PLAIN_FOUR(long long, longlong4, 16)
KVCUDA_SINGLE(unsigned long long, ulonglong1) KVCUDA_PAIR(unsigned long long, ulonglong2, 16)
KVCUDA_PLAIN_FOUR(unsigned long long, ulonglong4, 16)
// uint3 itself stands in interface.h.
KVCUDA_TRIPLE(signed char, char3) KVCUDA_TRIPLE(unsigned char, uchar3) KVCUDA_TRIPLE(short, short3)
KVCUDA_TRIPLE(unsigned short, ushort3) KVCUDA_TRIPLE(int, int3) KVCUDA_TRIPLE(long long, longlong3)
KVCUDA_TRIPLE(unsigned long long, ulonglong3) KVCUDA_TRIPLE(float, float3) KVCUDA_TRIPLE(double, double3)
KVCUDA_MAKE(signed char, char) KVCUDA_MAKE(unsigned char, uchar) KVCUDA_MAKE(short, short)
KVCUDA_MAKE(unsigned short, ushort) KVCUDA_MAKE(int, int) KVCUDA_MAKE(unsigned, uint)
KVCUDA_MAKE(long long, longlong) KVCUDA_MAKE(unsigned long long, ulonglong)
KVCUDA_MAKE(float, float) KVCUDA_MAKE(double, double)

struct dim3 {
  unsigned x, y, z;
  KVCUDA_PLAIN constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  KVCUDA_PLAIN constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
