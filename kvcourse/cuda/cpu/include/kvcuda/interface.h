// The border between a kernel compiled for the CPU and the runtime that runs it: every call that crosses it.
#pragma once

struct uint3 { unsigned x, y, z; };

// Who is running: what a kernel may ask about its own thread.
struct kvcuda_thread {
  uint3 thread, block;
  int lane, warp;
};

enum kvcuda_shuffle_kind { KVCUDA_FROM_LANE, KVCUDA_UP, KVCUDA_DOWN, KVCUDA_XOR };
enum kvcuda_vote_kind { KVCUDA_BALLOT, KVCUDA_MATCH };
enum kvcuda_scope { KVCUDA_BLOCK, KVCUDA_DEVICE };
typedef __SIZE_TYPE__ kvcuda_size;

extern "C" {
extern kvcuda_thread* kvcuda_running;
extern uint3 kvcuda_grid_size, kvcuda_block_size;
extern unsigned char kvcuda_dynamic_shared[];

// `where` is a return address inside the kernel: it names the line in reports (null in the fast build).
uint3 kvcuda_thread_index();
uint3 kvcuda_block_index();
uint3 kvcuda_block_dim();
uint3 kvcuda_grid_dim();
int kvcuda_lane();
int kvcuda_barrier(int place, int predicate);  // gives the number of threads whose predicate was not zero
void kvcuda_syncwarp(const void* where, unsigned mask);
unsigned long long kvcuda_shuffle(const void* where, unsigned mask, unsigned long long bits, int kind, int operand, int width);
unsigned kvcuda_vote(const void* where, unsigned mask, unsigned long long bits, int kind);
unsigned kvcuda_active_mask();
void kvcuda_fence(int scope);
// Called right before an atomic takes place; `compares` marks atomicCAS, which makes up for a plain read before it.
void kvcuda_atomic(const void* where, const void* address, unsigned size, int compares);
void kvcuda_pause();
void kvcuda_trap(const char* why);
void* kvcuda_copy(void* to, const void* from, kvcuda_size bytes);
void* kvcuda_fill(void* to, int value, kvcuda_size bytes);
int kvcuda_printf(const char* format, ...);
long long kvcuda_clock();
}
