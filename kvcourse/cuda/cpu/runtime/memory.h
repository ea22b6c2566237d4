// Memory as a kernel sees it: buffers far apart in a reserved range, shared arrays, and one check for every access.
#pragma once
#include "counters.h"
#include "shadow.h"

constexpr u64 SLOT = 1ull << 30, SLOTS = 64, PAGE = 4096, LINE_UP = 512;  // torch aligns GPU memory to 512 bytes
constexpr u64 DYNAMIC_SHARED = 228 << 10;
extern "C" {
__attribute__((aligned(1024))) unsigned char kvcuda_dynamic_shared[DYNAMIC_SHARED];
}
static u64 arena;                     // slot i starts at arena + i * SLOT, its buffer lies in the middle
static Object buffers[SLOTS];
static u32 buffer_count;
// The reserved addresses around a buffer that stands for a part of a huge array (see Slice in arguments.py), so that an
// index that has lost its upper bits leads to an address that still belongs to this buffer.
struct Room {
  u64 low, high;
  const Object* buffer;
};
static std::vector<Room> rooms;
constexpr u64 STRAY = 1ull << 36;     // 2**32 elements of 16 bytes
static std::vector<Object> statics;   // __shared__ arrays, __device__ and __constant__ variables
static Object dynamic_shared;

static bool make_arena() {
  void* memory = mmap(nullptr, SLOT * (SLOTS + 1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  arena = ((u64)memory + SLOT - 1) / SLOT * SLOT;
  return memory != MAP_FAILED;
}

static const Object* buffer_with_room(u64 address) {
  for (const Room& room : rooms) if (address >= room.low && address < room.high) return room.buffer;
  return nullptr;
}

// The middle of a room with `before` bytes, and as far as an index may stray, ahead of it; 0 when there is no room.
static u64 make_room(u64 before) {
  u64 bytes = before + 2 * STRAY + SLOT;
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 0;
  rooms.push_back({(u64)memory, (u64)memory + bytes, &buffers[buffer_count]});
  return ((u64)memory + STRAY + before + SLOT - 1) / PAGE * PAGE;
}

// `lead`: where the tensor starts, relative to an address that is a multiple of 512. Unchecked buffers end at the end
// of a page, so that the first element beyond faults at once. `before`: bytes of a huge array that lie ahead of it.
static Object* make_buffer(const char* name, u64 size, u64 lead, u64 before, bool read_only, bool unset) {
  if (size > SLOT / 2 - 2 * PAGE || buffer_count == SLOTS) return nullptr;
  u64 middle = before ? make_room(before) : arena + buffer_count * SLOT + SLOT / 2;
  if (!middle) return nullptr;
  u64 base = launch.options & CHECK ? middle + lead % LINE_UP : middle - (size + 15) / 16 * 16 - (16 - lead % 16) % 16;
  u64 first_page = base / PAGE * PAGE, end = (base + size + PAGE - 1) / PAGE * PAGE;
  if (size && mprotect((void*)first_page, end - first_page, PROT_READ | PROT_WRITE)) return nullptr;
  Object& buffer = buffers[buffer_count++] = {name, "buffer", base, size, false, read_only, unset, true, nullptr};
  // Nobody may write to a read-only buffer, so nothing can race on it.
  if (launch.options & CHECK && !read_only && !make_cells(buffer)) return nullptr;
  return &buffer;
}
static bool watch_statics() {
  for (Object& object : statics) if (object.counted && !make_cells(object)) return false;
  return make_cells(dynamic_shared);
}

static const Object* find_static(u64 address) {
  for (const Object& object : statics) if (address - object.base < object.size) return &object;
  return nullptr;
}
static u64 gap_to(const Object& object, u64 address) {
  u64 end = object.base + object.size;
  return address < object.base ? object.base - address : address - std::min(end, address);
}
static const Object* nearest_shared(u64 address) {
  const Object* best = nullptr;
  for (const Object& object : statics) {
    if (object.shared && (!best || gap_to(object, address) < gap_to(*best, address))) best = &object;
  }
  return best;
}
static const Object* nearest_buffer(u64 address) {
  const Object* best = nullptr;
  for (u32 i = 0; i < buffer_count; i++) {
    if (!best || gap_to(buffers[i], address) < gap_to(*best, address)) best = &buffers[i];
  }
  return best;
}

[[noreturn]] static void refuse(const char* kind, u32 site, const Object* object, u64 address, u32 size, bool write) {
  if (Fault* fault = new_fault(kind, site)) {
    fault->number = (int64_t)address;
    fault->write = write;
    fault->size = size;
    if (object) describe(fault, *object, address, size, write);
  }
  stop();
}

static const Object* object_at(u64 address, u32 size, bool write, const void* where) {
  u64 distance = address - arena;
  if (distance < SLOT * SLOTS) {
    u64 slot = distance / SLOT;
    const Object* buffer = &buffers[slot];
    if (slot < buffer_count && address >= buffer->base && address + size <= buffer->base + buffer->size) return buffer;
    refuse("out-of-bounds", site_here(where), nearest_buffer(address), address, size, write);
  }
  if (const Object* buffer = buffer_with_room(address)) {
    if (address >= buffer->base && address + size <= buffer->base + buffer->size) return buffer;
    refuse("out-of-bounds", site_here(where), buffer, address, size, write);
  }
  if (address - dynamic_shared.base < DYNAMIC_SHARED) {
    if (address + size <= dynamic_shared.base + dynamic_shared.size) return &dynamic_shared;
    refuse("out-of-bounds", site_here(where), &dynamic_shared, address, size, write);
  }
  if (on_a_stack(address)) {
    if (address - (u64)launch.now->stack < STACK) return nullptr;
    refuse("foreign-local", site_here(where), nullptr, address, size, write);
  }
  const Object* object = find_static(address);
  if (object && address + size <= object->base + object->size) return object;
  bool in_data = address >= image.data_low && address < image.data_high + PAGE;
  if (!object && in_data) object = nearest_shared(address);
  if (object) refuse("out-of-bounds", site_here(where), object, address, size, write);
  if (!write && address >= image.low && address < image.high) return nullptr;  // a constant without a name
  refuse(address < 65536 ? "null-pointer" : "wild-pointer", site_here(where), nullptr, address, size, write);
}

// Every load and store of a checked kernel passes here just before it happens.
static void check_access(u64 address, u32 size, bool write, bool atomic, const void* where) {
  if (!launch.now) return;  // static initialisers
  if (launch.out_of_time) stop_for_time(site_here(where));
  settle_write();
  const Object* object = object_at(address, size, write, where);
  if (!object) return;
  u32 site = site_here(where);
  if (address & (size - 1)) refuse("misaligned", site, object, address, size, write);
  if (write && object->read_only) {
    if (Fault* fault = new_fault("read-only", site)) describe(fault, *object, address, size, write);
  }
  if (object->cells) watch(*object, address, size, write, atomic, site);
  if (launch.options & COUNT && object->counted) count_access(*launch.now, address, site, size, write, atomic, object->shared);
}
static void check_range(const void* start, u64 bytes, bool write, const void* where) {
  u64 address = (u64)start;
  several_words = true;
  while (bytes) {  // as a GPU would copy a struct: word by word
    u32 step = address % 4 || bytes < 4 ? 1 : 4;
    check_access(address, step, write, false, where);
    address += step;
    bytes -= step;
  }
  several_words = false;
}
