// Blocks and clusters: their state, and the turns that their warps take.
#include <algorithm>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

// Ops of one warp's turn. Long enough to stay in the host's caches; a seed cuts it short, so that
// warps interleave finely.
constexpr std::uint64_t kTurn = 1024;
// A warp that polls memory, not a barrier, is never stuck. When another waits for asynchronous work
// all the while, the work is delivered after so many passes.
constexpr int kPatience = 64;

std::array<int, 3> unravel(std::int64_t index, const std::array<unsigned, 3>& size) {
  const auto x = static_cast<std::int64_t>(size[0]), y = static_cast<std::int64_t>(size[1]);
  return {static_cast<int>(index % x), static_cast<int>(index / x % y),
          static_cast<int>(index / (x * y))};
}

std::string count_text(std::uint64_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

Block::Block(Cluster& cluster, int rank, std::array<int, 3> id, std::int64_t linear_id)
    : cluster_(&cluster), rank_(rank), id_(id), linear_id_(linear_id) {
  const Launch& launch = cluster.launch();
  const auto& block = launch.shape.block;
  thread_count_ = static_cast<int>(block[0] * block[1] * block[2]);
  // What nobody has written is not zero on a GPU.
  shared_.resize(kSharedBase + launch.program->shared_bytes + launch.shape.dynamic_shared_bytes,
                 std::byte{0xcd});
  const int warp_count = (thread_count_ + kLanes - 1) / kLanes;
  warps_.reserve(static_cast<std::size_t>(warp_count));
  for (int i = 0; i < warp_count; ++i) {
    const int lanes = std::min(thread_count_ - i * kLanes, kLanes);
    warps_.emplace_back(*this, i, lanes == kLanes ? kAllLanes : (Mask{1} << lanes) - 1);
  }
  for (NamedBarrier& barrier : barriers_) barrier.clock = std::make_unique<SyncClock>();
  const Function& function = *launch.program->function;
  const std::uint32_t granted =
      function.max_registers != 0
          ? function.max_registers
          : std::min(255u, launch.limits->registers_per_sm /
                               static_cast<std::uint32_t>(warp_count * kLanes) / 8 * 8);
  warp_registers.assign(static_cast<std::size_t>(warp_count), granted);
}

bool Block::done() const {
  return std::ranges::all_of(warps_, [](const Warp& warp) { return warp.done(); });
}

Cluster::Cluster(const Launch& launch, std::int64_t index)
    : launch_(&launch),
      index_(index),
      random_(launch.options.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(index)),
      async_(std::make_unique<AsyncQueue>(*this)) {
  barrier_.clock = std::make_unique<SyncClock>();
  const auto& size = launch.shape.cluster;
  const auto& grid = launch.shape.grid;
  const std::array<unsigned, 3> clusters = {grid[0] / size[0], grid[1] / size[1],
                                            grid[2] / size[2]};
  const std::array<int, 3> at = unravel(index, clusters);
  const int count = static_cast<int>(size[0] * size[1] * size[2]);
  blocks_.reserve(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    std::array<int, 3> id = unravel(rank, size);
    for (std::size_t i = 0; i < 3; ++i) id[i] += at[i] * static_cast<int>(size[i]);
    const std::int64_t linear = id[0] + static_cast<std::int64_t>(grid[0]) *
                                            (id[1] + static_cast<std::int64_t>(grid[1]) * id[2]);
    blocks_.emplace_back(*this, rank, id, linear);
  }
  if (launch.options.checks) shadow_ = std::make_unique<Shadow>(*this);
  for (Block& block : blocks_) {
    for (Warp& warp : block.warps()) turns_.push_back(&warp);
  }
}

Cluster::~Cluster() = default;

bool Cluster::done() const {
  return std::ranges::all_of(blocks_, [](const Block& block) { return block.done(); });
}

Cluster::Pass Cluster::run_warps() {
  const bool shuffled = launch_->options.seed != 0;
  if (shuffled) std::shuffle(turns_.begin(), turns_.end(), random_);
  Pass pass;
  for (Warp* warp : turns_) {
    if (warp->done()) continue;
    const Warp::Turn turn = warp->run(shuffled ? 1 + random_() % kTurn : kTurn);
    pass.progressed |=
        turn == Warp::Turn::spent || turn == Warp::Turn::blocked || turn == Warp::Turn::done;
    pass.polled |= turn == Warp::Turn::yielded;
    pass.blocked |= turn == Warp::Turn::blocked || turn == Warp::Turn::stuck;
  }
  return pass;
}

bool Cluster::deliver() {
  passes_without_delivery_ = 0;
  const BulkWork* work = async_->front();
  if (work == nullptr) return false;
  const Warp* issuer = work->issuer;
  const int lane = work->lane;
  const std::uint32_t line = work->ptx_line;
  try {
    return async_->deliver();
  } catch (const RaisedFault& fault) {
    Site site = site_of(*issuer, lane);
    if (line != 0) site.ptx_line = line;
    throw EmulatorError(fault.fault, fault.message, site);
  }
}

bool Cluster::run(std::uint64_t quantum) {
  const std::uint64_t limit = launch_->options.step_limit;
  const auto steps = [this] {
    std::uint64_t sum = 0;
    for (const Warp* warp : turns_) sum += warp->steps();
    return sum;
  };
  const std::uint64_t begin = steps();
  int polling = 0;  // passes in a row in which nobody did anything else
  while (!done() && polling < kPatience) {
    const Pass pass = run_warps();
    polling = pass.progressed ? 0 : polling + 1;
    if (pass.blocked && !async_->empty() && ++passes_without_delivery_ >= kPatience) deliver();
    if (!pass.progressed && !deliver() && !async_->time_out() && !pass.polled) {
      report_deadlock();
    }
    const std::uint64_t now = steps();
    if (limit != 0 && now >= limit) {
      throw EmulatorError(Fault::step_limit,
                          "the blocks of one cluster have executed " + std::to_string(now) +
                              " warp instructions; the limit is " + std::to_string(limit),
                          site_of(*turns_.front(), -1));
    }
    if (now - begin >= quantum) break;
  }
  if (done() && !finished_) finish();
  return done();
}

void Cluster::finish() {
  finished_ = true;
  if (const BulkWork* work = async_->front()) {
    Site site = site_of(*work->issuer, work->lane);
    if (work->ptx_line != 0) site.ptx_line = work->ptx_line;
    throw EmulatorError(Fault::in_flight,
                        "the block has ended while a bulk copy that it issued is in flight", site);
  }
  for (const Warp* warp : turns_) {
    try {
      const_cast<Warp*>(warp)->async().check_finished(*warp);
      check_matrix_finished(*warp);
    } catch (const RaisedFault& fault) {
      throw EmulatorError(fault.fault, fault.message, site_of(*warp, fault.lane));
    }
  }
}

void Cluster::report_deadlock() {
  std::string text = "nobody can go on";
  int told = 0, stuck = 0;
  bool registers = false;
  const Warp* first = nullptr;
  for (const Warp* warp : turns_) {
    for (const Group& group : warp->groups()) {
      ++stuck;
      if (first == nullptr) first = warp;
      registers = registers || group.wait.kind == Wait::Kind::registers;
      if (++told > 8) continue;
      const Site site = site_of(*warp, std::countr_zero(group.mask));
      text += "\n  block " + std::to_string(warp->block().linear_id()) + " warp " +
              std::to_string(warp->index()) + " lanes " + hex(group.mask) + ": ";
      text += describe(*warp, group.wait);
      const Instruction* at = instruction_at(*warp, group.pc);
      if (at != nullptr) {
        text += " (PTX line " + std::to_string(at->line) + ": " + at->text() + ")";
      }
    }
  }
  if (stuck > 8)
    text += "\n  and " + count_text(static_cast<std::uint64_t>(stuck - 8), "more group");
  throw EmulatorError(registers ? Fault::register_budget : Fault::deadlock, text,
                      first != nullptr ? site_of(*first, -1) : Site{});
}

}  // namespace kiln::runtime::emulator
