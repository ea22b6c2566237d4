// Happens-before: which earlier accesses the running thread may rely on.
//
// Within a block a barrier orders everything (the epoch rises). Within a warp __syncwarp orders the lanes of its mask:
// each lane keeps a clock and knows, for every lane, up to which clock it has seen it. Beyond that, atomics carry order:
// a thread that fences and then writes an atomic variable releases what it did before the fence, and whoever uses that
// variable later acquires it. Releases are kept as a list per variable, so an acquisition is just a length of that list.
#pragma once
#include <algorithm>
#include <unordered_map>

#include "types.h"

struct Release {
  u64 block;
  u32 thread;             // within the block
  u32 epoch, clock;       // of its fence: covers its own accesses before, and everybody's of earlier epochs
  bool device;            // false: __threadfence_block, which other blocks may not rely on
  u32 lanes;              // index of a row in Order::rows, 0 when its warp had not synced
  std::vector<Acquired> relied;  // what the releasing thread itself had acquired
};
struct Variable {
  std::vector<Release> releases;
  std::unordered_map<u64, std::vector<u32>> by_block;
  bool relies = false;    // some release rests on another variable
};
struct Order {
  std::unordered_map<u64, u32> number;  // address of an atomic variable -> index in variables
  std::vector<Variable> variables;
  std::vector<std::vector<u32>> rows = std::vector<std::vector<u32>>(1);
  std::vector<Acquired> by_barrier;     // acquired by any thread of the block before its last barrier
  bool any_fence = false;
};
static Order order;

static void add_acquired(std::vector<Acquired>& list, Acquired more) {
  for (Acquired& one : list) {
    if (one.variable == more.variable) {
      one.seen = std::max(one.seen, more.seen);
      return;
    }
  }
  list.push_back(more);
}

static void on_fence(Thread& me, bool device) {
  order.any_fence = true;
  me.clock++;
  me.known[me.lane] = me.clock;
  me.fence_epoch = launch.epoch;
  me.fence_clock = me.clock;
  me.device_fence = device;
}

static void on_atomic(Thread& me, u64 address) {
  if (!order.any_fence) return;  // nobody released anything yet
  auto [place, fresh] = order.number.try_emplace(address, (u32)order.variables.size());
  if (fresh) order.variables.emplace_back();
  Variable& variable = order.variables[place->second];
  if (!variable.releases.empty()) add_acquired(me.acquired, {place->second, (u32)variable.releases.size()});
  if (!me.fence_clock) return;
  Release release{launch.block_number, me.number, me.fence_epoch, me.fence_clock, me.device_fence, 0, {}};
  for (u32 lane = 0; lane < LANES && !release.lanes; lane++) {
    if (me.known[lane] && (int)lane != me.lane) {
      release.lanes = (u32)order.rows.size();
      order.rows.emplace_back(me.known, me.known + LANES);
    }
  }
  for (auto& one : me.acquired) if (one.variable != place->second) release.relied.push_back(one);
  for (auto& one : order.by_barrier) if (one.variable != place->second) add_acquired(release.relied, one);
  variable.relies = variable.relies || !release.relied.empty();
  variable.by_block[release.block].push_back((u32)variable.releases.size());
  variable.releases.push_back(std::move(release));
}

static void on_barrier() {
  if (!order.any_fence) {
    launch.epoch++;
    return;
  }
  bool all_fenced = true;
  for (Thread& one : launch.thread) {
    for (Acquired more : one.acquired) add_acquired(order.by_barrier, more);
    one.acquired.clear();
    bool fenced = one.fence_clock && one.fence_epoch == launch.epoch && one.device_fence;
    all_fenced = all_fenced && (fenced || one.state == State::finished);
  }
  launch.epoch++;
  if (!all_fenced) return;
  for (Thread& one : launch.thread) {  // everybody fenced: the barrier then works as a fence for each of them
    one.fence_epoch = launch.epoch;
    one.fence_clock = std::max(one.clock, 1u);
  }
}

static void on_syncwarp(u32 first_thread, u32 lanes) {
  Thread* warp = &launch.thread[first_thread];
  u32 known[LANES] = {};
  std::vector<Acquired> acquired;
  for (u32 lane = 0; lane < LANES; lane++) {
    if (!(lanes >> lane & 1)) continue;
    warp[lane].clock++;
    warp[lane].known[lane] = warp[lane].clock;
    for (u32 other = 0; other < LANES; other++) known[other] = std::max(known[other], warp[lane].known[other]);
    for (Acquired one : warp[lane].acquired) add_acquired(acquired, one);
  }
  for (u32 lane = 0; lane < LANES; lane++) {
    if (!(lanes >> lane & 1)) continue;
    memcpy(warp[lane].known, known, sizeof known);
    if (!acquired.empty()) warp[lane].acquired = acquired;
  }
}

static bool covered(const std::vector<Acquired>& list, u64 block, u32 thread, u32 epoch, u32 clock, int depth) {
  for (Acquired one : list) {
    const Variable& variable = order.variables[one.variable];
    auto found = variable.by_block.find(block);
    if (found != variable.by_block.end()) {
      for (u32 index : found->second) {
        if (index >= one.seen) break;
        const Release& release = variable.releases[index];
        if (!release.device && block != launch.block_number) continue;
        if (epoch < release.epoch) return true;
        if (epoch != release.epoch) continue;
        if (thread == release.thread && clock < release.clock) return true;
        bool same_warp = thread / LANES == release.thread / LANES;
        if (same_warp && release.lanes && clock < order.rows[release.lanes][thread % LANES]) return true;
      }
    }
    if (depth == 0 || !variable.relies) continue;
    for (u32 index = 0; index < one.seen; index++) {
      const Release& release = variable.releases[index];
      if (!release.relied.empty() && covered(release.relied, block, thread, epoch, clock, depth - 1)) return true;
    }
  }
  return false;
}

// Did this access of another thread happen before now, for the running thread?
static bool happened_before(u64 number_in_grid, u32 epoch, u32 clock) {
  const Thread& me = *launch.now;
  u64 first = launch.block_number * launch.threads, number = number_in_grid - first;
  bool same_block = number < launch.threads;
  if (same_block) {
    if (number == me.number || epoch < launch.epoch) return true;
    if (number / LANES == me.number / LANES && clock < me.known[number % LANES]) return true;
  }
  if (me.acquired.empty() && order.by_barrier.empty()) return false;
  u64 block = same_block ? launch.block_number : number_in_grid / launch.threads;
  u32 thread = (u32)(same_block ? number : number_in_grid % launch.threads);
  return covered(me.acquired, block, thread, epoch, clock, 4) || covered(order.by_barrier, block, thread, epoch, clock, 4);
}
