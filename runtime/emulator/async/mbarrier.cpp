// PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
#include "runtime/emulator/async/mbarrier.h"

#include <cstring>

#include "runtime/emulator/async/address.h"
#include "runtime/emulator/async/async.h"
#include "runtime/emulator/async/hooks.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

constexpr unsigned kBytes = 8;
constexpr std::uint64_t kDead = 0xdead'ba11'dead'ba11u;

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 31) * 0x9e37'79b9'7f4a'7c15u;
  return x ^ x >> 29;
}

// Never what a kernel would write there.
std::uint64_t image_of(const Mbarrier& object, std::uint32_t address) {
  const std::uint64_t counts = std::uint64_t{object.pending} << 40 |
                               std::uint64_t{object.expected} << 20 |
                               (static_cast<std::uint32_t>(object.tx) & 0xfffffu);
  return mixed(mixed(counts + address) ^ object.phase);
}

std::string where(Cluster& cluster, std::uint32_t address) {
  std::string text = "the mbarrier at shared address " + hex(address);
  if (cluster.blocks().size() > 1) text += " (block " + std::to_string(rank_of(address)) + ")";
  for (const SharedVariable& variable : cluster.program().shared_variables) {
    const std::uint32_t offset = offset_of(address);
    if (offset < variable.offset || offset - variable.offset >= variable.bytes) continue;
    text +=
        " in '" + std::string(variable.name) + "' + " + std::to_string(offset - variable.offset);
  }
  return text;
}

std::byte* bytes_at(Cluster& cluster, std::uint32_t address, int lane) {
  return shared_at(cluster, address, kBytes, kBytes, lane);
}

MbarrierTable& table_of(Cluster& cluster) { return cluster.async().mbarriers(); }

void store_image(std::byte* at, std::uint64_t image) { std::memcpy(at, &image, kBytes); }

bool holds_image(const std::byte* at, std::uint64_t image) {
  return std::memcmp(at, &image, kBytes) == 0;
}

[[noreturn]] void misuse(Cluster& cluster, std::uint32_t address, const std::string& what,
                         int lane) {
  raise(Fault::barrier_misuse, where(cluster, address) + " " + what, lane);
}

Mbarrier& live_object(Cluster& cluster, std::uint32_t address, int lane) {
  const std::byte* at = bytes_at(cluster, address, lane);
  MbarrierTable& table = table_of(cluster);
  const auto found = table.objects.find(address);
  if (found == table.objects.end()) {
    misuse(cluster, address,
           holds_image(at, kDead) ? "is used after mbarrier.inval" : "was never initialised", lane);
  }
  if (!holds_image(at, image_of(found->second, address))) {
    misuse(cluster, address, "was written over by something that is no mbarrier operation", lane);
  }
  return found->second;
}

// After any change; completes the phase when nothing is awaited any more.
void settle(Cluster& cluster, std::uint32_t address, Mbarrier& object) {
  if (object.pending == 0 && object.tx == 0) {
    ++object.phase;
    object.pending = object.expected;
  }
  store_image(bytes_at(cluster, address, -1), image_of(object, address));
  ++table_of(cluster).changes;
}

void add_tx(Cluster& cluster, std::uint32_t address, Mbarrier& object, std::int64_t bytes,
            int lane) {
  const std::int64_t sum = object.tx + bytes;
  if (sum > kMaxTx || sum < -kMaxTx) {
    misuse(cluster, address,
           "would await " + std::to_string(sum) + " bytes; its count holds at most " +
               std::to_string(kMaxTx),
           lane);
  }
  object.tx = static_cast<std::int32_t>(sum);
}

void check_pending(Cluster& cluster, std::uint32_t address, const Mbarrier& object,
                   std::uint32_t count, int lane) {
  if (count <= object.pending) return;
  misuse(cluster, address,
         "gets " + std::to_string(count) + (count == 1 ? " arrival" : " arrivals") +
             " where its phase " + std::to_string(object.phase) + " awaits only " +
             std::to_string(object.pending) + " more (it was initialised or left with " +
             std::to_string(object.expected) + ", and " + std::to_string(object.tx) +
             " bytes are awaited)",
         lane);
}

SyncClock& clock_of(Shadow& shadow, std::uint32_t address, const Mbarrier& object) {
  return shadow.mbarrier_clock(rank_of(address), offset_of(address),
                               static_cast<std::uint32_t>(object.phase & 1));
}

}  // namespace

void mbarrier_init(Warp& warp, std::uint32_t address, std::uint32_t count, int lane) {
  Cluster& cluster = warp.block().cluster();
  std::byte* at = bytes_at(cluster, address, lane);
  if (count == 0 || count > kMaxArrivals) {
    misuse(cluster, address,
           "is initialised for " + std::to_string(count) + " arrivals; valid are 1 to " +
               std::to_string(kMaxArrivals),
           lane);
  }
  MbarrierTable& table = table_of(cluster);
  const auto found = table.objects.find(address);
  if (found != table.objects.end() && holds_image(at, image_of(found->second, address))) {
    misuse(cluster, address, "is initialised again without mbarrier.inval", lane);
  }
  Mbarrier& object = table.objects[address];
  object = {
      .phase = 0, .expected = count, .pending = count, .tx = 0, .unfenced = &warp, .lane = lane};
  store_image(at, image_of(object, address));
  ++table.changes;
  if (Shadow* shadow = cluster.shadow()) {
    shadow->forget_mbarrier(rank_of(address), offset_of(address));
    shadow->write(warp, rank_of(address), offset_of(address), kBytes, lane);
  }
}

void mbarrier_invalidate(Warp& warp, std::uint32_t address, int lane) {
  Cluster& cluster = warp.block().cluster();
  live_object(cluster, address, lane);
  table_of(cluster).objects.erase(address);
  store_image(bytes_at(cluster, address, lane), kDead);
  if (Shadow* shadow = cluster.shadow()) {
    shadow->forget_mbarrier(rank_of(address), offset_of(address));
    shadow->write(warp, rank_of(address), offset_of(address), kBytes, lane);
  }
}

const Mbarrier& mbarrier_check(Warp& warp, std::uint32_t address, int lane) {
  Cluster& cluster = warp.block().cluster();
  const Mbarrier& object = live_object(cluster, address, lane);
  if (rank_of(address) != warp.block().rank() &&
      cluster.blocks()[static_cast<std::size_t>(rank_of(address))].done()) {
    misuse(cluster, address, "is used after its block has ended", lane);
  }
  // Only the initialisation must have happened before: arrivals are atomic.
  if (Shadow* shadow = cluster.shadow()) {
    shadow->read(warp, rank_of(address), offset_of(address), kBytes, lane);
  }
  return object;
}

void mbarrier_check_async(Warp& warp, std::uint32_t address, int lane) {
  Cluster& cluster = warp.block().cluster();
  const Mbarrier& object = mbarrier_check(warp, address, lane);
  if (object.unfenced == nullptr || !cluster.launch().options.checks) return;
  raise(Fault::unfenced_proxy,
        where(cluster, address) + " is used by an asynchronous unit, but lane " +
            std::to_string(object.lane) + " of warp " + std::to_string(object.unfenced->index()) +
            ", which initialised it, has executed neither fence.mbarrier_init nor "
            "fence.proxy.async since",
        lane);
}

void fence_mbarrier_init(Warp& warp, Mask lanes) {
  for (auto& [address, object] : table_of(warp.block().cluster()).objects) {
    if (object.unfenced == &warp && (lanes >> object.lane & 1) != 0) object.unfenced = nullptr;
  }
}

std::uint64_t mbarrier_arrive(Warp& warp, std::uint32_t address, const MbarrierArrival& arrival,
                              int lane) {
  Cluster& cluster = warp.block().cluster();
  mbarrier_check(warp, address, lane);
  Mbarrier& object = live_object(cluster, address, lane);
  if (arrival.count == 0 || arrival.count > kMaxArrivals) {
    misuse(cluster, address, "gets " + std::to_string(arrival.count) + " arrivals at once", lane);
  }
  const std::uint64_t token = mbarrier_token(object);
  check_pending(cluster, address, object, arrival.count, lane);
  if (arrival.no_complete && arrival.count == object.pending) {
    misuse(cluster, address, "would complete its phase by an arrival that is .noComplete", lane);
  }
  if (Shadow* shadow = cluster.shadow(); shadow != nullptr && arrival.release) {
    shadow->release(warp, clock_of(*shadow, address, object));
  }
  if (arrival.expect_tx > 0) add_tx(cluster, address, object, arrival.expect_tx, lane);
  if (arrival.drop) object.expected -= arrival.count;
  object.pending -= arrival.count;
  settle(cluster, address, object);
  return token;
}

void mbarrier_expect_tx(Warp& warp, std::uint32_t address, std::uint32_t bytes, int lane) {
  Cluster& cluster = warp.block().cluster();
  mbarrier_check(warp, address, lane);
  Mbarrier& object = live_object(cluster, address, lane);
  add_tx(cluster, address, object, bytes, lane);
  settle(cluster, address, object);
}

void mbarrier_complete_tx(Cluster& cluster, std::uint32_t address, std::uint32_t bytes) {
  check_block_runs(cluster, address, "an mbarrier's complete_tx");
  Mbarrier& object = live_object(cluster, address, -1);
  add_tx(cluster, address, object, -std::int64_t{bytes}, -1);
  settle(cluster, address, object);
}

void mbarrier_add_pending(Cluster& cluster, std::uint32_t address) {
  Mbarrier& object = live_object(cluster, address, -1);
  if (object.pending == kMaxArrivals) misuse(cluster, address, "awaits too many arrivals", -1);
  ++object.pending;
  settle(cluster, address, object);
}

void mbarrier_arrive_async(Cluster& cluster, std::uint32_t address, bool) {
  check_block_runs(cluster, address, "an mbarrier's arrival");
  Mbarrier& object = live_object(cluster, address, -1);
  check_pending(cluster, address, object, 1, -1);
  --object.pending;
  settle(cluster, address, object);
}

void mbarrier_publish(Cluster& cluster, std::uint32_t address, const Shadow::Operation& operation) {
  Shadow* shadow = cluster.shadow();
  if (shadow == nullptr) return;
  shadow->publish(operation, clock_of(*shadow, address, live_object(cluster, address, -1)));
}

std::string describe_mbarrier(Cluster& cluster, std::uint32_t address) {
  const MbarrierTable& table = table_of(cluster);
  const auto found = table.objects.find(address);
  if (found == table.objects.end()) return "which is no live mbarrier";
  const Mbarrier& object = found->second;
  return "which is in phase " + std::to_string(object.phase) + " (parity " +
         std::to_string(object.phase & 1) + "): " + std::to_string(object.pending) + " of " +
         std::to_string(object.expected) + " arrivals pending, " + std::to_string(object.tx) +
         " bytes awaited";
}

}  // namespace kiln::runtime::emulator
