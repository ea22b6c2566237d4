// half and half2. Subset of CUDA's header of this name.
#pragma once
#include "kvcuda/device.h"
#include "kvcuda/small_float.h"

KVCUDA_SMALL_FLOAT(__half, __half2, half_to_float, float_to_half)
typedef __half half;
typedef __half2 half2;

KVCUDA_HELPER float __half2float(__half x) { return x; }
KVCUDA_HELPER __half __float2half(float x) { return x; }
KVCUDA_HELPER __half __float2half_rn(float x) { return x; }
KVCUDA_HELPER __half __double2half(double x) { return x; }
KVCUDA_HELPER __half __int2half_rn(int x) { return x; }
KVCUDA_HELPER int __half2int_rn(__half x) { return __float2int_rn(x); }
KVCUDA_HELPER int __half2int_rz(__half x) { return __float2int_rz(x); }
KVCUDA_HELPER unsigned short __half_as_ushort(__half x) { return x.bits; }
KVCUDA_HELPER __half __ushort_as_half(unsigned short bits) { return kvcuda::bits_as<__half>(bits); }
KVCUDA_HELPER __half2 __halves2half2(__half low, __half high) { return __half2(low, high); }
KVCUDA_HELPER __half2 __half2half2(__half x) { return __half2(x, x); }
KVCUDA_HELPER __half2 __float2half2_rn(float x) { return __half2(x, x); }
KVCUDA_HELPER __half2 __floats2half2_rn(float low, float high) { return __half2(low, high); }
KVCUDA_HELPER __half2 __float22half2_rn(float2 v) { return __half2(v.x, v.y); }
KVCUDA_HELPER float2 __half22float2(__half2 v) { return {v.x, v.y}; }
KVCUDA_HELPER __half __low2half(__half2 v) { return v.x; }
KVCUDA_HELPER __half __high2half(__half2 v) { return v.y; }
KVCUDA_HELPER __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
KVCUDA_HELPER __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
