// The checker of shared memory, driven by hand: who may access what, and what it says.
#include "tests/emulator/shared_machine.h"
#include "tests/support/catch.h"

using namespace kiln::runtime::emulator;

namespace {

constexpr std::uint32_t kAt = kSharedBase;

bool is_race(const RaisedFault& fault) { return fault.fault == Fault::shared_race; }
bool is_clean(const RaisedFault& fault) { return fault.message.empty(); }

// A full barrier of some warps.
void barrier(SharedMachine& machine, std::initializer_list<int> warps) {
  SyncClock clock;
  for (int warp : warps) machine.shadow().release(machine.warp(warp), clock);
  for (int warp : warps) machine.shadow().acquire(machine.warp(warp), clock);
}

}  // namespace

TEST_CASE("Shared memory that nobody has written is not read") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  shadow.write(machine.warp(0), 0, kAt, 6, 3);
  CHECK(is_clean(fault_of([&] { shadow.read(machine.warp(0), 0, kAt, 6, 5); })));
  const RaisedFault fault = fault_of([&] { shadow.read(machine.warp(0, 2), 0, kAt + 4, 4, 5); });
  CHECK(fault.fault == Fault::uninitialized_shared);
  CHECK(fault.lane == 5);
  CHECK(contains(fault.message, "byte 0x406 of block 0's shared memory ('tile' + 0x6)"));
  CHECK(contains(fault.message, "warp 0 (PTX line 10)"));
}

TEST_CASE("A write and a read of two warps need a barrier between") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  shadow.write(machine.warp(2, 0), 0, kAt, 16, 0);
  const RaisedFault fault = fault_of([&] { shadow.read(machine.warp(1, 1), 0, kAt + 8, 4, 7); });
  CHECK(is_race(fault));
  CHECK(contains(fault.message, "byte 0x408 of block 0's shared memory"));
  CHECK(contains(fault.message, "written by warp 2 (PTX line 8), read by warp 1 (PTX line 9)"));

  barrier(machine, {1, 2});
  CHECK(is_clean(fault_of([&] { shadow.read(machine.warp(1), 0, kAt + 8, 4, 7); })));
  // Who was not there is not ordered.
  CHECK(is_race(fault_of([&] { shadow.read(machine.warp(3), 0, kAt + 8, 4, 7); })));
}

TEST_CASE("A read and a later write of two warps need a barrier between") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  shadow.write(machine.warp(0), 0, kAt, 16, 0);
  barrier(machine, {0, 1, 2});
  shadow.read(machine.warp(1, 1), 0, kAt, 16, 0);
  shadow.read(machine.warp(2, 2), 0, kAt, 16, 0);
  barrier(machine, {0, 1});
  const RaisedFault fault = fault_of([&] { shadow.write(machine.warp(0), 0, kAt, 4, 0); });
  CHECK(is_race(fault));
  CHECK(contains(fault.message, "read by warp 2 (PTX line 10), written by warp 0 (PTX line 8)"));
  barrier(machine, {0, 2});
  CHECK(is_clean(fault_of([&] { shadow.write(machine.warp(0), 0, kAt, 16, 0); })));
}

TEST_CASE("An access behind a release is not ordered by it") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  SyncClock clock;
  shadow.release(machine.warp(0), clock);
  shadow.release(machine.warp(0), clock);  // nothing accessed in between
  shadow.write(machine.warp(0), 0, kAt, 4, 0);
  shadow.acquire(machine.warp(1), clock);
  CHECK(is_race(fault_of([&] { shadow.read(machine.warp(1), 0, kAt, 4, 0); })));
}

TEST_CASE("Neighbouring bytes of different warps do not race") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  for (std::uint32_t i = 0; i < 64; ++i) {
    shadow.write(machine.warp(static_cast<int>(i % 4)), 0, kAt + 2 * i, 2, 0);
  }
  barrier(machine, {0, 1, 2, 3});
  CHECK(is_clean(fault_of([&] { shadow.read(machine.warp(3), 0, kAt, 128, 0); })));
  CHECK(is_race(fault_of([&] { shadow.write(machine.warp(0), 0, kAt + 127, 1, 0); })));
}

TEST_CASE("Order is transitive") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  shadow.write(machine.warp(0), 0, kAt, 4, 0);
  barrier(machine, {0, 1});
  barrier(machine, {1, 2});
  CHECK(is_clean(fault_of([&] { shadow.write(machine.warp(2), 0, kAt, 4, 0); })));
}

TEST_CASE("Atomic accesses do not race with each other, and order what is around them") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  shadow.write(machine.warp(0), 0, kAt, 4, 0);  // the lock
  barrier(machine, {0, 1, 2});
  shadow.write(machine.warp(1), 0, kAt + 64, 4, 0);
  shadow.atomic(machine.warp(1), 0, kAt, 4, 0);
  CHECK(is_clean(fault_of([&] { shadow.atomic(machine.warp(2), 0, kAt, 4, 0); })));
  CHECK(is_clean(fault_of([&] { shadow.read(machine.warp(2), 0, kAt + 64, 4, 0); })));
  CHECK(is_race(fault_of([&] { shadow.read(machine.warp(0), 0, kAt, 4, 0); })));
}

TEST_CASE("A copy's bytes may be read by who has waited for it") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  const bool async_proxy = GENERATE(false, true);
  const Shadow::Operation copy = shadow.begin(machine.warp(0), 4, async_proxy);
  shadow.write(copy, 0, kAt, 256);
  // Not even its issuer may read them at once.
  const RaisedFault fault = fault_of([&] { shadow.read(machine.warp(0), 0, kAt, 4, 0); });
  CHECK(is_race(fault));
  CHECK(contains(fault.message, async_proxy ? "an asynchronous operation of warp 0 (PTX line 8)"
                                            : "a cp.async of warp 0 (PTX line 8)"));
  shadow.acquire(machine.warp(0), copy);
  CHECK(is_clean(fault_of([&] { shadow.read(machine.warp(0), 0, kAt, 4, 0); })));
  CHECK(is_race(fault_of([&] { shadow.read(machine.warp(1), 0, kAt, 4, 0); })));
  shadow.publish(copy, shadow.mbarrier_clock(0, 8, 1));
  CHECK(is_race(fault_of([&] {
    shadow.acquire(machine.warp(1), shadow.mbarrier_clock(0, 8, 0));
    shadow.read(machine.warp(1), 0, kAt, 4, 0);
  })));
  shadow.acquire(machine.warp(1), shadow.mbarrier_clock(0, 8, 1));
  CHECK(is_clean(fault_of([&] { shadow.read(machine.warp(1), 0, kAt, 4, 0); })));
}

TEST_CASE("A bulk copy is not done because a later one is") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  const Shadow::Operation first = shadow.begin(machine.warp(0), 0, true);
  const Shadow::Operation second = shadow.begin(machine.warp(0), 0, true);
  shadow.write(first, 0, kAt, 64);
  shadow.write(second, 0, kAt + 64, 64);
  shadow.publish(second, shadow.mbarrier_clock(0, 0, 0));
  shadow.acquire(machine.warp(1), shadow.mbarrier_clock(0, 0, 0));
  CHECK(is_clean(fault_of([&] { shadow.read(machine.warp(1), 0, kAt + 64, 64, 0); })));
  CHECK(is_race(fault_of([&] { shadow.read(machine.warp(1), 0, kAt + 60, 4, 0); })));
}

TEST_CASE("A copy into a stage needs the consumers to have released it") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  SyncClock full, empty;
  for (int round = 0; round < 200; ++round) {
    const Shadow::Operation copy = shadow.begin(machine.warp(0), 0, true);
    shadow.write(copy, 0, kAt, 64);
    shadow.publish(copy, full);
    shadow.acquire(machine.warp(1), full);
    shadow.read(machine.warp(1, 1), 0, kAt, 64, 0);
    if (round == 199) break;
    shadow.release(machine.warp(1), empty);
    shadow.acquire(machine.warp(0), empty);
  }
  const Shadow::Operation copy = shadow.begin(machine.warp(0), 0, true);
  const RaisedFault fault = fault_of([&] { shadow.write(copy, 0, kAt, 64); });
  CHECK(is_race(fault));
  CHECK(contains(fault.message, "read by warp 1 (PTX line 9), written by an asynchronous"));
}

TEST_CASE("What an asynchronous unit reads needs the writing lane's proxy fence") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  shadow.write(machine.warp(0), 0, kAt, 4, 0);
  shadow.write(machine.warp(0), 0, kAt + 4, 4, 9);
  SECTION("none") {}
  SECTION("of another lane") { shadow.fence_proxy(machine.warp(0), 1); }
  SECTION("of another warp") { shadow.fence_proxy(machine.warp(1), kAllLanes); }
  SECTION("before the last write") {
    shadow.fence_proxy(machine.warp(0), kAllLanes);
    shadow.write(machine.warp(0), 0, kAt + 4, 4, 9);
  }
  barrier(machine, {0, 1});
  const Shadow::Operation store = shadow.begin(machine.warp(1), 0, true);
  shadow.fence_proxy(machine.warp(0), kAllLanes);  // too late for this store
  const RaisedFault fault = fault_of([&] { shadow.read(store, 0, kAt, 8); });
  CHECK(fault.fault == Fault::unfenced_proxy);
  CHECK(contains(fault.message, " of warp 0 (PTX line 8) and read by an asynchronous operation"));

  barrier(machine, {0, 1});
  const Shadow::Operation again = shadow.begin(machine.warp(1), 0, true);
  CHECK(is_clean(fault_of([&] { shadow.read(again, 0, kAt, 8); })));
}

TEST_CASE("Writes of asynchronous units, and generic readers, need no proxy fence") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  shadow.write(machine.warp(0), 0, kAt, 64, 0);
  shadow.read(machine.warp(0), 0, kAt, 64, 0);
  const Shadow::Operation load = shadow.begin(machine.warp(0), 0, true);
  CHECK(is_clean(fault_of([&] { shadow.write(load, 0, kAt, 64); })));
  shadow.acquire(machine.warp(0), load);
  const Shadow::Operation product = shadow.begin(machine.warp(0), 0, true);
  CHECK(is_clean(fault_of([&] { shadow.read(product, 0, kAt, 64); })));
}

TEST_CASE("cp.async is of the generic proxy: the fence comes behind its wait") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  const Shadow::Operation copy = shadow.begin(machine.warp(0), 0, false);
  shadow.write(copy, 0, kAt, 16);
  shadow.fence_proxy(machine.warp(0), kAllLanes);  // before the wait: too early
  shadow.acquire(machine.warp(0), copy);
  const Shadow::Operation early = shadow.begin(machine.warp(0), 0, true);
  CHECK(fault_of([&] { shadow.read(early, 0, kAt, 16); }).fault == Fault::unfenced_proxy);
  shadow.fence_proxy(machine.warp(0), kAllLanes);
  const Shadow::Operation product = shadow.begin(machine.warp(0), 0, true);
  CHECK(is_clean(fault_of([&] { shadow.read(product, 0, kAt, 16); })));
}

TEST_CASE("The shadow of a long kernel stays small and exact") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  shadow.write(machine.warp(3), 0, kAt + 1024, 4, 0);
  for (std::uint32_t round = 0; round < 60000; ++round) {
    shadow.write(machine.warp(0, round % 3), 0, kAt + round % 64, 1, 0);
    barrier(machine, {0, 1});
    shadow.read(machine.warp(1, round % 2), 0, kAt + round % 64, 1, 0);
    barrier(machine, {0, 1});
  }
  CHECK(is_race(fault_of([&] { shadow.read(machine.warp(0), 0, kAt + 1024, 4, 0); })));
  CHECK(is_clean(fault_of([&] { shadow.read(machine.warp(3), 0, kAt + 1024, 4, 0); })));
}

TEST_CASE("Lanes of one warp are ordered; lanes are checked together as one by one") {
  SharedMachine machine;
  Shadow& shadow = machine.shadow();
  std::array<std::uint64_t, kLanes> addresses;
  for (std::uint32_t l = 0; l < kLanes; ++l) addresses[l] = kAt + 16 * (l ^ 5);
  shadow.write_lanes(machine.warp(0), 0, addresses.data(), 16, kAllLanes);
  CHECK(is_clean(
      fault_of([&] { shadow.read_lanes(machine.warp(0), 0, addresses.data(), 16, kAllLanes); })));
  barrier(machine, {0, 1});
  shadow.write(machine.warp(2), 0, kAt + 1024, 1, 0);
  addresses[17] = kAt + 1024;
  const RaisedFault fault =
      fault_of([&] { shadow.read_lanes(machine.warp(1), 0, addresses.data(), 16, kAllLanes); });
  CHECK(is_race(fault));
  CHECK(fault.lane == 17);
  CHECK(is_clean(fault_of(
      [&] { shadow.read_lanes(machine.warp(1), 0, addresses.data(), 16, ~(Mask{1} << 17)); })));
}
