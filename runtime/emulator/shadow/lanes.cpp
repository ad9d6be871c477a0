// Lanes of one warp against each other: the hardware may run them apart wherever it likes, so that
// what one writes another may read behind a bar.warp.sync only.
#include <algorithm>

#include "runtime/emulator/shadow/state.h"

namespace kiln::runtime::emulator {

// Whether lanes of the actor's warp, other than the record's, must not touch what it wrote yet.
bool Shadow::State::is_unsynced(const Actor& actor, const WriteRecord& record) const {
  if (record.agent == actor.agent) return record.time >= actor.warp->lanes_since;
  return record.agent == actor.warp->copies && record.time >= actor.warp->copies_since;
}

void Shadow::State::check_lane_read(const Actor& actor, int rank, std::uint32_t offset,
                                    std::uint32_t bytes) {
  BlockShadow& shadow = block(rank);
  const auto lane = static_cast<std::uint32_t>(actor.lane);
  std::fill_n(shadow.last_lane.data() + offset, bytes, static_cast<std::uint8_t>(lane));
  if (!actor.warp->has_written) return;
  std::uint32_t checked = 0;  // the record of the last byte; 0 = never written
  for (std::uint32_t i = offset; i < offset + bytes; ++i) {
    const std::uint32_t writer = shadow.writers[i];
    if (writer == checked || (writer & (kLanes - 1)) == lane) continue;
    checked = writer;
    const WriteRecord& record = tables.records[writer >> kLaneBits];
    if (writer >> kLaneBits != 0 && is_unsynced(actor, record)) {
      report_lanes(actor, false, static_cast<int>(writer & (kLanes - 1)), record.pc, true, rank, i);
    }
  }
}

void Shadow::State::check_lane_write(const Actor& actor, int rank, std::uint32_t offset,
                                     std::uint32_t bytes) {
  BlockShadow& shadow = block(rank);
  const auto lane = static_cast<std::uint32_t>(actor.lane);
  std::uint32_t checked = 0, own_set = 0;
  for (std::uint32_t i = offset; i < offset + bytes; ++i) {
    const std::uint32_t set = shadow.readers[i];
    if (set != own_set && set != 0 && shadow.last_lane[i] != lane) {
      for (const ReadEntry& entry : tables.set(set)) {
        if (entry.agent == actor.agent && entry.time >= actor.warp->lanes_since && !entry.strong) {
          report_lanes(actor, true, shadow.last_lane[i], entry.pc, false, rank, i);
        }
      }
      own_set = set;
    }
    const std::uint32_t writer = shadow.writers[i];
    // Lanes that store to one place with one instruction are the kernel's own business: one wins.
    if (writer == checked || (writer & (kLanes - 1)) == lane) continue;
    checked = writer;
    const WriteRecord& record = tables.records[writer >> kLaneBits];
    if (writer >> kLaneBits != 0 && record.pc != actor.pc && is_unsynced(actor, record)) {
      report_lanes(actor, true, static_cast<int>(writer & (kLanes - 1)), record.pc, true, rank, i);
    }
  }
}

}  // namespace kiln::runtime::emulator
