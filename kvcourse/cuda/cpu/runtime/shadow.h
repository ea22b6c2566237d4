// Shadow memory: for every four bytes who wrote and who read them last, which finds races and unset memory.
#pragma once
#include "faults.h"
#include "order.h"

struct Access {
  u32 who;  // number in the grid plus 1; 0: nobody
  u32 epoch, clock, site;
};
// Two readers are enough: of two warps if two have read, else of two lanes, so any writer finds one that is not itself.
struct Cell {
  Access writer, reader, other_reader, earlier_reader;  // earlier: of a block that ran before
  u32 block;                                            // shared memory: the block these belong to
  u8 written, read;                                     // bytes of the last write, bytes read since
  u8 set;                                               // bytes that were ever written
  bool atomic;                                          // the last write was
};

struct Object {
  const char* name;
  const char* kind;
  u64 base, size;
  bool shared, read_only, unset;  // unset: holds nothing until it is written
  bool counted;                   // constants are not: they have a cache of their own
  Cell* cells;                    // null: not watched
};

static bool make_cells(Object& object) {
  object.cells = (Cell*)calloc(object.size / 4 + 1, sizeof(Cell));
  return object.cells;
}

static void describe(Fault* fault, const Object& object, u64 address, u32 size, bool write) {
  fault->object = object.name;
  fault->object_kind = object.kind;
  fault->object_size = object.size;
  fault->offset = (int64_t)(address - object.base);
  fault->size = size;
  fault->write = write;
}

// A conflict that is not yet a verdict. A plain write waits until it has happened: writing the value that was there
// already is only a note. A plain read of what an atomic wrote waits for the atomicCAS that makes up for it.
struct Conflict {
  bool waiting;
  const Object* object;
  u64 address;
  u32 size, site;
  bool write;
  Access other;
  bool other_wrote;
  u8 value[16];
};
static Conflict open_write, open_read;
static bool several_words;  // part of a longer copy, which happens only after all its words were checked

static void report_conflict(const Conflict& c, bool note) {
  Fault* fault = new_fault(note ? "same-value-writes" : "race", c.site, note);
  if (!fault) return;
  describe(fault, *c.object, c.address, c.size, c.write);
  fault->has_other = true;
  fault->other = who_is(c.other.who - 1);
  fault->other_site = c.other.site;
  fault->other_wrote = c.other_wrote;
}
static void settle_write() {
  if (!open_write.waiting) return;
  open_write.waiting = false;
  report_conflict(open_write, !memcmp((void*)open_write.address, open_write.value, open_write.size));
}
static void settle_read() {
  if (!open_read.waiting) return;
  open_read.waiting = false;
  report_conflict(open_read, false);
}
static void judge(const Conflict& c, bool atomic, bool after_atomic) {
  if (c.write && !atomic && !several_words) {
    settle_write();
    open_write = c;
    memcpy(open_write.value, (void*)c.address, c.size);
  } else if (!c.write && after_atomic) {
    settle_read();
    open_read = c;
  } else {
    report_conflict(c, false);
  }
}

static bool unordered(const Access& other) {
  const Thread& me = *launch.now;
  if (!other.who || other.who == launch.block_number * launch.threads + me.number + 1) return false;
  return !happened_before(other.who - 1, other.epoch, other.clock);
}
static u32 warp_of(const Access& access) {
  return (u32)(access.who - 1 - launch.block_number * launch.threads) / LANES;
}

static void remember_reader(Cell& cell, const Access& me, u8 bytes) {
  bool same_block = cell.reader.who && cell.reader.who - 1 - launch.block_number * launch.threads < launch.threads;
  if (cell.reader.who == me.who) {
    cell.reader = me;
  } else if (!same_block || cell.reader.epoch != me.epoch) {
    if (cell.reader.who && !same_block) cell.earlier_reader = cell.reader;
    cell.reader = me;
    cell.other_reader = {};
    if (!cell.earlier_reader.who) cell.read = 0;
  } else if (!cell.other_reader.who || warp_of(cell.reader) == warp_of(cell.other_reader)) {
    if (!cell.other_reader.who || warp_of(cell.reader) == warp_of(me)) cell.other_reader = cell.reader, cell.reader = me;
    else cell.other_reader = me;
  } else if (warp_of(cell.reader) == warp_of(me)) {
    cell.reader = me;
  } else if (warp_of(cell.other_reader) == warp_of(me)) {
    cell.other_reader = me;
  }
  cell.read |= bytes;
}

struct Against {
  Access access;
  bool wrote;
};
// One access to one cell; gives the access it conflicts with, or nobody.
static Against visit(Cell& cell, const Access& me, u8 bytes, bool write, bool atomic) {
  Against against{};
  if (cell.written & bytes && !(atomic && cell.atomic) && unordered(cell.writer)) against = {cell.writer, true};
  if (!write) {
    if (!atomic) remember_reader(cell, me, bytes);
    return against;
  }
  if (cell.read & bytes && !against.access.who) {
    for (const Access& reader : {cell.reader, cell.other_reader, cell.earlier_reader}) {
      if (unordered(reader)) {
        against = {reader, false};
        break;
      }
    }
  }
  bool continues = cell.writer.who == me.who && cell.writer.epoch == me.epoch && cell.writer.clock == me.clock;
  cell.written = (continues ? cell.written : 0) | bytes;
  cell.writer = me;
  cell.atomic = atomic;
  cell.set |= bytes;
  return against;
}

static u8 bytes_within(u64 first, u32 size, u64 cell) {
  u8 mask = 0;
  for (u64 byte = 0; byte < 4; byte++) {
    u64 at = cell * 4 + byte;
    if (at >= first && at < first + size) mask |= 1u << byte;
  }
  return mask;
}

static void watch(const Object& object, u64 address, u32 size, bool write, bool atomic, u32 site) {
  const Thread& thread = *launch.now;
  u64 first = address - object.base;
  Access me{(u32)(launch.block_number * launch.threads) + thread.number + 1, launch.epoch, thread.clock, site};
  bool aligned = !((first | size) & 3), found = false;
  for (u64 index = first >> 2; index <= (first + size - 1) >> 2; index++) {
    Cell& cell = object.cells[index];
    if (object.shared && cell.block != (u32)launch.block_number + 1) {
      cell = Cell{};
      cell.block = (u32)launch.block_number + 1;
    }
    u8 bytes = aligned ? 15 : bytes_within(first, size, index);
    if ((!write || atomic) && object.unset && (cell.set & bytes) != bytes) {
      if (Fault* fault = new_fault("unset", site)) describe(fault, object, address, size, false);
    }
    bool after_atomic = cell.atomic;
    Against against = visit(cell, me, bytes, write, atomic);
    if (!against.access.who || found) continue;
    found = true;
    judge({true, &object, address, size, site, write, against.access, against.wrote, {}}, atomic, after_atomic);
  }
}

// The running thread is about to compare and swap here: its plain read of the place before was no race.
static void forgive_read(const Object& object, u64 address) {
  if (open_read.address == address) open_read.waiting = false;
  Cell& cell = object.cells[(address - object.base) >> 2];
  u32 me = (u32)(launch.block_number * launch.threads) + launch.now->number + 1;
  for (Access* reader : {&cell.reader, &cell.other_reader}) if (reader->who == me) *reader = {};
}
