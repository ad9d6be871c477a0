// Accesses against the shadow: who may read or write which bytes now.
#include "runtime/emulator/shadow/shadow.h"

#include <algorithm>

#include "runtime/emulator/shadow/state.h"

namespace kiln::runtime::emulator {
namespace {

std::uint32_t offset_of(std::uint64_t address) {
  return static_cast<std::uint32_t>(address) & kSharedOffsetMask;
}

// How many of the bytes have this writer (but for its `ignored` low bits) and these readers, in
// steps of eight that compilers make vectors of: 0 where the first eight do not all.
std::uint32_t run_length(const std::uint32_t* writers, std::uint32_t writer, std::uint32_t ignored,
                         const std::uint32_t* readers, std::uint32_t set, std::uint32_t bytes) {
  constexpr std::uint32_t kStep = 8;
  std::uint32_t length = 0;
  for (; bytes - length >= kStep; length += kStep) {
    std::uint32_t different = 0;
    for (std::uint32_t i = 0; i < kStep; ++i) {
      different |= (writers[length + i] ^ writer) >> ignored;
      different |= readers[length + i] ^ set;
    }
    if (different != 0) break;
  }
  return length;
}

}  // namespace

Shadow::Shadow(Cluster& cluster) : state_(std::make_unique<State>(cluster)) {}
Shadow::~Shadow() = default;

BlockShadow& Shadow::State::block(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  if (index >= blocks.size()) blocks.resize(index + 1);
  BlockShadow& found = blocks[index];
  if (found.writers.empty()) {
    const std::uint32_t bytes = cluster.blocks()[index].shared_end();
    found.writers.resize(bytes);
    found.readers.resize(bytes);
    found.last_lane.resize(bytes);
  }
  return found;
}

Actor Shadow::State::actor(const Warp& warp, WarpShadow& shadow, bool strong) {
  // The only place where numbers may change: nobody holds any here.
  if (tables.crowded()) compact();
  if (!shadow.accessed) shadow.tick();
  shadow.accessed = true;
  AgentMemo& memo = memos[shadow.agent];
  if (memo.version != shadow.version) {
    memo = {};
    memo.version = shadow.version;
  }
  Actor made;
  made.agent = shadow.agent;
  made.time = shadow.time();
  made.pc = warp.group().pc;
  made.known = &shadow.clock;
  made.memo = &memo;
  made.strong = strong;
  made.warp = &shadow;
  return made;
}

Actor Shadow::State::actor(const Operation& operation) {
  if (tables.crowded()) compact();
  AgentMemo& memo = memos[operation.agent];
  if (memo.version != operation.time) {
    memo = {};
    memo.version = operation.time;
  }
  Actor made;
  made.agent = operation.agent;
  made.time = operation.time;
  made.pc = operation.pc;
  made.known = operation.known.get();
  made.memo = &memo;
  made.async_proxy = operation.async_proxy;
  made.lane = operation.lane;
  return made;
}

// The lanes of the record whose bytes may be accessed.
Mask Shadow::State::check_writer(const Actor& actor, std::uint32_t record, bool writes, int rank,
                                 std::uint32_t offset) const {
  if (record == 0) {
    if (!writes) report_uninitialized(actor, rank, offset);
    return kAllLanes;
  }
  const WriteRecord& writer = tables.records[record];
  if (!actor.knows(writer.agent, writer.time) && !(actor.strong && writer.strong)) {
    report_race(actor, writes, writer.agent, writer.pc, true, rank, offset);
  }
  if (writes || !actor.async_proxy || writer.async_proxy) return kAllLanes;
  return fenced_lanes(actor, writer);
}

void Shadow::State::check_readers(const Actor& actor, std::uint32_t set, int rank,
                                  std::uint32_t offset) const {
  for (const ReadEntry& entry : tables.set(set)) {
    if (!actor.knows(entry.agent, entry.time) && !(actor.strong && entry.strong)) {
      report_race(actor, true, entry.agent, entry.pc, false, rank, offset);
    }
  }
}

void Shadow::State::read(const Actor& actor, int rank, std::uint32_t offset, std::uint32_t bytes) {
  BlockShadow& shadow = block(rank);
  const std::uint32_t* const writers = shadow.writers.data() + offset;
  std::uint32_t* const readers = shadow.readers.data() + offset;
  std::uint32_t record = 0, from = ~0u, to = 0;
  Mask lanes = 0;
  for (std::uint32_t i = 0; i < bytes;) {
    if (writers[i] >> kLaneBits != record || lanes == 0) {
      record = writers[i] >> kLaneBits;
      lanes = check_writer(actor, record, false, rank, offset + i);
    }
    const std::uint32_t lane = writers[i] & (kLanes - 1);
    if ((lanes >> lane & 1) == 0) {
      if (fenced_by_others(actor, tables.records[record])) {
        lanes = kAllLanes;
        continue;
      }
      report_proxy(actor, tables.records[record], static_cast<int>(lane), rank, offset + i);
    }
    if (readers[i] != from) {
      from = readers[i];
      to = with_reader(from, actor);
    }
    const std::uint32_t writer = writers[i];
    const std::uint32_t run = run_length(writers + i, writer, 0, readers + i, from, bytes - i);
    if (to != from) std::fill_n(readers + i, run, to);
    for (i += run; i < bytes && writers[i] == writer && readers[i] == from; ++i) readers[i] = to;
  }
}

void Shadow::State::write(const Actor& actor, int rank, std::uint32_t offset, std::uint32_t bytes) {
  BlockShadow& shadow = block(rank);
  std::uint32_t* const writers = shadow.writers.data() + offset;
  std::uint32_t* const readers = shadow.readers.data() + offset;
  const auto lane = static_cast<std::uint32_t>(actor.lane) & (kLanes - 1);
  const std::uint32_t mine = record_of(actor) << kLaneBits | lane;
  std::uint32_t record = 0, set = 0;  // what needs no check
  for (std::uint32_t i = 0; i < bytes;) {
    // The readers first: to be told of a read that is overwritten helps more than of the write.
    if (readers[i] != set) {
      set = readers[i];
      check_readers(actor, set, rank, offset + i);
    }
    if (writers[i] >> kLaneBits != record) {
      record = writers[i] >> kLaneBits;
      check_writer(actor, record, true, rank, offset + i);
    }
    const std::uint32_t run =
        run_length(writers + i, record << kLaneBits, kLaneBits, readers + i, set, bytes - i);
    std::fill_n(writers + i, run, mine);
    std::fill_n(readers + i, run, 0);
    for (i += run; i < bytes && writers[i] >> kLaneBits == record && readers[i] == set; ++i) {
      writers[i] = mine;
      readers[i] = 0;
    }
  }
}

void Shadow::State::read_lanes(Actor actor, int rank, const std::uint64_t* addresses,
                               std::uint32_t bytes, Mask lanes) {
  if (actor.warp != nullptr && !actor.strong) {
    for_each_lane(lanes, [&](int lane) {
      actor.lane = lane;
      check_lane_read(actor, rank, offset_of(addresses[lane]), bytes);
    });
  }
  // Lanes that go on where the last one ended are one run.
  while (lanes != 0) {
    actor.lane = std::countr_zero(lanes);
    const std::uint32_t begin = offset_of(addresses[actor.lane]);
    std::uint32_t end = begin;
    do {
      lanes &= lanes - 1;
      end += bytes;
    } while (lanes != 0 && offset_of(addresses[std::countr_zero(lanes)]) == end);
    read(actor, rank, begin, end - begin);
  }
}

void Shadow::State::write_lanes(Actor actor, int rank, const std::uint64_t* addresses,
                                std::uint32_t bytes, Mask lanes) {
  for_each_lane(lanes, [&](int lane) {
    actor.lane = lane;
    const std::uint32_t offset = offset_of(addresses[lane]);
    if (actor.warp != nullptr && !actor.strong) check_lane_write(actor, rank, offset, bytes);
    write(actor, rank, offset, bytes);
  });
  if (actor.warp != nullptr) actor.warp->has_written = true;
}

void Shadow::read_lanes(const Warp& warp, int rank, const std::uint64_t* addresses,
                        std::uint32_t bytes, Mask lanes, bool strong) {
  WarpShadow& shadow = state_->of(warp);
  if (strong) state_->take_locations(shadow, rank, addresses, lanes);
  state_->read_lanes(state_->actor(warp, shadow, strong), rank, addresses, bytes, lanes);
}

void Shadow::write_lanes(const Warp& warp, int rank, const std::uint64_t* addresses,
                         std::uint32_t bytes, Mask lanes, bool strong) {
  WarpShadow& shadow = state_->of(warp);
  state_->write_lanes(state_->actor(warp, shadow, strong), rank, addresses, bytes, lanes);
  if (strong) state_->publish_locations(shadow, rank, addresses, lanes);
}

void Shadow::atomic_lanes(const Warp& warp, int rank, const std::uint64_t* addresses,
                          std::uint32_t bytes, Mask lanes) {
  WarpShadow& shadow = state_->of(warp);
  state_->take_locations(shadow, rank, addresses, lanes);
  const Actor actor = state_->actor(warp, shadow, true);
  state_->read_lanes(actor, rank, addresses, bytes, lanes);
  state_->write_lanes(actor, rank, addresses, bytes, lanes);
  state_->publish_locations(shadow, rank, addresses, lanes);
}

void Shadow::read(const Warp& warp, int rank, std::uint32_t offset, std::uint32_t bytes, int lane) {
  Actor actor = state_->actor(warp, state_->of(warp), false);
  actor.lane = lane;
  state_->read(actor, rank, offset, bytes);
}

void Shadow::write(const Warp& warp, int rank, std::uint32_t offset, std::uint32_t bytes,
                   int lane) {
  Actor actor = state_->actor(warp, state_->of(warp), false);
  actor.lane = lane;
  state_->write(actor, rank, offset, bytes);
}

void Shadow::atomic(const Warp& warp, int rank, std::uint32_t offset, std::uint32_t bytes,
                    int lane) {
  std::uint64_t addresses[kLanes] = {};
  addresses[lane] = offset;
  atomic_lanes(warp, rank, addresses, bytes, Mask{1} << lane);
}

void Shadow::read(const Operation& operation, int rank, std::uint32_t offset, std::uint32_t bytes) {
  state_->read(state_->actor(operation), rank, offset, bytes);
}

void Shadow::write(const Operation& operation, int rank, std::uint32_t offset,
                   std::uint32_t bytes) {
  state_->write(state_->actor(operation), rank, offset, bytes);
}

}  // namespace kiln::runtime::emulator
