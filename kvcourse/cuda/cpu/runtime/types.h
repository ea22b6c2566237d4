// What the parts of the runtime share: threads, warps, options, and the state of the launch that is running.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kvcuda/interface.h"

using u8 = uint8_t;
using u32 = uint32_t;
using u64 = uint64_t;
using Index = uint3;

constexpr u32 LANES = 32;
constexpr u32 NOBODY = ~0u;

enum Option : u32 { CHECK = 1, COUNT = 2 };
enum class State : u8 { ready, at_barrier, at_warp, finished };
enum class WarpWork : u8 { sync, shuffle, vote };

// An acquisition: this thread has seen the first `seen` releases of one atomic variable (see order.h).
struct Acquired {
  u32 variable, seen;
};

// One CUDA thread: a fiber with its own stack, and what the checks know about it.
struct Thread : kvcuda_thread {
  u32 number;          // within the block
  State state;
  void* stack_pointer;
  char* stack;

  int barrier_place, barrier_predicate, barrier_answer;
  const void* wait_where;  // return address of the call in which it waits
  WarpWork warp_work;
  u32 mask;
  u64 deposit;         // the value it brought to a warp function
  u32 present;         // lanes that took part in its last warp function

  u32 path;            // how it was called (see sites.h)
  std::vector<u32> callers;
  u32 busy;            // atomics since it last stopped

  u32 clock;           // warp syncs and fences so far in this block
  u32 known[LANES];    // for each lane of its warp: accesses before this clock happened before now
  u32 fence_epoch, fence_clock;  // its last fence, fence_clock 0: none
  bool device_fence;
  std::vector<Acquired> acquired;
};

struct Warp {
  u64 answers[LANES];  // deposits of the last warp function, kept until every lane has read its answer
  u32 finished;        // lanes
  u32 active;          // lanes that had not finished when the warp last went on
};

// The launch that is running.
struct Launch {
  u32 options = 0;
  u32 threads = 0;         // in a block
  u64 block_number = 0;
  u32 epoch = 0;           // barriers passed in this block
  bool stopped = false;    // a fault ended it
  double seconds = 0;      // of the processor
  volatile bool out_of_time = false;
  Thread* now = nullptr;   // the thread that is running
  std::vector<Thread> thread;
  std::vector<Warp> warp;
  void* scheduler = nullptr;  // its stack pointer while a thread runs
  u32 left = 0;               // threads of the block that have not finished
};
// The lanes of one warp that run one after the other: each hands on to the next without going through the scheduler.
struct Turn {
  const u32* lanes;  // in the order of this launch
  u32 first, next;   // the warp's first thread, the position in lanes
  bool paused;       // somebody gave way inside a waiting loop
};
static Turn turn;
static Launch launch;

// The compiled kernel in memory.
struct Image {
  u64 low = 0, high = 0;            // its code and data
  u64 data_low = 0, data_high = 0;  // what of it can be written
  u64 moved = 0;                    // address now minus address in the file
  void (*start)(void**) = nullptr;
};
static Image image;

extern "C" {
kvcuda_thread* kvcuda_running;
uint3 kvcuda_grid_size, kvcuda_block_size;
}

static inline Index index_in(u64 number, const Index& size) {
  return {(u32)(number % size.x), (u32)(number / size.x % size.y), (u32)(number / size.x / size.y)};
}
