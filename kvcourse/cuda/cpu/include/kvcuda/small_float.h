// One 16-bit float type and its pair: arithmetic is done in float and rounded back, as on a GPU of any age.
#pragma once
#ifdef KVCUDA_CHECK
extern "C" {  // the check build is not optimised: these run in the runtime, which is
float kvcuda_half_to_float(unsigned short);
unsigned short kvcuda_float_to_half(float);
float kvcuda_bfloat_to_float(unsigned short);
unsigned short kvcuda_float_to_bfloat(float);
}
#define KVCUDA_CONVERT(NAME) kvcuda_##NAME
#else
#include "half_bits.h"
#define KVCUDA_CONVERT(NAME) kvcuda::NAME
#endif

typedef unsigned short __attribute__((may_alias)) kvcuda_small_bits;
typedef unsigned __attribute__((may_alias)) kvcuda_pair_bits;

#define KVCUDA_SMALL_FLOAT(T, PAIR, TO_FLOAT, FROM_FLOAT) \
  struct T { \
    unsigned short bits; \
    T() = default; \
    KVCUDA_COPIED_AS(T, kvcuda_small_bits) \
    KVCUDA_PLAIN T(float x) : bits(KVCUDA_CONVERT(FROM_FLOAT)(x)) {} \
    KVCUDA_PLAIN T(double x) : T((float)x) {} \
    KVCUDA_PLAIN T(int x) : T((float)x) {} \
    KVCUDA_PLAIN T(unsigned x) : T((float)x) {} \
    KVCUDA_PLAIN T(long long x) : T((float)x) {} \
    KVCUDA_PLAIN T(unsigned long long x) : T((float)x) {} \
    __attribute__((always_inline)) operator float() const { return KVCUDA_CONVERT(TO_FLOAT)(bits); } \
  }; \
  struct __attribute__((aligned(4))) PAIR { \
    T x, y; \
    PAIR() = default; \
    KVCUDA_PLAIN PAIR(T x, T y) : x(x), y(y) {} \
    KVCUDA_COPIED_AS(PAIR, kvcuda_pair_bits) \
  }; \
  KVCUDA_HELPER T __hadd(T a, T b) { return T((float)a + (float)b); } \
  KVCUDA_HELPER T __hsub(T a, T b) { return T((float)a - (float)b); } \
  KVCUDA_HELPER T __hmul(T a, T b) { return T((float)a * (float)b); } \
  KVCUDA_HELPER T __hdiv(T a, T b) { return T((float)a / (float)b); } \
  KVCUDA_HELPER T __hfma(T a, T b, T c) { return T(fmaf(a, b, c)); } \
  KVCUDA_HELPER T __hneg(T a) { return T(-(float)a); } \
  KVCUDA_HELPER T __habs(T a) { return T(fabsf(a)); } \
  KVCUDA_HELPER T __hmax(T a, T b) { return T(fmaxf(a, b)); } \
  KVCUDA_HELPER T __hmin(T a, T b) { return T(fminf(a, b)); } \
  KVCUDA_HELPER bool __heq(T a, T b) { return (float)a == (float)b; } \
  KVCUDA_HELPER bool __hne(T a, T b) { return (float)a != (float)b; } \
  KVCUDA_HELPER bool __hlt(T a, T b) { return (float)a < (float)b; } \
  KVCUDA_HELPER bool __hle(T a, T b) { return (float)a <= (float)b; } \
  KVCUDA_HELPER bool __hgt(T a, T b) { return (float)a > (float)b; } \
  KVCUDA_HELPER bool __hge(T a, T b) { return (float)a >= (float)b; } \
  KVCUDA_HELPER bool __hisnan(T a) { return isnan((float)a); } \
  KVCUDA_HELPER T hexp(T a) { return T(expf(a)); } \
  KVCUDA_HELPER T hlog(T a) { return T(logf(a)); } \
  KVCUDA_HELPER T hsqrt(T a) { return T(sqrtf(a)); } \
  KVCUDA_HELPER T hrsqrt(T a) { return T(rsqrtf(a)); } \
  KVCUDA_HELPER T operator+(T a, T b) { return __hadd(a, b); } \
  KVCUDA_HELPER T operator-(T a, T b) { return __hsub(a, b); } \
  KVCUDA_HELPER T operator*(T a, T b) { return __hmul(a, b); } \
  KVCUDA_HELPER T operator/(T a, T b) { return __hdiv(a, b); } \
  KVCUDA_HELPER T operator-(T a) { return __hneg(a); } \
  KVCUDA_INLINE T& operator+=(T& a, T b) { return a = __hadd(a, b); } \
  KVCUDA_INLINE T& operator-=(T& a, T b) { return a = __hsub(a, b); } \
  KVCUDA_INLINE T& operator*=(T& a, T b) { return a = __hmul(a, b); } \
  KVCUDA_INLINE T& operator/=(T& a, T b) { return a = __hdiv(a, b); } \
  KVCUDA_HELPER bool operator==(T a, T b) { return __heq(a, b); } \
  KVCUDA_HELPER bool operator!=(T a, T b) { return __hne(a, b); } \
  KVCUDA_HELPER bool operator<(T a, T b) { return __hlt(a, b); } \
  KVCUDA_HELPER bool operator<=(T a, T b) { return __hle(a, b); } \
  KVCUDA_HELPER bool operator>(T a, T b) { return __hgt(a, b); } \
  KVCUDA_HELPER bool operator>=(T a, T b) { return __hge(a, b); } \
  KVCUDA_HELPER PAIR __hadd2(PAIR a, PAIR b) { return PAIR(__hadd(a.x, b.x), __hadd(a.y, b.y)); } \
  KVCUDA_HELPER PAIR __hsub2(PAIR a, PAIR b) { return PAIR(__hsub(a.x, b.x), __hsub(a.y, b.y)); } \
  KVCUDA_HELPER PAIR __hmul2(PAIR a, PAIR b) { return PAIR(__hmul(a.x, b.x), __hmul(a.y, b.y)); } \
  KVCUDA_HELPER PAIR __hfma2(PAIR a, PAIR b, PAIR c) { return PAIR(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
  KVCUDA_HELPER PAIR __hneg2(PAIR a) { return PAIR(__hneg(a.x), __hneg(a.y)); } \
  KVCUDA_HELPER PAIR __hmax2(PAIR a, PAIR b) { return PAIR(__hmax(a.x, b.x), __hmax(a.y, b.y)); } \
  KVCUDA_HELPER PAIR __hmin2(PAIR a, PAIR b) { return PAIR(__hmin(a.x, b.x), __hmin(a.y, b.y)); } \
  KVCUDA_HELPER PAIR operator+(PAIR a, PAIR b) { return __hadd2(a, b); } \
  KVCUDA_HELPER PAIR operator-(PAIR a, PAIR b) { return __hsub2(a, b); } \
  KVCUDA_HELPER PAIR operator*(PAIR a, PAIR b) { return __hmul2(a, b); } \
  KVCUDA_HELPER float __low2float(PAIR a) { return a.x; } \
  KVCUDA_HELPER float __high2float(PAIR a) { return a.y; } \
  KVCUDA_HELPER T atomicAdd(T* address, T value) { \
    kvcuda_atomic(KVCUDA_HERE, address, sizeof(T), 0); \
    T old = *address; \
    *address = old + value; \
    return old; \
  } \
  KVCUDA_HELPER PAIR atomicAdd(PAIR* address, PAIR value) { \
    kvcuda_atomic(KVCUDA_HERE, address, sizeof(PAIR), 0); \
    PAIR old = *address; \
    *address = old + value; \
    return old; \
  }
