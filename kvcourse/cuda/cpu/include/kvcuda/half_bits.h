// 16-bit floats as bits: to float exactly, from float rounded to nearest even.
#pragma once

namespace kvcuda {
inline __attribute__((no_sanitize("thread"))) float float_of(unsigned bits) {
  float out;
  __builtin_memcpy(&out, &bits, 4);
  return out;
}
inline __attribute__((no_sanitize("thread"))) unsigned bits_of(float value) {
  unsigned out;
  __builtin_memcpy(&out, &value, 4);
  return out;
}

inline __attribute__((no_sanitize("thread"))) float half_to_float(unsigned short half) {
  unsigned sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);  // infinity and NaN
  float magnitude = float_of(rest << 13) * 0x1p112f;  // the exponent moves from bias 15 to 127; subnormals come out right
  return float_of(sign | bits_of(magnitude));
}

inline __attribute__((no_sanitize("thread"))) unsigned short float_to_half(float value) {
  unsigned bits = bits_of(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return (unsigned short)0x7fffu;
  if (rest >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);  // 65520 and above round to infinity
  if (rest < 0x38800000u) {  // below 2^-14: adding 0.5 lets the float unit round to a multiple of 2^-24
    return (unsigned short)(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000u));
  }
  return (unsigned short)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
}

inline __attribute__((no_sanitize("thread"))) float bfloat_to_float(unsigned short bfloat) {
  return float_of((unsigned)bfloat << 16);
}

inline __attribute__((no_sanitize("thread"))) unsigned short float_to_bfloat(float value) {
  unsigned bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)0x7fffu;
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
}  // namespace kvcuda
