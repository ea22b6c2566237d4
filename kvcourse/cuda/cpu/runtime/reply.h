// The answer to a launch: a line with the length of a JSON text, the text, and the buffers that could be written.
#pragma once
#include <cstdarg>

#include "request.h"

static char output[64 << 10];  // what device printf wrote
static u32 output_length;
// %n, which a GPU does not have, would let printf write to any address.
static bool writes_back(const char* format) {
  for (const char* at = strchr(format, '%'); at; at = strchr(at + 1, '%')) {
    at += 1 + strspn(at + 1, "0123456789 -+#'*.$hlLqjzt");
    if (*at == 'n') return true;
    if (!*at) return false;
  }
  return false;
}
extern "C" int kvcuda_printf(const char* format, ...) {
  if (writes_back(format)) return -1;
  va_list arguments;
  va_start(arguments, format);
  u32 room = sizeof output - output_length;
  int length = vsnprintf(output + output_length, room, format, arguments);
  va_end(arguments);
  if (length > 0) output_length += std::min((u32)length, room - 1);
  return length;
}

// Writes into fixed memory, since it also runs after a signal; too long a text loses samples, never its form.
struct Json {
  char text[8 << 20];
  u32 length = 0;

  void put(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    va_list arguments;
    va_start(arguments, format);
    u32 room = sizeof text - length;
    length += std::min((u32)vsnprintf(text + length, room, format, arguments), room - 1);
    va_end(arguments);
  }
  void string(const char* value, u32 bytes) {
    put("\"");
    for (u32 i = 0; i < bytes; i++) {
      u8 c = (u8)value[i];
      if (c < 32 || c > 126 || c == '"' || c == '\\') put("\\u%04x", c);
      else text[length++] = (char)c;
    }
    put("\"");
  }
  void string(const char* name, const char* value) {
    put("\"%s\":", name);
    string(value ? value : "", value ? (u32)strlen(value) : 0);
    put(",");
  }
  bool nearly_full() const { return length > sizeof text - (1 << 20); }
};
static Json json;

static void put_who(const char* name, const Who& who) {
  const Index &t = who.thread, &b = who.block;
  json.put("\"%s\":[[%u,%u,%u],[%u,%u,%u]],", name, t.x, t.y, t.z, b.x, b.y, b.z);
}
static void put_place(const char* name, u32 site) {
  json.put("\"%s\":[%llu", name, (unsigned long long)sites[site].code);
  for (u32 path = sites[site].path, depth = 0; path && depth < 32; path = paths[path].parent, depth++) {
    json.put(",%llu", (unsigned long long)paths[path].caller);
  }
  json.put("],");
}
static void put_fault(const Fault& fault) {
  json.put("{");
  json.string("kind", fault.kind);
  json.string("object", fault.object);
  json.string("object_kind", fault.object_kind);
  json.string("detail", fault.detail);
  put_place("place", fault.site);
  put_who("who", fault.who);
  if (fault.has_other) {
    put_who("other", fault.other);
    put_place("other_place", fault.other_site);
  }
  json.put("\"object_size\":%llu,\"offset\":%lld,\"size\":%u,", (unsigned long long)fault.object_size,
           (long long)fault.offset, fault.size);
  json.put("\"write\":%d,\"other_wrote\":%d,\"note\":%d,\"number\":%lld,\"times\":%llu}", fault.write, fault.other_wrote, fault.note, (long long)fault.number,
           (unsigned long long)fault.times);
}
static void put_sample(const Sample& sample) {
  json.put("{\"block\":%llu,\"warp\":%u,\"lanes\":%u,", (unsigned long long)sample.block, sample.warp, sample.request.lanes);
  const u64* address = sample.request.address;
  u32 first = __builtin_ctz(sample.request.lanes);
  const Object* object = buffer_with_room(address[first]);
  if (!object) object = address[first] - arena < SLOT * SLOTS ? nearest_buffer(address[first]) : find_static(address[first]);
  if (!object) object = &dynamic_shared;
  json.string("object", object->name);
  json.put("\"start\":%llu,\"offsets\":[", (unsigned long long)(object->base % LINE_UP));
  for (u32 lane = 0; lane < LANES; lane++) {
    bool there = sample.request.lanes >> lane & 1;
    json.put("%lld%s", there ? (long long)(address[lane] - object->base) : 0ll, lane + 1 < LANES ? "," : "]}");
  }
}
static void put_count(const SiteCount& c) {
  json.put("{");
  put_place("place", c.site);
  json.put("\"write\":%d,\"shared\":%d,\"atomic\":%d,", !!(c.kind & WRITE), !!(c.kind & SHARED), !!(c.kind & ATOMIC));
  json.put("\"size\":%u,", c.size);
  const char* names[] = {"requests", "lanes", "bytes", "sectors", "lines", "least_sectors", "waves", "least_waves"};
  u64 values[] = {c.requests, c.lanes, c.bytes, c.sectors, c.lines, c.least_sectors, c.waves, c.least_waves};
  for (u32 i = 0; i < 8; i++) json.put("\"%s\":%llu,", names[i], (unsigned long long)values[i]);
  json.put("\"samples\":[");
  for (const Sample& sample : c.samples) {
    if (json.nearly_full()) break;
    if (&sample != &c.samples[0]) json.put(",");
    put_sample(sample);
  }
  json.put("]}");
}

static bool write_reply(const char* error) {
  json.put("{");
  json.string("error", error);
  json.put("\"stopped\":%d,\"seconds\":%.6f,", launch.stopped, launch.seconds);
  json.put("\"barriers\":%llu,\"warp_functions\":%llu,\"atomics\":%llu,\"faults\":[", (unsigned long long)totals.barriers,
           (unsigned long long)totals.warp_functions, (unsigned long long)totals.atomics);
  for (u32 i = 0; i < fault_count; i++) {
    if (i) json.put(",");
    put_fault(faults[i]);
  }
  json.put("],\"counts\":[");
  for (size_t i = 0; i < site_counts.size(); i++) {
    if (i) json.put(",");
    put_count(site_counts[i]);
  }
  json.put("],\"output\":");
  json.string(output, output_length);
  json.put("}");
  static char header[32];
  int length = snprintf(header, sizeof header, "%u\n", json.length);
  if (!write_all(header, (u64)length) || !write_all(json.text, json.length)) return false;
  if (error) return true;
  for (u32 i = 0; i < buffer_count; i++) {
    if (!buffers[i].read_only && !write_all((void*)buffers[i].base, buffers[i].size)) return false;
  }
  return true;
}
