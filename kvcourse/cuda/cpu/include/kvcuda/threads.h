// The block: who am I, barriers, fences, printf, assert.
#pragma once

// The check build asks the runtime, which is optimised; the fast build looks for itself.
#ifdef KVCUDA_CHECK
#define threadIdx (kvcuda_thread_index())
#define blockIdx (kvcuda_block_index())
#define blockDim (dim3(kvcuda_block_dim()))
#define gridDim (dim3(kvcuda_grid_dim()))
#else
#define threadIdx (*(const uint3*)&kvcuda_running->thread)
#define blockIdx (*(const uint3*)&kvcuda_running->block)
#define blockDim (dim3(kvcuda_block_size))
#define gridDim (dim3(kvcuda_grid_size))
#endif
#define warpSize 32

// A barrier is known by its place in the text: an optimiser may well duplicate the call.
#define __syncthreads() ((void)kvcuda_barrier(__COUNTER__, 0))
#define __syncthreads_count(predicate) kvcuda_barrier(__COUNTER__, (predicate) != 0)
#define __syncthreads_or(predicate) (kvcuda_barrier(__COUNTER__, (predicate) != 0) > 0)
#define __syncthreads_and(predicate) (kvcuda_barrier(__COUNTER__, (predicate) == 0) == 0)

#define __threadfence_block() kvcuda_fence(KVCUDA_BLOCK)
#define __threadfence() kvcuda_fence(KVCUDA_DEVICE)
#define __threadfence_system() kvcuda_fence(KVCUDA_DEVICE)
#define __nanosleep(ns) ((void)(ns), kvcuda_pause())
#define __trap() kvcuda_trap("__trap() was called")
#define assert(condition) ((condition) ? (void)0 : kvcuda_trap("assert(" #condition ") does not hold"))
#define memcpy(to, from, bytes) kvcuda_copy(to, from, bytes)
#define memset(to, value, bytes) kvcuda_fill(to, value, bytes)

KVCUDA_HELPER long long clock64() { return kvcuda_clock(); }
KVCUDA_HELPER int clock() { return (int)kvcuda_clock(); }
template <class... Args> KVCUDA_PLAIN inline int printf(const char* format, Args... args) { return kvcuda_printf(format, args...); }

#if defined(KVCUDA_CHECK) && defined(__clang__)
// clang copies structs through memcpy and memset, and leaves checking them to whoever defines these.
#undef memcpy
#undef memset
extern "C" KVCUDA_PLAIN __attribute__((visibility("hidden"))) void* memcpy(void* to, const void* from, size_t bytes) {
  return kvcuda_copy(to, from, bytes);
}
extern "C" KVCUDA_PLAIN __attribute__((visibility("hidden"))) void* memset(void* to, int value, size_t bytes) {
  return kvcuda_fill(to, value, bytes);
}
#endif
