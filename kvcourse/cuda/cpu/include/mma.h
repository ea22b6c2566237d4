// Tensor-core matrices of 16 x 16 x 16. Which lane holds which element is hidden in CUDA too: here lane l holds the
// eight elements from 8 l on, row by row. Products are exact and summed in float.
#pragma once
#include "kvcuda/device.h"

namespace nvcuda {
namespace wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Layout> struct by_columns { static constexpr bool value = false; };
template <> struct by_columns<col_major> { static constexpr bool value = true; };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "on a CPU there are fragments of 16 x 16 x 16 only");
  static constexpr int num_elements = 8;
  T x[8];
};

template <class Fragment, class T> inline void fill_fragment(Fragment& f, T value) {
  for (int i = 0; i < 8; i++) f.x[i] = value;
}
template <class Use, class T, class Layout, class P>
inline void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& f, const P* from, unsigned stride) {
  for (int i = 0; i < 8; i++) {
    int e = kvcuda_lane() * 8 + i, row = e / 16, column = e % 16;
    f.x[i] = by_columns<Layout>::value ? from[column * stride + row] : from[row * stride + column];
  }
}
template <class T, class P>
inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& f, const P* from, unsigned stride, layout_t layout) {
  for (int i = 0; i < 8; i++) {
    int e = kvcuda_lane() * 8 + i, row = e / 16, column = e % 16;
    f.x[i] = layout == mem_col_major ? from[column * stride + row] : from[row * stride + column];
  }
}
template <class T, class P>
inline void store_matrix_sync(P* to, const fragment<accumulator, 16, 16, 16, T>& f, unsigned stride, layout_t layout) {
  for (int i = 0; i < 8; i++) {
    int e = kvcuda_lane() * 8 + i, row = e / 16, column = e % 16;
    to[layout == mem_row_major ? row * stride + column : column * stride + row] = f.x[i];
  }
}
template <class D, class A, class B, class C> inline void mma_sync(D& d, const A& a, const B& b, const C& c) {
  int row = kvcuda_lane() / 2, first_column = kvcuda_lane() % 2 * 8;
  float left[8], right[8], sum[8];
  for (int i = 0; i < 8; i++) {
    left[i] = a.x[i];
    right[i] = b.x[i];
    sum[i] = c.x[i];
  }
  for (int k = 0; k < 16; k++) {
    float factor = 0;
    for (int j = 0; j < 8; j++) {  // lane 2 row + k / 8 holds a[row][k] as its element k % 8
      float candidate = __shfl_sync(~0u, left[j], row * 2 + k / 8);
      if (j == k % 8) factor = candidate;
    }
    for (int j = 0; j < 8; j++) sum[j] += factor * __shfl_sync(~0u, right[j], k * 2 + first_column / 8);
  }
  for (int i = 0; i < 8; i++) d.x[i] = sum[i];
}
}  // namespace wmma
}  // namespace nvcuda
