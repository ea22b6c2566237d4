// What a checked kernel calls. The compiler, told -fsanitize=thread, calls __tsan_* before every load and store, and
// told -fsanitize=bounds, __ubsan_handle_out_of_bounds when an index is outside its array. The sanitizers' own
// libraries are not linked: these functions take their place.
#pragma once
#include "memory.h"

#define CALLER __builtin_return_address(0)
#define KVCUDA_ACCESS_HOOKS(SIZE) \
  void __tsan_read##SIZE(void* p) { check_access((u64)p, SIZE, false, false, CALLER); } \
  void __tsan_write##SIZE(void* p) { check_access((u64)p, SIZE, true, false, CALLER); } \
  void __tsan_unaligned_read##SIZE(void* p) { check_range(p, SIZE, false, CALLER); } \
  void __tsan_unaligned_write##SIZE(void* p) { check_range(p, SIZE, true, CALLER); } \
  void __tsan_volatile_read##SIZE(void* p) { check_volatile((u64)p, SIZE, false, CALLER); } \
  void __tsan_volatile_write##SIZE(void* p) { check_volatile((u64)p, SIZE, true, CALLER); } \
  void __tsan_unaligned_volatile_read##SIZE(void* p) { check_range(p, SIZE, false, CALLER); } \
  void __tsan_unaligned_volatile_write##SIZE(void* p) { check_range(p, SIZE, true, CALLER); }

static void give_way(const void* where) {
  Thread& me = *launch.now;
  if (launch.out_of_time) stop_for_time(site_of(where, me.path));
  if (++me.busy % 64) return;
  settle_write();
  settle_read();
  turn.paused = true;
  hand_on();
}

// In global memory volatile works as an atomic load or store would: a flag that one thread sets and another waits for.
static void check_volatile(u64 address, u32 size, bool write, const void* where) {
  if (!launch.now) return;
  give_way(where);
  bool global = address - arena < SLOT * SLOTS;
  if (global && launch.options & CHECK) on_atomic(*launch.now, address);
  check_access(address, size, write, global, where);
}

extern "C" {
KVCUDA_ACCESS_HOOKS(1)
KVCUDA_ACCESS_HOOKS(2)
KVCUDA_ACCESS_HOOKS(4)
KVCUDA_ACCESS_HOOKS(8)
KVCUDA_ACCESS_HOOKS(16)
void __tsan_read_range(void* p, u64 bytes) { check_range(p, bytes, false, CALLER); }
void __tsan_write_range(void* p, u64 bytes) { check_range(p, bytes, true, CALLER); }
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void* caller) {
  if (!launch.now) return;
  launch.now->callers.push_back(launch.now->path);
  launch.now->path = path_into(launch.now->path, caller);
}
void __tsan_func_exit() {
  if (!launch.now || launch.now->callers.empty()) return;
  launch.now->path = launch.now->callers.back();
  launch.now->callers.pop_back();
}

void* kvcuda_copy(void* to, const void* from, kvcuda_size bytes) {
  if (launch.options & CHECK && launch.now) {  // clang copies every small struct here: mostly from stack to stack
    if ((u64)from - (u64)launch.now->stack >= STACK) check_range(from, bytes, false, CALLER);
    if ((u64)to - (u64)launch.now->stack >= STACK) check_range(to, bytes, true, CALLER);
  }
  return memmove(to, from, bytes);
}
void* kvcuda_fill(void* to, int value, kvcuda_size bytes) {
  if (launch.options & CHECK) check_range(to, bytes, true, CALLER);
  return memset(to, value, bytes);
}
void* __tsan_memcpy(void* to, const void* from, kvcuda_size bytes) {
  check_range(from, bytes, false, CALLER);
  check_range(to, bytes, true, CALLER);
  return memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, kvcuda_size bytes) {
  check_range(to, bytes, true, CALLER);
  return memset(to, value, bytes);
}

void __ubsan_handle_out_of_bounds(void* data, u64 index) {
  if (!launch.now) return;
  settle_write();
  struct Place { const char* file; u32 line, column; };
  struct Type { unsigned short kind, info; char name[1]; };
  struct Data { Place place; const Type* array; const Type* index; };
  if (Fault* fault = new_fault("array-index", site_here(CALLER))) {
    fault->detail = ((Data*)data)->array->name;
    fault->number = (int64_t)index;
  }
  stop();
}

uint3 kvcuda_thread_index() { return kvcuda_running->thread; }
uint3 kvcuda_block_index() { return kvcuda_running->block; }
uint3 kvcuda_block_dim() { return kvcuda_block_size; }
uint3 kvcuda_grid_dim() { return kvcuda_grid_size; }
int kvcuda_lane() { return kvcuda_running->lane; }
void __ubsan_handle_divrem_overflow(void*, u64, u64) {  // not every processor stops at a division by zero by itself
  if (!launch.now) return;
  settle_write();
  new_fault("division", site_here(CALLER));
  stop();
}

void kvcuda_fence(int scope) {
  if (launch.options & CHECK) on_fence(*launch.now, scope == KVCUDA_DEVICE);
}
void kvcuda_atomic(const void* where, const void* place, unsigned size, int compares) {
  u64 address = (u64)place;
  totals.atomics++;
  if (compares && launch.options & CHECK) {
    const Object* object = object_at(address, size, true, where);
    if (object && object->cells) forgive_read(*object, address);
  }
  give_way(where ? where : CALLER);
  if (!(launch.options & CHECK)) return;
  on_atomic(*launch.now, address);
  check_access(address, size, true, true, where);
}
void kvcuda_pause() { give_way(CALLER); }
void kvcuda_trap(const char* why) {
  if (Fault* fault = new_fault("trap", site_here(CALLER))) fault->detail = why;
  stop();
}
}
