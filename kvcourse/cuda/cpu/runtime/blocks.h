// The scheduler: runs the warps of a block in turn, lets a block wait at barriers, notices when nobody can go on.
#pragma once
#include "warps.h"

enum class Sequence : u32 { forward, reverse, shuffled };

static u64 random_below(u64& state, u64 bound) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (state >> 33) % bound;
}
static std::vector<u32> sequence_of(u32 count, Sequence kind, u64& random) {
  std::vector<u32> out(count);
  for (u32 i = 0; i < count; i++) out[i] = kind == Sequence::reverse ? count - 1 - i : i;
  if (kind == Sequence::shuffled) for (u32 i = count; i > 1; i--) std::swap(out[i - 1], out[random_below(random, i)]);
  return out;
}

static void** kernel_values;
static void run_thread() {
  image.start(kernel_values);
  launch.left--;
  launch.warp[launch.now->warp].finished |= 1u << launch.now->lane;
  wait_as(State::finished);
  abort();
}

extern "C" {
int kvcuda_barrier(int place, int predicate) {
  Thread& me = *launch.now;
  me.barrier_place = place;
  me.barrier_predicate = predicate;
  me.wait_where = CALLER;
  wait_as(State::at_barrier);
  return me.barrier_answer;
}
unsigned kvcuda_active_mask() { return launch.warp[launch.now->warp].active; }
}

// Runs a warp until no lane of it can go on. True: something happened.
static bool run_warp(u32 warp_number, const std::vector<u32>& lanes) {
  bool any = false;
  while (!launch.stopped) {
    launch.warp[warp_number].active = lanes_of(warp_number) & ~launch.warp[warp_number].finished;
    turn = {lanes.data(), warp_number * LANES, 0, false};
    Thread* first = next_lane();
    if (first) kvcuda_switch(&launch.scheduler, first->stack_pointer);
    if (launch.stopped) return true;
    launch.now = nullptr;
    any = any || first;
    if (turn.paused) return true;  // a lane waits for another warp, perhaps
    if (first && launch.options & COUNT) count_warp(warp_number);
    if (!release_warp(warp_number)) return any;
  }
  return true;
}

static bool release_barrier() {
  const Thread* first = nullptr;
  int count = 0;
  for (Thread& thread : launch.thread) {
    if (thread.state == State::finished) continue;
    if (thread.state != State::at_barrier) return false;
    if (!first) first = &thread;
    bool same = launch.options & CHECK ? waits_with(thread, *first) : thread.barrier_place == first->barrier_place;
    if (!same) {
      launch.now = &thread;
      if (Fault* fault = new_fault("barrier-diverged", wait_site(thread))) {
        fault->has_other = true;
        fault->other = {first->thread, first->block};
        fault->other_site = wait_site(*first);
      }
      launch.stopped = true;
      return false;
    }
    count += thread.barrier_predicate;
  }
  if (!first) return false;
  if (launch.left != launch.threads) {
    launch.now = const_cast<Thread*>(first);
    if (Fault* fault = new_fault("early-return", wait_site(*first), true)) fault->number = launch.threads - launch.left;
    launch.now = nullptr;
  }
  for (Thread& thread : launch.thread) {
    if (thread.state != State::at_barrier) continue;
    thread.barrier_answer = count;
    thread.state = State::ready;
  }
  totals.barriers++;
  on_barrier();
  return true;
}

// Nobody can go on, and not all wait at a barrier: some lanes wait for others of their warp that will not come.
static void report_deadlock() {
  const Thread* at_barrier = nullptr;
  for (Thread& thread : launch.thread) {
    if (thread.state == State::at_warp && !launch.now) launch.now = &thread;
    if (thread.state == State::at_barrier && !at_barrier) at_barrier = &thread;
  }
  Fault* fault = new_fault("warp-waits-forever", wait_site(*launch.now));
  if (fault && at_barrier) {
    fault->has_other = true;
    fault->other = {at_barrier->thread, at_barrier->block};
    fault->other_site = wait_site(*at_barrier);
  }
  launch.stopped = true;
}

static void start_block(u64 number) {
  launch.block_number = number;
  launch.epoch = 0;
  launch.left = launch.threads;
  order.by_barrier.clear();
  for (const Object& object : statics) if (object.shared) memset((void*)object.base, 0xff, object.size);
  memset(kvcuda_dynamic_shared, 0xff, dynamic_shared.size);  // NaN as a float: unset memory shows
  for (Warp& warp : launch.warp) warp.finished = 0;
  for (u32 i = 0; i < launch.threads; i++) {
    Thread& thread = launch.thread[i];
    thread.thread = index_in(i, kvcuda_block_size);
    thread.block = index_in(number, kvcuda_grid_size);
    thread.lane = i % LANES;
    thread.warp = i / LANES;
    thread.number = i;
    thread.state = State::ready;
    thread.path = thread.busy = thread.clock = thread.fence_clock = thread.fence_epoch = 0;
    thread.callers.clear();
    thread.acquired.clear();
    memset(thread.known, 0, sizeof thread.known);
    thread.stack = stack_of(i);
    thread.stack_pointer = first_stack_pointer(thread.stack + STACK - 64, run_thread);
  }
}

static void run_block(u64 number, Sequence kind, u64& random) {
  start_block(number);
  std::vector<u32> warps = sequence_of((u32)launch.warp.size(), kind, random), lanes = sequence_of(LANES, kind, random);
  while (launch.left && !launch.stopped) {
    bool progress = false;
    for (u32 warp : warps) {
      if (!launch.stopped) progress = run_warp(warp, lanes) || progress;
    }
    if (launch.stopped || !launch.left) break;
    if (!progress && !release_barrier() && !launch.stopped) report_deadlock();
  }
  launch.now = nullptr;
}

static void run_grid(Sequence kind, u64 random) {
  u64 blocks = (u64)kvcuda_grid_size.x * kvcuda_grid_size.y * kvcuda_grid_size.z;
  bool shuffle = kind == Sequence::shuffled && blocks <= 1 << 20;
  std::vector<u32> sequence = shuffle ? sequence_of((u32)blocks, kind, random) : std::vector<u32>();
  for (u64 i = 0; i < blocks && !launch.stopped; i++) {
    run_block(shuffle ? sequence[i] : kind == Sequence::reverse ? blocks - 1 - i : i, kind, random);
  }
}
