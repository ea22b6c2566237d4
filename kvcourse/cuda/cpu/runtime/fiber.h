// Fibers: a switch from one stack to another in a few instructions, and stacks with a guard page below each.
#pragma once
#include <sys/mman.h>

#include "types.h"

extern "C" void kvcuda_switch(void** save_here, void* go_there);

#if defined(__x86_64__)
asm(".text\n.globl kvcuda_switch\nkvcuda_switch:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
static void* first_stack_pointer(char* top, void (*body)()) {
  u64* slot = (u64*)top;
  *--slot = 0;          // keeps the stack aligned as after a call
  *--slot = (u64)body;  // where the first switch returns to
  slot -= 6;
  memset(slot, 0, 6 * sizeof(u64));
  return slot;
}
#elif defined(__aarch64__)
asm(".text\n.globl kvcuda_switch\n.p2align 2\nkvcuda_switch:\n"
    " sub sp,sp,#160\n stp x19,x20,[sp]\n stp x21,x22,[sp,#16]\n stp x23,x24,[sp,#32]\n stp x25,x26,[sp,#48]\n"
    " stp x27,x28,[sp,#64]\n stp x29,x30,[sp,#80]\n stp d8,d9,[sp,#96]\n stp d10,d11,[sp,#112]\n"
    " stp d12,d13,[sp,#128]\n stp d14,d15,[sp,#144]\n mov x9,sp\n str x9,[x0]\n mov sp,x1\n"
    " ldp x19,x20,[sp]\n ldp x21,x22,[sp,#16]\n ldp x23,x24,[sp,#32]\n ldp x25,x26,[sp,#48]\n"
    " ldp x27,x28,[sp,#64]\n ldp x29,x30,[sp,#80]\n ldp d8,d9,[sp,#96]\n ldp d10,d11,[sp,#112]\n"
    " ldp d12,d13,[sp,#128]\n ldp d14,d15,[sp,#144]\n add sp,sp,#160\n ret\n");
static void* first_stack_pointer(char* top, void (*body)()) {
  u64* slot = (u64*)(top - 160);
  memset(slot, 0, 160);
  slot[11] = (u64)body;  // x30, where the first switch returns to
  return slot;
}
#else
#error "the CPU run knows x86-64 and arm64"
#endif

constexpr u64 STACK = 256 << 10, GUARD = 64 << 10;  // only the pages that are touched take memory
static char* stacks;
static u64 stacks_size;

static bool make_stacks(u32 threads) {
  stacks_size = threads * STACK;
  void* memory = mmap(nullptr, stacks_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  stacks = (char*)memory;
  for (u32 i = 0; i < threads; i++) {
    if (mprotect(stacks + i * STACK + GUARD, STACK - GUARD, PROT_READ | PROT_WRITE)) return false;
  }
  return true;
}
static char* stack_of(u32 thread) { return stacks + thread * STACK; }
static bool on_a_stack(u64 address) { return address - (u64)stacks < stacks_size; }

static void to_scheduler() { kvcuda_switch(&launch.now->stack_pointer, launch.scheduler); }

// The next lane of the turn that can run, or null at its end; it becomes the running thread.
static Thread* next_lane() {
  while (turn.next < LANES) {
    u32 number = turn.first + turn.lanes[turn.next++];
    if (number >= launch.threads || launch.thread[number].state != State::ready) continue;
    launch.now = &launch.thread[number];
    kvcuda_running = launch.now;
    return launch.now;
  }
  return nullptr;
}
static void hand_on() {
  Thread& me = *launch.now;
  Thread* next = next_lane();
  kvcuda_switch(&me.stack_pointer, next ? next->stack_pointer : launch.scheduler);
}
