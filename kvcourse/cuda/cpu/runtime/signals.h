// Signals that a kernel may cause: a bad address, a division by zero, its time used up.
#pragma once
#include <csignal>
#include <sys/time.h>
#include <ucontext.h>

#include "memory.h"

static u64 code_address(void* context) {
#if defined(__x86_64__)
  return (u64)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#else
  return ((ucontext_t*)context)->uc_mcontext.pc;
#endif
}
static bool in_kernel(u64 code) { return code >= image.low && code < image.high; }
// Allocates nothing: the signal may have struck inside malloc. Sites are return addresses, hence the 1.
static u32 site_at(u64 code) {
  if (sites.size() == sites.capacity()) return 0;
  u32 path = launch.now->path;
  if (in_kernel(code)) sites.push_back({code + 1 - image.moved, path});
  else if (path) sites.push_back({paths[path].caller, paths[path].parent});
  else return 0;
  return (u32)sites.size() - 1;
}

static void on_bad_address(int signal_number, siginfo_t* info, void* context) {
  if (!launch.now) {
    signal(signal_number, SIG_DFL);
    return;
  }
  u64 address = (u64)info->si_addr;
  u32 site = site_at(code_address(context));
  if (on_a_stack(address) && address % STACK < GUARD) refuse("stack-overflow", site, nullptr, address, 0, false);
  if (address - arena < SLOT * SLOTS) refuse("out-of-bounds", site, nearest_buffer(address), address, 0, false);
  if (const Object* buffer = buffer_with_room(address)) refuse("out-of-bounds", site, buffer, address, 0, false);
  if (address && address < 65536) refuse("null-pointer", site, nullptr, address, 0, false);
  refuse("wild-pointer", site, nullptr, address, 0, false);
}
static void on_bad_division(int signal_number, siginfo_t*, void* context) {
  if (!launch.now) {
    signal(signal_number, SIG_DFL);
    return;
  }
  new_fault("division", site_at(code_address(context)));
  stop();
}
// The next access or wait stops the launch, with everything in order. A loop that does neither is stopped right here,
// on the third try, unless the signal struck inside the runtime or the C library.
static void on_time(int, siginfo_t*, void* context) {
  static int tries = 0;
  launch.out_of_time = true;
  if (++tries >= 3 && launch.now && in_kernel(code_address(context))) stop_for_time(site_at(code_address(context)));
  itimerval soon = {{0, 0}, {0, 5000}};
  setitimer(ITIMER_PROF, &soon, nullptr);
}

static void catch_signals(u32 milliseconds) {
  static char stack[64 << 10];
  stack_t own = {};
  own.ss_sp = stack;
  own.ss_size = sizeof stack;
  sigaltstack(&own, nullptr);
  auto handle = [](int number, void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(number, &action, nullptr);
  };
  handle(SIGSEGV, on_bad_address);
  handle(SIGBUS, on_bad_address);
  handle(SIGFPE, on_bad_division);
  handle(SIGPROF, on_time);
  sites.reserve(1 << 16);  // room for site_at
  itimerval limit = {{0, 0}, {milliseconds / 1000, (int)(milliseconds % 1000) * 1000}};
  setitimer(ITIMER_PROF, &limit, nullptr);  // time of the processor: a busy machine is not the kernel's fault
}
