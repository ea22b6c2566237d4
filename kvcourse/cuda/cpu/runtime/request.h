// A launch as it comes in: lines of words, then the contents of the buffers. See run.py, which writes them.
#pragma once
#include <unistd.h>

#include <string>

#include "blocks.h"

struct LaunchRequest {
  u32 milliseconds = 0, sequence = 0, seed = 0;
  u64 anchor = 0;                    // kvcuda_anchor's address in the file
  std::vector<u64> values;           // argument values, 8 bytes each
  std::vector<void*> value_pointers;
};
static LaunchRequest request;

static bool read_all(void* to, u64 bytes) {
  for (u64 done = 0; done < bytes;) {
    ssize_t got = read(0, (char*)to + done, bytes - done);
    if (got <= 0) return false;
    done += (u64)got;
  }
  return true;
}
static bool write_all(const void* from, u64 bytes) {
  for (u64 done = 0; done < bytes;) {
    ssize_t put = write(1, (const char*)from + done, bytes - done);
    if (put <= 0) return false;
    done += (u64)put;
  }
  return true;
}
static char* kept(const char* text) { return strdup(text); }

// One line of the request; false when it makes no sense or there is no room.
static bool take_line(const char* line) {
  char word[32], name[128];
  unsigned long long a, b, before;
  long long offset;
  unsigned flags;
  if (sscanf(line, "%31s", word) != 1) return false;
  std::string kind = word;
  const char* rest = line + kind.size();
  Index& g = kvcuda_grid_size;
  Index& k = kvcuda_block_size;
  if (kind == "grid") return sscanf(rest, "%u %u %u", &g.x, &g.y, &g.z) == 3;
  if (kind == "block") return sscanf(rest, "%u %u %u", &k.x, &k.y, &k.z) == 3;
  if (kind == "options") return sscanf(rest, "%u", &launch.options) == 1;
  if (kind == "order") return sscanf(rest, "%u %u", &request.sequence, &request.seed) == 2;
  if (kind == "limit") return sscanf(rest, "%u", &request.milliseconds) == 1;
  if (kind == "anchor") {
    if (sscanf(rest, "%llu", &a) != 1) return false;
    image.moved -= a;  // image.moved held the anchor's address in memory
    return true;
  }
  if (kind == "shared") {  // dynamic shared memory, bytes
    if (sscanf(rest, "%llu", &a) != 1 || a > DYNAMIC_SHARED) return false;
    dynamic_shared = {"dynamic shared memory", "dynamic", (u64)kvcuda_dynamic_shared, a, true, false, true, true, nullptr};
    return true;
  }
  if (kind == "static") {  // a variable of the kernel's: address size flags name; flags: 1 shared, 2 constant, 4 none of its own
    if (sscanf(rest, "%llu %llu %u %127s", &a, &b, &flags, name) != 4) return false;
    bool shared = flags & 1, constant = flags & 2, counted = !(flags & 6);
    const char* what = shared ? "shared" : constant ? "constant" : "variable";
    statics.push_back({kept(name), what, a + image.moved, b, shared, constant, shared, counted, nullptr});
    return true;
  }
  if (kind == "buffer") {  // size lead before flags name; flags: 1 read-only, 2 unset
    if (sscanf(rest, "%llu %llu %llu %u %127s", &a, &b, &before, &flags, name) != 5) return false;
    return make_buffer(kept(name), a, b, before, flags & 1, flags & 2);
  }
  if (kind == "pointer") {  // buffer offset; it points ahead of a buffer that is a part of a huge array
    if (sscanf(rest, "%llu %lld", &a, &offset) != 2 || a >= buffer_count) return false;
    request.values.push_back(buffers[a].base + (u64)offset);
    return true;
  }
  if (kind == "value") {
    if (sscanf(rest, "%llu", &a) != 1) return false;
    request.values.push_back(a);
    return true;
  }
  return false;
}

// The words up to the line "data", then every buffer's bytes. An error in words, or null.
static const char* read_request() {
  static char line[512];
  for (;;) {
    u32 length = 0;
    for (char c = 0; c != '\n'; line[length++] = c) {
      if (length == sizeof line - 1 || !read_all(&c, 1)) return "the request broke off";
    }
    line[length] = 0;
    if (!strcmp(line, "data\n")) break;
    if (!take_line(line)) return strncmp(line, "buffer", 6) ? "bad request" : "out-of-memory";
  }
  for (u32 i = 0; i < buffer_count; i++) {
    if (!read_all((void*)buffers[i].base, buffers[i].size)) return "the data broke off";
  }
  launch.threads = kvcuda_block_size.x * kvcuda_block_size.y * kvcuda_block_size.z;
  launch.thread.resize(launch.threads);
  launch.warp.resize((launch.threads + LANES - 1) / LANES);
  events.resize(launch.threads);
  for (u64& value : request.values) request.value_pointers.push_back(&value);
  kernel_values = request.value_pointers.data();
  if (!make_stacks(launch.threads) || (launch.options & CHECK && !watch_statics())) return "out-of-memory";
  return nullptr;
}
