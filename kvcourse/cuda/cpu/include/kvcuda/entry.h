// How the runtime starts a kernel: from an array of pointers to argument values, whatever its parameter types.
#pragma once

namespace kvcuda {
template <int... I> struct numbers {};
template <int N, int... I> struct count_to : count_to<N - 1, N - 1, I...> {};
template <int... I> struct count_to<0, I...> { using type = numbers<I...>; };
template <class T> struct value_of { using type = T; };
template <class T> struct value_of<T&> { using type = T; };
template <class T> struct value_of<const T> { using type = T; };

template <class... P, int... I> KVCUDA_PLAIN inline void call(void (*kernel)(P...), void** values, numbers<I...>) {
  kernel(*(typename value_of<P>::type*)values[I]...);
}
template <class... P> KVCUDA_PLAIN inline void start(void (*kernel)(P...), void** values) {
  call(kernel, values, typename count_to<sizeof...(P)>::type{});
}
template <class... P> KVCUDA_PLAIN inline int sizes(void (*)(P...), int* out) {
  int each[] = {(int)sizeof(P)..., 0};
  for (unsigned i = 0; i < sizeof...(P); i++) out[i] = each[i];
  return sizeof...(P);
}
}  // namespace kvcuda

// Exported from the compiled kernel; the address of kvcuda_anchor tells the runtime where the image was loaded.
#define KVCUDA_ENTRY(...) \
  extern "C" __attribute__((visibility("default"))) int kvcuda_anchor = 1; \
  extern "C" KVCUDA_PLAIN __attribute__((visibility("default"))) void kvcuda_start(void** kvcuda_values) { \
    kvcuda::start(&__VA_ARGS__, kvcuda_values); \
  } \
  extern "C" KVCUDA_PLAIN __attribute__((visibility("default"))) int kvcuda_sizes(int* kvcuda_out) { \
    return kvcuda::sizes(&__VA_ARGS__, kvcuda_out); \
  }
