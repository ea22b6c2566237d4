// Sites: a place in the kernel's code together with how it was called. Reports and counters name sites by number.
#pragma once
#include <unordered_map>

#include "types.h"

struct Site {
  u64 code;  // return address, as in the file
  u32 path;
};
struct Path {
  u64 caller;
  u32 parent;
};
static std::vector<Site> sites(1, Site{0, 0});  // site 0: unknown
static std::vector<Path> paths(1, Path{0, 0});  // path 0: called by the runtime

// A direct-mapped table in front of a hash map: nearly every look-up is one comparison.
struct Numbering {
  struct Entry {
    u64 code;
    u32 path, number;
  };
  Entry recent[4096] = {};
  std::unordered_map<u64, std::unordered_map<u32, u32>> all;

  template <class Add> u32 find(u64 code, u32 path, Add add) {
    Entry& entry = recent[(code * 0x9E3779B97F4A7C15ull + path * 0xC2B2AE3D27D4EB4Full) >> 52];
    if (entry.number && entry.code == code && entry.path == path) return entry.number;
    u32& number = all[code][path];
    if (!number) number = add();
    entry = {code, path, number};
    return number;
  }
};
static Numbering site_numbers, path_numbers;

static u32 site_of(const void* where, u32 path) {
  u64 code = (u64)where - image.moved;
  return site_numbers.find(code, path, [&] { sites.push_back({code, path}); return (u32)sites.size() - 1; });
}
static u32 site_here(const void* where) { return where ? site_of(where, launch.now->path) : 0; }
static u32 path_into(u32 parent, const void* caller) {
  u64 code = (u64)caller - image.moved;
  return path_numbers.find(code, parent, [&] { paths.push_back({code, parent}); return (u32)paths.size() - 1; });
}
