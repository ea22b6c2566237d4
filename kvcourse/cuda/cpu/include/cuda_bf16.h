// bfloat16 and its pair. Subset of CUDA's header of this name.
#pragma once
#include "kvcuda/device.h"
#include "kvcuda/small_float.h"

KVCUDA_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, bfloat_to_float, float_to_bfloat)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

KVCUDA_HELPER float __bfloat162float(__nv_bfloat16 x) { return x; }
KVCUDA_HELPER __nv_bfloat16 __float2bfloat16(float x) { return x; }
KVCUDA_HELPER __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
KVCUDA_HELPER unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
KVCUDA_HELPER __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return kvcuda::bits_as<__nv_bfloat16>(bits); }
KVCUDA_HELPER __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) { return {low, high}; }
KVCUDA_HELPER __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
KVCUDA_HELPER __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
KVCUDA_HELPER __nv_bfloat162 __floats2bfloat162_rn(float low, float high) { return {low, high}; }
KVCUDA_HELPER __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
KVCUDA_HELPER float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
KVCUDA_HELPER __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
KVCUDA_HELPER __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
