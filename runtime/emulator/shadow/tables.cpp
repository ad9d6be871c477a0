// Numbers for writes and for sets of reads, and their renewal when there are too many.
#include <algorithm>

#include "runtime/emulator/shadow/state.h"

namespace kiln::runtime::emulator {

std::uint32_t Shadow::State::record_of(const Actor& actor) {
  AgentMemo& memo = *actor.memo;
  if (memo.record != 0) {
    const WriteRecord& last = tables.records[memo.record];
    if (last.time == actor.time && last.pc == actor.pc && last.strong == actor.strong) {
      return memo.record;
    }
  }
  memo.record = static_cast<std::uint32_t>(tables.records.size());
  tables.records.push_back({actor.agent, actor.time, actor.pc, actor.async_proxy, actor.strong});
  return memo.record;
}

std::uint32_t Shadow::State::with_reader(std::uint32_t set, const Actor& actor) {
  AgentMemo::Step& step = actor.memo->steps[(set ^ actor.pc * 7) % actor.memo->steps.size()];
  if (step.from == set && step.pc == actor.pc && step.strong == actor.strong) return step.to;
  step = {set, actor.pc, set, actor.strong};
  const ShadowTables::Range old = tables.sets[set];
  for (const ReadEntry& entry : tables.set(set)) {
    // The first read of an epoch stands for the later ones, a plain one for strong ones.
    if (entry.agent == actor.agent && entry.time == actor.time && entry.strong <= actor.strong) {
      return set;
    }
  }
  const ShadowTables::Range made{static_cast<std::uint32_t>(tables.entries.size()), 0};
  for (std::uint32_t i = 0; i < old.count; ++i) {
    const ReadEntry entry = tables.entries[old.begin + i];
    // Who is ordered behind this read is ordered behind those that it knows of; but two strong
    // accesses need no order, so a strong read cannot stand for others.
    if (actor.strong || !actor.knows(entry.agent, entry.time)) tables.entries.push_back(entry);
  }
  tables.entries.push_back({actor.agent, actor.time, actor.pc, actor.strong});
  step.to = static_cast<std::uint32_t>(tables.sets.size());
  tables.sets.push_back(
      {made.begin, static_cast<std::uint32_t>(tables.entries.size()) - made.begin});
  return step.to;
}

// Keeps the records and sets that some byte still has, under new numbers.
void Shadow::State::compact() {
  ShadowTables kept;
  std::vector<std::uint32_t> record_to(tables.records.size(), 0), set_to(tables.sets.size(), 0);
  for (BlockShadow& block : blocks) {
    for (std::uint32_t& writer : block.writers) {
      const std::uint32_t record = writer >> kLaneBits;
      if (record == 0) continue;
      if (record_to[record] == 0) {
        record_to[record] = static_cast<std::uint32_t>(kept.records.size());
        kept.records.push_back(tables.records[record]);
      }
      writer = record_to[record] << kLaneBits | (writer & (kLanes - 1));
    }
    for (std::uint32_t& reader : block.readers) {
      if (reader == 0) continue;
      if (set_to[reader] == 0) {
        set_to[reader] = static_cast<std::uint32_t>(kept.sets.size());
        const auto entries = tables.set(reader);
        kept.sets.push_back({static_cast<std::uint32_t>(kept.entries.size()),
                             static_cast<std::uint32_t>(entries.size())});
        kept.entries.insert(kept.entries.end(), entries.begin(), entries.end());
      }
      reader = set_to[reader];
    }
  }
  kept.limit = std::max(tables.limit, 2 * std::max(kept.records.size(), kept.sets.size()));
  tables = std::move(kept);
  for (AgentMemo& memo : memos) memo = {};
}

}  // namespace kiln::runtime::emulator
