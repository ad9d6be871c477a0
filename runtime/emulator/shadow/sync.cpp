// Clocks: what orders the accesses of different agents.
#include <algorithm>

#include "runtime/emulator/shadow/state.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::size_t kWarpsPerBlock = 32;
// Operations of one warp that nobody has yet waited for; beyond that, slots are used again and an
// old operation may look finished.
constexpr std::size_t kMaxSlots = 64;
constexpr std::size_t kMaxFences = 1024;

std::uint64_t key_of(int rank, std::uint32_t offset) {
  return static_cast<std::uint64_t>(rank) << 32 | offset;
}

std::uint64_t location_of(int rank, std::uint64_t address) {
  return key_of(rank, static_cast<std::uint32_t>(address) & kSharedOffsetMask & ~3u);
}

}  // namespace

bool SyncClock::join(const SyncClock& other) {
  if (at.size() < other.at.size()) at.resize(other.at.size());
  std::uint32_t news = 0;
  for (std::size_t i = 0; i < other.at.size(); ++i) {
    const std::uint32_t later = std::max(at[i], other.at[i]);
    news |= later ^ at[i];
    at[i] = later;
  }
  return news != 0;
}

void SyncClock::raise_to(std::uint32_t agent, std::uint32_t time) {
  if (agent >= at.size()) at.resize(agent + 1);
  at[agent] = std::max(at[agent], time);
}

Agent Shadow::State::new_agent(AgentInfo::Kind kind, const Warp& warp) {
  agents.push_back({kind, static_cast<std::uint16_t>(warp.block().rank()),
                    static_cast<std::uint16_t>(warp.index())});
  memos.emplace_back();
  return static_cast<Agent>(agents.size() - 1);
}

WarpShadow& Shadow::State::of(const Warp& warp) {
  const std::size_t index = static_cast<std::size_t>(warp.block().rank()) * kWarpsPerBlock +
                            static_cast<std::size_t>(warp.index());
  if (index >= warps.size()) warps.resize(index + 1);
  if (warps[index] == nullptr) {
    warps[index] = std::make_unique<WarpShadow>();
    WarpShadow& made = *warps[index];
    made.agent = new_agent(AgentInfo::Kind::warp, warp);
    made.clock.raise_to(made.agent, 0);
  }
  return *warps[index];
}

void Shadow::State::take(WarpShadow& warp, const SyncClock& clock) {
  if (!warp.clock.join(clock)) return;
  ++warp.version;
  warp.snapshot = nullptr;
}

// What the warp accesses from here on is of a later time.
void Shadow::State::publish(WarpShadow& warp, SyncClock& clock) {
  clock.join(warp.clock);
  warp.accessed = false;
}

std::shared_ptr<const SyncClock> Shadow::State::snapshot(WarpShadow& warp) {
  if (warp.snapshot == nullptr) warp.snapshot = std::make_shared<const SyncClock>(warp.clock);
  warp.accessed = false;
  return warp.snapshot;
}

void Shadow::State::take_locations(WarpShadow& warp, int rank, const std::uint64_t* addresses,
                                   Mask lanes) {
  for_each_lane(lanes, [&](int lane) {
    const auto at = locations.find(location_of(rank, addresses[lane]));
    if (at == locations.end()) return;
    take(warp, at->second);
    warp.lanes_since = warp.time() + 1;
    warp.accessed = false;
  });
}

void Shadow::State::publish_locations(WarpShadow& warp, int rank, const std::uint64_t* addresses,
                                      Mask lanes) {
  for_each_lane(lanes,
                [&](int lane) { publish(warp, locations[location_of(rank, addresses[lane])]); });
}

void Shadow::release(const Warp& warp, SyncClock& clock) {
  state_->publish(state_->of(warp), clock);
}

void Shadow::acquire(const Warp& warp, const SyncClock& clock) {
  state_->take(state_->of(warp), clock);
  sync_lanes(warp);
}

void Shadow::sync_lanes(const Warp& warp) {
  WarpShadow& shadow = state_->of(warp);
  shadow.accessed = false;  // the next access is of a later time
  shadow.lanes_since = shadow.time() + 1;
  if (shadow.copies != kNoAgent) shadow.copies_since = shadow.clock.of(shadow.copies) + 1;
  shadow.has_written = false;
}

void Shadow::fence_proxy(const Warp& warp, Mask lanes) {
  WarpShadow& shadow = state_->of(warp);
  shadow.tick();  // the fence has a time of its own: who knows of it is behind it
  const std::uint32_t time = shadow.time();
  shadow.fences.push_back({time, lanes, shadow.lanes_since, state_->snapshot(shadow)});
  if (shadow.fences.size() > kMaxFences) {
    const auto half = shadow.fences.begin() + kMaxFences / 2;
    shadow.fences_dropped = half[-1].time;
    shadow.fences.erase(shadow.fences.begin(), half);
  }
}

// The lanes whose writes of `record` the writing warp followed by a proxy fence that the reader
// knows of: a fence of the same lane, or of any lane once bar.warp.sync has ordered the writes.
Mask Shadow::State::fenced_lanes(const Actor& reader, const WriteRecord& record) const {
  Mask lanes = 0;
  for (const auto& warp : warps) {
    if (warp == nullptr || warp->agent != record.agent) continue;
    if (record.time <= warp->fences_dropped) return kAllLanes;
    const std::uint32_t known = reader.known->of(warp->agent);
    for (auto fence = warp->fences.rbegin(); fence != warp->fences.rend(); ++fence) {
      if (fence->time < record.time) break;
      if (fence->time > known) continue;
      lanes |= record.time < fence->lanes_since ? kAllLanes : fence->lanes;
      if (lanes == kAllLanes) return lanes;
    }
  }
  return lanes;
}

// PTX ISA, "Proxy-preserved base causality order": the fence may stand anywhere on the way from the
// write to the read, so another warp that knows of the write may execute it: behind the barrier, or
// once it knows that a cp.async is done.
bool Shadow::State::fenced_by_others(const Actor& reader, const WriteRecord& record) const {
  for (const auto& warp : warps) {
    if (warp == nullptr || warp->agent == record.agent) continue;
    const std::uint32_t known = reader.known->of(warp->agent);
    for (auto fence = warp->fences.rbegin(); fence != warp->fences.rend(); ++fence) {
      // Older fences know less.
      if (fence->known->of(record.agent) < record.time) break;
      if (fence->time <= known) return true;
    }
  }
  return false;
}

void Shadow::wait_for_launches(const Warp& warp, Mask lanes) {
  WarpShadow& shadow = state_->of(warp);
  shadow.tick();  // as the proxy fence: who knows of this time is behind it
  if (shadow.launch_wait == 0) shadow.launch_wait = shadow.time();
  shadow.behind_launches |= lanes;
}

Mask Shadow::behind_launches(const Warp& warp) {
  WarpShadow& shadow = state_->of(warp);
  if (shadow.behind_launches == kAllLanes) return kAllLanes;
  const bool ordered = std::ranges::any_of(state_->warps, [&](const auto& other) {
    if (other == nullptr || other->launch_wait == 0) return false;
    if (other.get() == &shadow) return shadow.launch_wait < shadow.lanes_since;
    return shadow.clock.of(other->agent) >= other->launch_wait;
  });
  if (ordered) shadow.behind_launches = kAllLanes;
  return shadow.behind_launches;
}

SyncClock& Shadow::mbarrier_clock(int rank, std::uint32_t offset, std::uint32_t parity) {
  return state_->mbarriers[key_of(rank, offset << 1 | (parity & 1))];
}

void Shadow::forget_mbarrier(int rank, std::uint32_t offset) {
  for (std::uint32_t parity = 0; parity < 2; ++parity) {
    state_->mbarriers.erase(key_of(rank, offset << 1 | parity));
  }
}

Shadow::Operation Shadow::begin(const Warp& issuer, int lane, bool async_proxy) {
  State& state = *state_;
  WarpShadow& warp = state.of(issuer);
  Operation made;
  made.known = state.snapshot(warp);
  made.pc = issuer.group().pc;
  made.async_proxy = async_proxy;
  made.issuer = &issuer;
  made.lane = lane;
  if (!async_proxy) {
    // The copies of one instruction are one operation.
    if (warp.copies == kNoAgent) warp.copies = state.new_agent(AgentInfo::Kind::copies, issuer);
    if (warp.copies_step != issuer.steps()) ++warp.copies_time;
    warp.copies_step = issuer.steps();
    made.agent = warp.copies;
    made.time = warp.copies_time;
    return made;
  }
  // Bulk operations complete in any order, so each has a slot of its own until its issuer knows
  // that it is done.
  auto& slots = warp.slots;
  for (std::size_t tried = 0; tried < slots.size(); ++tried) {
    auto& [agent, time] = slots[warp.next_slot];
    warp.next_slot = (warp.next_slot + 1) % slots.size();
    if (warp.clock.of(agent) < time && (tried + 1 < slots.size() || slots.size() < kMaxSlots)) {
      continue;
    }
    made.agent = agent;
    made.time = ++time;
    return made;
  }
  made.agent = state.new_agent(AgentInfo::Kind::operation, issuer);
  made.time = 1;
  slots.emplace_back(made.agent, 1);
  return made;
}

void Shadow::publish(const Operation& operation, SyncClock& clock) {
  clock.join(*operation.known);
  clock.raise_to(operation.agent, operation.time);
}

void Shadow::acquire(const Warp& warp, const Operation& operation) {
  WarpShadow& shadow = state_->of(warp);
  SyncClock done = *operation.known;
  done.raise_to(operation.agent, operation.time);
  state_->take(shadow, done);
  shadow.has_written = true;  // a lane waits for its own copies only
}

}  // namespace kiln::runtime::emulator
