// Atomic functions, for the types that CUDA has them for. Threads run one at a time, so plain arithmetic is atomic.
#pragma once

#define KVCUDA_ONE_ATOMIC(NAME, T, RESULT) \
  KVCUDA_HELPER T NAME(T* address, T value) { \
    kvcuda_atomic(KVCUDA_HERE, address, sizeof(T), 0); \
    T old = *address; \
    *address = RESULT; \
    return old; \
  }
#define KVCUDA_ATOMIC(NAME, T, RESULT) \
  KVCUDA_ONE_ATOMIC(NAME, T, RESULT) KVCUDA_ONE_ATOMIC(NAME##_block, T, RESULT) KVCUDA_ONE_ATOMIC(NAME##_system, T, RESULT)
#define KVCUDA_ATOMIC_INTEGER(NAME, RESULT) \
  KVCUDA_ATOMIC(NAME, int, RESULT) KVCUDA_ATOMIC(NAME, unsigned, RESULT) KVCUDA_ATOMIC(NAME, unsigned long long, RESULT)

KVCUDA_ATOMIC_INTEGER(atomicAdd, old + value)
KVCUDA_ATOMIC(atomicAdd, float, old + value)
KVCUDA_ATOMIC(atomicAdd, double, old + value)
KVCUDA_ATOMIC(atomicSub, int, old - value)
KVCUDA_ATOMIC(atomicSub, unsigned, old - value)
KVCUDA_ATOMIC_INTEGER(atomicExch, value)
KVCUDA_ATOMIC(atomicExch, float, value)
KVCUDA_ATOMIC_INTEGER(atomicMin, old < value ? old : value)
KVCUDA_ATOMIC(atomicMin, long long, old < value ? old : value)
KVCUDA_ATOMIC_INTEGER(atomicMax, old > value ? old : value)
KVCUDA_ATOMIC(atomicMax, long long, old > value ? old : value)
KVCUDA_ATOMIC_INTEGER(atomicAnd, old & value)
KVCUDA_ATOMIC_INTEGER(atomicOr, old | value)
KVCUDA_ATOMIC_INTEGER(atomicXor, old ^ value)
KVCUDA_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
KVCUDA_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#undef KVCUDA_ATOMIC_INTEGER
#undef KVCUDA_ATOMIC
#undef KVCUDA_ONE_ATOMIC

#define KVCUDA_CAS(NAME, T) \
  KVCUDA_HELPER T NAME(T* address, T expected, T value) { \
    kvcuda_atomic(KVCUDA_HERE, address, sizeof(T), 1); \
    T old = *address; \
    if (old == expected) *address = value; \
    return old; \
  }
KVCUDA_CAS(atomicCAS, int)
KVCUDA_CAS(atomicCAS, unsigned)
KVCUDA_CAS(atomicCAS, unsigned long long)
KVCUDA_CAS(atomicCAS, unsigned short)
KVCUDA_CAS(atomicCAS_block, int)
KVCUDA_CAS(atomicCAS_block, unsigned)
#undef KVCUDA_CAS
