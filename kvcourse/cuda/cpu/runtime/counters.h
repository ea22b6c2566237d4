// Counters: what the warps asked of memory. The lanes' accesses are lined up by place and by how often each lane has
// come there since the warp's last meeting; a lined-up group is one request of the hardware.
#pragma once
#include <algorithm>

#include "sites.h"

enum AccessKind : u8 { WRITE = 1, SHARED = 2, ATOMIC = 4 };
struct Event {
  u64 address;
  u32 site;
  u8 size, kind;
};
struct Request {
  u64 address[LANES];
  u32 lanes;
  u8 size, kind;
};
struct Sample {
  Request request;
  u64 block;
  u32 warp;
};
// Sums over the requests of one site, loads and stores apart.
struct SiteCount {
  u32 site;
  u8 kind, size;
  u64 requests, lanes, bytes;
  u64 sectors, lines, least_sectors;  // global memory: 32-byte sectors, 128-byte lines, sectors if nothing were wasted
  u64 waves, least_waves;             // shared memory: turns the banks need, and without conflicts
  std::vector<Sample> samples;
};
constexpr u32 SAMPLES = 8;

struct Totals {
  u64 barriers, warp_functions, atomics;
};
static Totals totals;
static std::vector<SiteCount> site_counts;
static std::vector<u32> site_count_index;          // by 2 * site + is write -> index in site_counts plus 1
static std::vector<std::vector<Event>> events;     // by thread

static void count_access(const Thread& me, u64 address, u32 site, u32 size, bool write, bool atomic, bool shared) {
  u8 kind = (write ? WRITE : 0) | (shared ? SHARED : 0) | (atomic ? ATOMIC : 0);
  events[me.number].push_back({address, site, (u8)size, kind});
}

static SiteCount& count_of(const Event& event) {
  u32 key = event.site * 2 + (event.kind & WRITE);
  if (key >= site_count_index.size()) site_count_index.resize(key * 2 + 64);
  if (!site_count_index[key]) {
    site_counts.push_back({event.site, event.kind, event.size, 0, 0, 0, 0, 0, 0, 0, 0, {}});
    site_count_index[key] = (u32)site_counts.size();
  }
  return site_counts[site_count_index[key] - 1];
}

template <class T> static u32 sort_unique(T* values, u32 count) {
  bool ascending = true;
  for (u32 i = 1; i < count && ascending; i++) ascending = values[i - 1] <= values[i];
  if (!ascending) std::sort(values, values + count);
  return (u32)(std::unique(values, values + count) - values);
}

static void count_shared(SiteCount& sum, const Request& request) {
  // 8-byte accesses go half a warp at a time, 16-byte ones a quarter.
  u32 parts = request.size <= 4 ? 1 : request.size / 4, lanes = LANES / parts, words_each = std::max(request.size / 4, 1);
  for (u32 part = 0; part < parts; part++) {
    u64 words[LANES * 4];
    u32 count = 0;
    for (u32 lane = part * lanes; lane < (part + 1) * lanes; lane++) {
      if (!(request.lanes >> lane & 1)) continue;
      for (u32 k = 0; k < words_each; k++) words[count++] = request.address[lane] / 4 + k;
    }
    count = sort_unique(words, count);
    u32 in_bank[32] = {}, most = 0;
    for (u32 i = 0; i < count; i++) most = std::max(most, ++in_bank[words[i] % 32]);  // one word a bank and turn
    sum.waves += most;
    sum.least_waves += most ? 1 : 0;
    sum.bytes += count * 4;
  }
}

static void count_global(SiteCount& sum, const Request& request) {
  u64 sectors[LANES * 2], addresses[LANES];
  u32 count = 0, distinct = 0, lines = 0;
  for (u32 lane = 0; lane < LANES; lane++) {
    if (!(request.lanes >> lane & 1)) continue;
    u64 first = request.address[lane];
    addresses[distinct++] = first;
    for (u64 sector = first / 32; sector <= (first + request.size - 1) / 32; sector++) sectors[count++] = sector;
  }
  count = sort_unique(sectors, count);
  distinct = sort_unique(addresses, distinct);
  for (u32 i = 0; i < count; i++) lines += i == 0 || sectors[i] / 4 != sectors[i - 1] / 4;
  sum.sectors += count;
  sum.lines += lines;
  sum.bytes += distinct * request.size;
  sum.least_sectors += (distinct * request.size + 31) / 32;
}

static void count_request(SiteCount& sum, const Request& request, u32 warp) {
  sum.requests++;
  sum.lanes += __builtin_popcount(request.lanes);
  if (request.kind & SHARED) count_shared(sum, request);
  else count_global(sum, request);
  if (sum.samples.size() < SAMPLES) sum.samples.push_back({request, launch.block_number, warp});
}

// All lanes that did anything did the same things in the same order.
static bool in_step(std::vector<Event>* lane_events, u32 lanes) {
  const std::vector<Event>* first = nullptr;
  for (u32 lane = 0; lane < lanes; lane++) {
    const auto& mine = lane_events[lane];
    if (mine.empty()) continue;
    if (!first) first = &mine;
    if (mine.size() != first->size()) return false;
    for (size_t i = 0; i < mine.size(); i++) {
      if (mine[i].site != (*first)[i].site || mine[i].kind != (*first)[i].kind) return false;
    }
  }
  return true;
}

static void count_in_step(std::vector<Event>* lane_events, u32 lanes, u32 warp) {
  size_t steps = 0;
  for (u32 lane = 0; lane < lanes; lane++) steps = std::max(steps, lane_events[lane].size());
  for (size_t i = 0; i < steps; i++) {
    Request request;
    request.lanes = 0;
    const Event* any = nullptr;
    for (u32 lane = 0; lane < lanes; lane++) {
      if (lane_events[lane].empty()) continue;
      any = &lane_events[lane][i];
      request.address[lane] = any->address;
      request.lanes |= 1u << lane;
    }
    request.size = any->size;
    request.kind = any->kind;
    count_request(count_of(*any), request, warp);
  }
}

static void count_diverged(std::vector<Event>* lane_events, u32 lanes, u32 warp) {
  struct Place {
    std::vector<Request> requests;
    u32 arrivals, lane;  // how often `lane` has come here
  };
  static std::vector<Place> places;  // by index in site_counts
  std::vector<u32> used;
  for (u32 lane = 0; lane < lanes; lane++) {
    for (const Event& event : lane_events[lane]) {
      u32 index = (u32)(&count_of(event) - site_counts.data());
      if (index >= places.size()) places.resize(index + 1);
      Place& place = places[index];
      if (place.requests.empty()) used.push_back(index);
      if (place.requests.empty() || place.lane != lane) place.lane = lane, place.arrivals = 0;
      if (place.arrivals == place.requests.size()) place.requests.push_back({{}, 0, event.size, event.kind});
      Request& request = place.requests[place.arrivals++];
      request.address[lane] = event.address;
      request.lanes |= 1u << lane;
    }
  }
  for (u32 index : used) {
    for (const Request& request : places[index].requests) count_request(site_counts[index], request, warp);
    places[index].requests.clear();
  }
}

// The warp has met: line up what its lanes did since the last time.
static void count_warp(u32 warp) {
  u32 first = warp * LANES, lanes = std::min(LANES, launch.threads - first);
  std::vector<Event>* mine = &events[first];
  if (in_step(mine, lanes)) count_in_step(mine, lanes, warp);
  else count_diverged(mine, lanes, warp);
  for (u32 lane = 0; lane < lanes; lane++) mine[lane].clear();
}
