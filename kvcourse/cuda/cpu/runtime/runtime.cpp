// The program that runs compiled kernels on the CPU: `runtime kernel.so`. It reads launches from standard input and
// answers each on standard output. Every launch runs in a process of its own, forked from this one, so each starts
// from the same state and a crash harms nobody.
#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <time.h>
#include <sys/wait.h>

#include "reply.h"
#include "signals.h"

#include "kvcuda/half_bits.h"
extern "C" {
float kvcuda_half_to_float(unsigned short x) { return kvcuda::half_to_float(x); }
unsigned short kvcuda_float_to_half(float x) { return kvcuda::float_to_half(x); }
float kvcuda_bfloat_to_float(unsigned short x) { return kvcuda::bfloat_to_float(x); }
unsigned short kvcuda_float_to_bfloat(float x) { return kvcuda::float_to_bfloat(x); }
long long kvcuda_clock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
}

static int find_image(dl_phdr_info* info, size_t, void*) {
  u64 anchor = image.moved;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& segment = info->dlpi_phdr[i];
    u64 low = info->dlpi_addr + segment.p_vaddr, high = low + segment.p_memsz;
    if (segment.p_type != PT_LOAD || anchor < low || anchor >= high) continue;
    for (int j = 0; j < info->dlpi_phnum; j++) {
      const auto& part = info->dlpi_phdr[j];
      if (part.p_type != PT_LOAD) continue;
      u64 start = info->dlpi_addr + part.p_vaddr;
      image.low = image.low ? std::min(image.low, start) : start;
      image.high = std::max(image.high, start + part.p_memsz);
      if (part.p_flags & PF_W) image.data_low = start, image.data_high = start + part.p_memsz;
    }
    return 1;
  }
  return 0;
}

static bool load_kernel(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return false;
  }
  image.start = (void (*)(void**))dlsym(library, "kvcuda_start");
  image.moved = (u64)dlsym(library, "kvcuda_anchor");
  return image.start && image.moved && dl_iterate_phdr(find_image, nullptr);
}

static double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

static int serve_one() {
  if (!make_arena()) return 1;
  const char* error = read_request();
  if (!error) {
    catch_signals(request.milliseconds);
    double before = processor_seconds();
    run_grid((Sequence)request.sequence, request.seed * 2654435761u + 1);
    launch.seconds = processor_seconds() - before;
    itimerval off = {};
    setitimer(ITIMER_PROF, &off, nullptr);
    signal(SIGPROF, SIG_IGN);
  }
  return write_reply(error) && !error ? 0 : 1;
}

int main(int count, char** arguments) {
  if (count != 2 || !load_kernel(arguments[1])) return 2;
  pollfd input = {0, POLLIN, 0};
  while (poll(&input, 1, -1) > 0 && input.revents & POLLIN) {
    pid_t child = fork();
    if (child == 0) _exit(serve_one());
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) < 0) return 1;
    // A child that failed may have left input unread: end, so that the caller starts afresh.
    if (status) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 1;
  }
  return 0;
}
