// Maths and integer functions, with CUDA's own overloads: what is ambiguous there is ambiguous here.
#pragma once

// name(double) and namef(float) from the C library, and name(float).
#define KVCUDA_MATHS_1(NAME) \
  extern "C" double NAME(double); \
  extern "C" float NAME##f(float); \
  KVCUDA_HELPER float NAME(float x) { return NAME##f(x); }
#define KVCUDA_MATHS_2(NAME) \
  extern "C" double NAME(double, double); \
  extern "C" float NAME##f(float, float); \
  KVCUDA_HELPER float NAME(float x, float y) { return NAME##f(x, y); }
KVCUDA_MATHS_1(sqrt) KVCUDA_MATHS_1(cbrt) KVCUDA_MATHS_1(exp) KVCUDA_MATHS_1(exp2) KVCUDA_MATHS_1(expm1)
KVCUDA_MATHS_1(log) KVCUDA_MATHS_1(log2) KVCUDA_MATHS_1(log10) KVCUDA_MATHS_1(log1p)
KVCUDA_MATHS_1(sin) KVCUDA_MATHS_1(cos) KVCUDA_MATHS_1(tan) KVCUDA_MATHS_1(asin) KVCUDA_MATHS_1(acos)
KVCUDA_MATHS_1(atan) KVCUDA_MATHS_1(sinh) KVCUDA_MATHS_1(cosh) KVCUDA_MATHS_1(tanh) KVCUDA_MATHS_1(asinh)
KVCUDA_MATHS_1(acosh) KVCUDA_MATHS_1(atanh) KVCUDA_MATHS_1(erf) KVCUDA_MATHS_1(erfc) KVCUDA_MATHS_1(tgamma)
KVCUDA_MATHS_1(lgamma) KVCUDA_MATHS_1(ceil) KVCUDA_MATHS_1(floor) KVCUDA_MATHS_1(trunc) KVCUDA_MATHS_1(round)
KVCUDA_MATHS_1(rint) KVCUDA_MATHS_1(nearbyint) KVCUDA_MATHS_1(logb) KVCUDA_MATHS_1(fabs)
KVCUDA_MATHS_2(pow) KVCUDA_MATHS_2(fmod) KVCUDA_MATHS_2(atan2) KVCUDA_MATHS_2(hypot) KVCUDA_MATHS_2(fmax)
KVCUDA_MATHS_2(fmin) KVCUDA_MATHS_2(fdim) KVCUDA_MATHS_2(copysign) KVCUDA_MATHS_2(remainder)
#undef KVCUDA_MATHS_1
#undef KVCUDA_MATHS_2

extern "C" {
double fma(double, double, double);
float fmaf(float, float, float);
double ldexp(double, int);
float ldexpf(float, int);
float scalbnf(float, int);
float frexpf(float, int*);
int ilogbf(float);
float modff(float, float*);
long lrintf(float);
long lroundf(float);
long long llrintf(float);
int abs(int);
long labs(long);
long long llabs(long long);
}
KVCUDA_HELPER float fma(float a, float b, float c) { return fmaf(a, b, c); }
KVCUDA_HELPER long lround(float x) { return lroundf(x); }
KVCUDA_HELPER float exp10f(float x) { return powf(10.0f, x); }
KVCUDA_HELPER float rsqrtf(float x) { return 1.0f / sqrtf(x); }
KVCUDA_HELPER float rsqrt(float x) { return 1.0f / sqrtf(x); }
KVCUDA_HELPER double rsqrt(double x) { return 1.0 / sqrt(x); }
KVCUDA_HELPER long abs(long x) { return labs(x); }
KVCUDA_HELPER long long abs(long long x) { return llabs(x); }
KVCUDA_HELPER float abs(float x) { return fabsf(x); }
KVCUDA_HELPER double abs(double x) { return fabs(x); }
KVCUDA_HELPER bool isnan(float x) { return __builtin_isnan(x); }
KVCUDA_HELPER bool isnan(double x) { return __builtin_isnan(x); }
KVCUDA_HELPER bool isinf(float x) { return __builtin_isinf(x); }
KVCUDA_HELPER bool isinf(double x) { return __builtin_isinf(x); }
KVCUDA_HELPER bool isfinite(float x) { return __builtin_isfinite(x); }
KVCUDA_HELPER bool isfinite(double x) { return __builtin_isfinite(x); }
KVCUDA_HELPER bool signbit(float x) { return __builtin_signbit(x); }
KVCUDA_HELPER float nanf(const char*) { return NAN; }
KVCUDA_HELPER float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
KVCUDA_HELPER float norm3df(float x, float y, float z) { return (float)sqrt((double)x * x + (double)y * y + (double)z * z); }
KVCUDA_HELPER float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
KVCUDA_HELPER float sinpif(float x) { return (float)sin(3.141592653589793 * x); }
KVCUDA_HELPER float cospif(float x) { return (float)cos(3.141592653589793 * x); }
KVCUDA_HELPER void sincosf(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }

#define KVCUDA_MIN_MAX(A, B, C) \
  KVCUDA_HELPER constexpr C min(A a, B b) { return (C)a < (C)b ? (C)a : (C)b; } \
  KVCUDA_HELPER constexpr C max(A a, B b) { return (C)a > (C)b ? (C)a : (C)b; }
#define KVCUDA_MIN_MAX_INTEGER(S, U) \
  KVCUDA_MIN_MAX(S, S, S) KVCUDA_MIN_MAX(U, U, U) KVCUDA_MIN_MAX(S, U, U) KVCUDA_MIN_MAX(U, S, U)
KVCUDA_MIN_MAX_INTEGER(int, unsigned)
KVCUDA_MIN_MAX_INTEGER(long, unsigned long)
KVCUDA_MIN_MAX_INTEGER(long long, unsigned long long)
KVCUDA_MIN_MAX(float, float, float)
KVCUDA_MIN_MAX(double, double, double)
KVCUDA_MIN_MAX(float, double, double)
KVCUDA_MIN_MAX(double, float, double)
#undef KVCUDA_MIN_MAX
KVCUDA_HELPER unsigned umin(unsigned a, unsigned b) { return min(a, b); }
KVCUDA_HELPER unsigned umax(unsigned a, unsigned b) { return max(a, b); }
#undef KVCUDA_MIN_MAX_INTEGER

// The fast variants are exact here: on a GPU they differ in the last bits.
KVCUDA_HELPER float __expf(float x) { return expf(x); }
KVCUDA_HELPER float __exp10f(float x) { return exp10f(x); }
KVCUDA_HELPER float __logf(float x) { return logf(x); }
KVCUDA_HELPER float __log2f(float x) { return log2f(x); }
KVCUDA_HELPER float __log10f(float x) { return log10f(x); }
KVCUDA_HELPER float __powf(float x, float y) { return powf(x, y); }
KVCUDA_HELPER float __sinf(float x) { return sinf(x); }
KVCUDA_HELPER float __cosf(float x) { return cosf(x); }
KVCUDA_HELPER float __tanf(float x) { return tanf(x); }
KVCUDA_HELPER void __sincosf(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }
KVCUDA_HELPER float __fdividef(float a, float b) { return a / b; }
KVCUDA_HELPER float __fadd_rn(float a, float b) { return a + b; }
KVCUDA_HELPER float __fsub_rn(float a, float b) { return a - b; }
KVCUDA_HELPER float __fmul_rn(float a, float b) { return a * b; }
KVCUDA_HELPER float __fdiv_rn(float a, float b) { return a / b; }
KVCUDA_HELPER float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
KVCUDA_HELPER float __frcp_rn(float x) { return 1.0f / x; }
KVCUDA_HELPER float __fsqrt_rn(float x) { return sqrtf(x); }
KVCUDA_HELPER float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
KVCUDA_HELPER float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// A float beyond the integer's range gives the nearest end, NaN gives 0, as on a GPU.
namespace kvcuda {
template <class I> KVCUDA_PLAIN inline I clamped(double x, I low, I high) {
  return x != x ? I(0) : x <= (double)low ? low : x >= (double)high ? high : (I)x;
}
}  // namespace kvcuda
#define KVCUDA_TO_INTEGER(NAME, T, LOW, HIGH) \
  KVCUDA_HELPER T NAME##_rn(float x) { return kvcuda::clamped<T>(rint((double)x), LOW, HIGH); } \
  KVCUDA_HELPER T NAME##_rz(float x) { return kvcuda::clamped<T>(trunc((double)x), LOW, HIGH); } \
  KVCUDA_HELPER T NAME##_ru(float x) { return kvcuda::clamped<T>(ceil((double)x), LOW, HIGH); } \
  KVCUDA_HELPER T NAME##_rd(float x) { return kvcuda::clamped<T>(floor((double)x), LOW, HIGH); }
KVCUDA_TO_INTEGER(__float2int, int, -2147483647 - 1, 2147483647)
KVCUDA_TO_INTEGER(__float2uint, unsigned, 0u, 4294967295u)
KVCUDA_TO_INTEGER(__float2ll, long long, -9223372036854775807ll - 1, 9223372036854775807ll)
#undef KVCUDA_TO_INTEGER
KVCUDA_HELPER float __int2float_rn(int x) { return (float)x; }
KVCUDA_HELPER float __uint2float_rn(unsigned x) { return (float)x; }
KVCUDA_HELPER float __double2float_rn(double x) { return (float)x; }
KVCUDA_HELPER float __int_as_float(int x) { return kvcuda::bits_as<float>(x); }
KVCUDA_HELPER float __uint_as_float(unsigned x) { return kvcuda::bits_as<float>(x); }
KVCUDA_HELPER int __float_as_int(float x) { return kvcuda::bits_as<int>(x); }
KVCUDA_HELPER unsigned __float_as_uint(float x) { return kvcuda::bits_as<unsigned>(x); }
KVCUDA_HELPER double __longlong_as_double(long long x) { return kvcuda::bits_as<double>(x); }
KVCUDA_HELPER long long __double_as_longlong(double x) { return kvcuda::bits_as<long long>(x); }

KVCUDA_HELPER int __popc(unsigned x) { return __builtin_popcount(x); }
KVCUDA_HELPER int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
KVCUDA_HELPER int __clz(int x) { return x ? __builtin_clz(x) : 32; }
KVCUDA_HELPER int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
KVCUDA_HELPER int __ffs(int x) { return __builtin_ffs(x); }
KVCUDA_HELPER int __ffsll(long long x) { return __builtin_ffsll(x); }
KVCUDA_HELPER int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
KVCUDA_HELPER unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
KVCUDA_HELPER int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
KVCUDA_HELPER unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
KVCUDA_HELPER unsigned __sad(int a, int b, unsigned sum) { return sum + (unsigned)(a < b ? b - a : a - b); }
KVCUDA_HELPER unsigned __usad(unsigned a, unsigned b, unsigned sum) { return sum + (a < b ? b - a : a - b); }
KVCUDA_HELPER unsigned __brev(unsigned x) {
  unsigned out = 0;
  for (int i = 0; i < 32; i++) out |= (x >> i & 1u) << (31 - i);
  return out;
}
KVCUDA_HELPER unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; i++) {
    unsigned pick = selector >> (4 * i) & 15, byte = (unsigned)(both >> (8 * (pick & 7))) & 255;
    out |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return out;
}
KVCUDA_HELPER unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
KVCUDA_HELPER unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
KVCUDA_HELPER int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; i++) sum += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
  return sum;
}

// Loads and stores with a cache hint: ordinary ones, since there is no cache here.
#define __ldg(address) (*(address))
#define __ldca(address) (*(address))
#define __ldcg(address) (*(address))
#define __ldcs(address) (*(address))
#define __stcg(address, value) ((void)(*(address) = (value)))
#define __stcs(address, value) ((void)(*(address) = (value)))
