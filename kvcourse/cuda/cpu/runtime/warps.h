// Warps: the functions in which the lanes of one warp meet, and who may go on from there.
#pragma once
#include "hooks.h"

static u32 wait_site(const Thread& thread) { return site_of(thread.wait_where, thread.path); }
static bool waits_with(const Thread& one, const Thread& other) {
  return one.wait_where == other.wait_where && one.path == other.path;
}

// A thread stops here: lets others run until it is ready again.
static void wait_as(State state) {
  settle_write();
  settle_read();
  if (launch.out_of_time && state != State::finished) stop_for_time(wait_site(*launch.now));
  launch.now->state = state;
  launch.now->busy = 0;
  hand_on();
}

static void meet(const void* where, u32 mask, u64 deposit, WarpWork work) {
  Thread& me = *launch.now;
  me.wait_where = where;
  if (!(mask >> me.lane & 1)) {
    if (Fault* fault = new_fault("outside-mask", wait_site(me))) fault->number = mask;
    stop();
  }
  me.mask = mask;
  me.deposit = deposit;
  me.warp_work = work;
  wait_as(State::at_warp);
}

extern "C" {
void kvcuda_syncwarp(const void* where, unsigned mask) { meet(where ? where : CALLER, mask, 0, WarpWork::sync); }
unsigned long long kvcuda_shuffle(const void* where, unsigned mask, unsigned long long bits, int kind, int operand, int width) {
  meet(where ? where : CALLER, mask, bits, WarpWork::shuffle);
  const Thread& me = *launch.now;
  int first = me.lane & ~(width - 1), from = me.lane;
  if (kind == KVCUDA_FROM_LANE) from = first + (operand & (width - 1));
  if (kind == KVCUDA_UP && me.lane - operand >= first) from = me.lane - operand;
  if (kind == KVCUDA_DOWN && me.lane + operand < first + width) from = me.lane + operand;
  if (kind == KVCUDA_XOR && (me.lane ^ operand) < first + width) from = me.lane ^ operand;
  if (me.present >> (from & 31) & 1) return launch.warp[me.warp].answers[from & 31];
  if (Fault* fault = new_fault("absent-lane", wait_site(me))) fault->number = from;
  return bits;
}
unsigned kvcuda_vote(const void* where, unsigned mask, unsigned long long bits, int kind) {
  meet(where ? where : CALLER, mask, bits, WarpWork::vote);
  const Thread& me = *launch.now;
  u32 out = 0;
  for (u32 lane = 0; lane < LANES; lane++) {
    if (!(me.present >> lane & 1)) continue;
    u64 theirs = launch.warp[me.warp].answers[lane];
    out |= (kind == KVCUDA_BALLOT ? theirs != 0 : theirs == bits) << lane;
  }
  return out;
}
}

// The lanes that a warp has: all 32 but in the last warp of a block whose size is no multiple.
static u32 lanes_of(u32 warp_number) {
  u32 count = std::min(LANES, launch.threads - warp_number * LANES);
  return count == LANES ? ~0u : (1u << count) - 1;
}

// Lets the lanes that wait with one mask go on, when all of them are there. False: somebody is still missing.
static bool release_group(u32 warp_number, u32 first, u32 here, u32 missing) {
  if (missing) return false;
  Warp& warp = launch.warp[warp_number];
  Thread* lanes = &launch.thread[first];
  const Thread& one = lanes[__builtin_ctz(here)];
  for (u32 lane = 0; lane < LANES; lane++) {
    if (!(here >> lane & 1)) continue;
    Thread& thread = lanes[lane];
    bool same = thread.warp_work == one.warp_work && (!(launch.options & CHECK) || waits_with(thread, one));
    if (!same) {
      launch.now = &thread;
      if (Fault* fault = new_fault("warp-diverged", wait_site(thread))) {
        fault->has_other = true;
        fault->other = {one.thread, one.block};
        fault->other_site = wait_site(one);
      }
      launch.stopped = true;
      return false;
    }
    warp.answers[lane] = thread.deposit;
    thread.present = here;
    thread.state = State::ready;
  }
  totals.warp_functions++;
  if (one.warp_work == WarpWork::sync && launch.options & CHECK) on_syncwarp(first, here);
  return true;
}
static bool release_warp(u32 warp_number) {
  u32 first = warp_number * LANES, count = std::min(LANES, launch.threads - first), waiting = 0;
  u32 exist = lanes_of(warp_number);
  for (u32 lane = 0; lane < count; lane++) waiting |= (launch.thread[first + lane].state == State::at_warp) << lane;
  bool released = false;
  while (waiting && !launch.stopped) {
    u32 mask = launch.thread[first + __builtin_ctz(waiting)].mask, here = 0;
    for (u32 lane = 0; lane < count; lane++) {
      if (waiting >> lane & 1) here |= (launch.thread[first + lane].mask == mask) << lane;
    }
    waiting &= ~here;
    released = release_group(warp_number, first, here, mask & exist & ~launch.warp[warp_number].finished & ~here) || released;
  }
  return released;
}
