// The tables behind Shadow. Every byte of shared memory has two numbers: of its last write (a
// record, and the lane in the low bits) and of the set of reads since then. Neighbouring bytes
// mostly have the same numbers, so whole runs are checked at the price of one.
#pragma once

#include <array>
#include <span>
#include <unordered_map>

#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {

inline constexpr std::uint32_t kLaneBits = 5;
inline constexpr std::uint32_t kNoAgent = ~0u;

struct AgentInfo {
  enum class Kind : std::uint8_t { warp, copies, operation };
  Kind kind = Kind::warp;
  std::uint16_t rank = 0, warp = 0;  // whose it is
};

struct WriteRecord {
  Agent agent = 0;
  std::uint32_t time = 0, pc = 0;
  bool async_proxy = false, strong = false;
};

struct ReadEntry {
  Agent agent = 0;
  std::uint32_t time = 0, pc = 0;
  bool strong = false;
};

// Records and sets by number; number 0 is "never written" and "no reads". Sets are immutable.
struct ShadowTables {
  struct Range {
    std::uint32_t begin = 0, count = 0;
  };
  std::vector<WriteRecord> records{1};
  std::vector<Range> sets{1};
  std::vector<ReadEntry> entries;
  std::size_t limit = 1 << 15;  // of records and of sets, before the unused ones are dropped

  std::span<const ReadEntry> set(std::uint32_t index) const {
    return std::span(entries).subspan(sets[index].begin, sets[index].count);
  }
  bool crowded() const { return records.size() > limit || sets.size() > limit; }
};

// What was found out last about one agent's accesses: saves equal records and sets. `version`
// changes with all that they depend on.
struct AgentMemo {
  struct Step {
    std::uint32_t from = ~0u, pc = 0, to = 0;
    bool strong = false;
  };
  std::uint64_t version = ~std::uint64_t{0};
  std::uint32_t record = 0;
  std::array<Step, 16> steps;
};

struct ProxyFence {
  std::uint32_t time = 0;  // of the warp
  Mask lanes = 0;
  std::uint32_t lanes_since = 0;  // what the warp did before this time, all of its lanes know
  std::shared_ptr<const SyncClock> known;
};

struct WarpShadow {
  Agent agent = kNoAgent;
  SyncClock clock;                            // its own entry: the time of its last accesses
  std::uint64_t version = 0;                  // of `clock`
  bool accessed = false;                      // at this time: since others last learnt of it
  std::shared_ptr<const SyncClock> snapshot;  // of `clock`; null when it has changed
  std::vector<ProxyFence> fences;
  std::uint32_t fences_dropped = 0;  // writes up to this time count as fenced
  // Operations.
  Agent copies = kNoAgent;
  std::uint32_t copies_time = 0;
  // Among its own lanes: accesses from this time on, and copies after this one, are not ordered.
  std::uint32_t lanes_since = 0, copies_since = 0;
  bool has_written = false;  // since then, or has waited for copies
  // griddepcontrol.wait: the time of the first one, 0 = none; lanes that are behind one.
  std::uint32_t launch_wait = 0;
  Mask behind_launches = 0;
  std::uint64_t copies_step = ~std::uint64_t{0};
  std::vector<std::pair<Agent, std::uint32_t>> slots;  // with the time of the last use
  std::size_t next_slot = 0;

  std::uint32_t time() const { return clock.at[agent]; }
  void tick() {
    ++clock.at[agent];
    ++version;
    snapshot = nullptr;
  }
};

struct BlockShadow {
  std::vector<std::uint32_t> writers, readers;  // per byte
  std::vector<std::uint8_t> last_lane;          // per byte: who read it last
};

// Who accesses, while it does.
struct Actor {
  Agent agent = 0;
  std::uint32_t time = 0, pc = 0;
  const SyncClock* known = nullptr;
  AgentMemo* memo = nullptr;
  bool async_proxy = false, strong = false;
  int lane = -1;
  WarpShadow* warp = nullptr;  // null for operations

  bool knows(Agent other, std::uint32_t when) const {
    return when <= known->of(other) || (other == agent && when == time);
  }
};

struct Shadow::State {
  explicit State(Cluster& owner) : cluster(owner) {}

  Cluster& cluster;
  std::vector<BlockShadow> blocks;  // by rank
  std::vector<std::unique_ptr<WarpShadow>> warps;
  std::vector<AgentInfo> agents;
  std::vector<AgentMemo> memos;  // by agent
  ShadowTables tables;
  std::uint64_t generation = 0;  // of the tables' numbers
  std::unordered_map<std::uint64_t, SyncClock> mbarriers, locations;

  // shadow_tables.cpp
  std::uint32_t record_of(const Actor& actor);
  std::uint32_t with_reader(std::uint32_t set, const Actor& actor);
  void compact();
  // shadow_sync.cpp
  WarpShadow& of(const Warp& warp);
  Agent new_agent(AgentInfo::Kind kind, const Warp& warp);
  std::shared_ptr<const SyncClock> snapshot(WarpShadow& warp);
  void take(WarpShadow& warp, const SyncClock& clock);
  void publish(WarpShadow& warp, SyncClock& clock);
  // The clocks of the locations of strong accesses.
  void take_locations(WarpShadow& warp, int rank, const std::uint64_t* addresses, Mask lanes);
  void publish_locations(WarpShadow& warp, int rank, const std::uint64_t* addresses, Mask lanes);
  Mask fenced_lanes(const Actor& reader, const WriteRecord& record) const;
  bool fenced_by_others(const Actor& reader, const WriteRecord& record) const;
  // shadow.cpp
  BlockShadow& block(int rank);
  Actor actor(const Warp& warp, WarpShadow& shadow, bool strong);
  Actor actor(const Operation& operation);
  void read_lanes(Actor actor, int rank, const std::uint64_t* addresses, std::uint32_t bytes,
                  Mask lanes);
  void write_lanes(Actor actor, int rank, const std::uint64_t* addresses, std::uint32_t bytes,
                   Mask lanes);
  void read(const Actor& actor, int rank, std::uint32_t offset, std::uint32_t bytes);
  void write(const Actor& actor, int rank, std::uint32_t offset, std::uint32_t bytes);
  // shadow_lanes.cpp: lanes of one warp against each other.
  void check_lane_read(const Actor& actor, int rank, std::uint32_t offset, std::uint32_t bytes);
  void check_lane_write(const Actor& actor, int rank, std::uint32_t offset, std::uint32_t bytes);
  bool is_unsynced(const Actor& actor, const WriteRecord& record) const;
  // shadow.cpp
  Mask check_writer(const Actor& actor, std::uint32_t record, bool writes, int rank,
                    std::uint32_t offset) const;
  void check_readers(const Actor& actor, std::uint32_t set, int rank, std::uint32_t offset) const;
  // shadow_report.cpp
  [[noreturn]] void report_uninitialized(const Actor& actor, int rank, std::uint32_t offset) const;
  [[noreturn]] void report_race(const Actor& actor, bool writes, Agent other, std::uint32_t pc,
                                bool other_wrote, int rank, std::uint32_t offset) const;
  [[noreturn]] void report_lanes(const Actor& actor, bool writes, int other, std::uint32_t pc,
                                 bool other_wrote, int rank, std::uint32_t offset) const;
  [[noreturn]] void report_proxy(const Actor& actor, const WriteRecord& record, int lane, int rank,
                                 std::uint32_t offset) const;
  std::string name_of(Agent agent, std::uint32_t pc) const;
  std::string place_of(int rank, std::uint32_t offset) const;
};

}  // namespace kiln::runtime::emulator
