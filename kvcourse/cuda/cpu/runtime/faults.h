// What was found: one record a place and kind, filled without allocating, since a fault may strike anywhere.
#pragma once
#include "fiber.h"
#include "sites.h"

struct Who {
  Index thread, block;
};
struct Fault {
  const char* kind;
  bool note;            // worth knowing, no mistake by itself
  u32 site, other_site;
  Who who, other;
  bool has_other, other_wrote;
  const char* object;   // name of the array or buffer
  const char* object_kind;
  u64 object_size;
  int64_t offset;       // byte offset of the access within the object
  u32 size;
  bool write;
  const char* detail;   // static text, or the text of assert
  int64_t number;       // an index, an address
  u64 times;
};
constexpr u32 MOST_FAULTS = 32;
static Fault faults[MOST_FAULTS];
static u32 fault_count;

static Who who_is(u64 number_in_grid) {
  u64 block = number_in_grid / launch.threads;
  return {index_in(number_in_grid % launch.threads, kvcuda_block_size), index_in(block, kvcuda_grid_size)};
}

// The record to fill in, or null when this kind was reported from this place before.
static Fault* new_fault(const char* kind, u32 site, bool note = false) {
  for (u32 i = 0; i < fault_count; i++) {
    if (faults[i].site == site && !strcmp(faults[i].kind, kind)) {
      faults[i].times++;
      return nullptr;
    }
  }
  if (fault_count == MOST_FAULTS) return nullptr;
  Fault& fault = faults[fault_count++];
  fault = Fault{};
  fault.kind = kind;
  fault.note = note;
  fault.site = site;
  fault.times = 1;
  if (launch.now) fault.who = {launch.now->thread, launch.now->block};
  return &fault;
}

// Ends the launch: a thread that cannot go on is never resumed.
[[noreturn]] static void stop() {
  launch.stopped = true;
  to_scheduler();
  abort();
}
[[noreturn]] static void stop_for_time(u32 site) {
  new_fault("time-limit", site);
  stop();
}
