// Addresses to bytes: bounds, alignment, spaces, and what the reports say.
#include <cstring>

#include "tests/emulator/shared_machine.h"
#include "tests/support/catch.h"

using namespace kiln::runtime::emulator;

TEST_CASE("Global memory is what the launch names") {
  AddressMap map;
  const auto text_of = [&](std::uint64_t address, std::uint64_t bytes, bool write) {
    return fault_of([&] { map.find(address, bytes, write, 3); }).message;
  };
  CHECK(contains(text_of(0x1000, 4, false), "names no memory"));
  map.add(0x1000, 0x100, false, "in");
  map.add(0x5000, 16, true);
  CHECK(text_of(0x1000, 0x100, false).empty());
  CHECK(contains(text_of(0x1000, 4, true), "'in' is read-only"));
  CHECK(contains(text_of(0x10fe, 4, false), "ends 2 bytes behind the end of 'in'"));
  CHECK(contains(text_of(0x1110, 4, false), "ends 20 bytes behind the end of 'in'"));
  CHECK(contains(text_of(0xff0, 4, false), "begins 16 bytes before the start of 'in'"));
  CHECK(contains(text_of(0x4fff, 1, false), "begins 1 byte before the start of an allocation"));
  CHECK(contains(text_of(~std::uint64_t{0} - 3, 16, false), "global address 0xfffffffffffffffc"));
  CHECK(map.try_find(0x4ff8, 16, false) == nullptr);
  CHECK(map.try_find(0x5008, 8, true) == reinterpret_cast<std::byte*>(0x5008));
}

TEST_CASE("Overlapping spans are one memory, writable where one of them is") {
  AddressMap map;
  map.add(0x1000, 0x100, false, "in");
  map.add(0x1080, 0x100, true, "out");
  map.add(0x1040, 0x10, true, "hole");
  map.add(0x0ff0, 0x20, false, "before");
  CHECK(map.try_find(0x0ff0, 0x190, false) != nullptr);
  CHECK(map.try_find(0x0ff0, 0x191, false) == nullptr);
  CHECK(map.try_find(0x1040, 0x10, true) != nullptr);
  CHECK(map.try_find(0x103f, 2, true) == nullptr);
  CHECK(map.try_find(0x104f, 2, true) == nullptr);
  CHECK(map.try_find(0x1080, 0x100, true) != nullptr);
  CHECK(map.try_find(0x107f, 1, true) == nullptr);
}

TEST_CASE("Global variables have their initial values and each other's addresses") {
  const Module module = parse_ptx(R"(.version 8.0
.target sm_90
.address_size 64
.global .align 4 .u32 table[4] = {1, 2, 3};
.const .align 8 .u64 where[2] = {generic(table), table+8};
.global .align 128 .b8 zeros[100];
)");
  const GlobalVariables globals(module);
  AddressMap map;
  globals.add_to(map);
  const std::uint64_t table = globals.address_of("table");
  const std::uint64_t where = globals.address_of("where");
  CHECK(globals.address_of("nobody") == 0);
  CHECK(globals.address_of("zeros") % 128 == 0);
  std::uint32_t values[4];
  std::memcpy(values, map.find(table, 16, true, 0), 16);
  CHECK(values[0] == 1);
  CHECK(values[2] == 3);
  CHECK(values[3] == 0);
  std::uint64_t addresses[2];
  std::memcpy(addresses, map.find(where, 16, false, 0), 16);
  CHECK(addresses[0] == table);
  CHECK(addresses[1] == table + 8);
  CHECK(contains(fault_of([&] { map.find(where, 8, true, 0); }).message, "'where' is read-only"));
  CHECK(!fault_of([&] { map.find(table, 17, false, 0); }).message.empty());
}

TEST_CASE("Shared memory has bounds, alignment and an owner") {
  SharedMachine machine(2);
  Warp& warp = machine.warp(0);
  const auto fault = [&](std::uint64_t address, unsigned bytes, Space space = Space::shared,
                         bool peers = false) {
    return fault_of([&] { access(warp, space, address, bytes, AccessKind::write, 9, peers); });
  };
  CHECK(fault(kSharedBase, 16).message.empty());
  CHECK(fault(kSharedBase + 4080, 16).message.empty());
  CHECK(contains(fault(kSharedBase + 4096, 16).message, "ends 16 bytes behind the end"));
  CHECK(contains(fault(kSharedBase + 4096, 16).message, "'tile' begins 4096 bytes before"));
  CHECK(fault(kSharedBase + 4096, 16).lane == 9);
  CHECK(contains(fault(kSharedBase - 4, 4).message, "begins 4 bytes before"));
  CHECK(fault(kSharedBase + 8, 16).fault == Fault::misaligned);
  CHECK(contains(fault(kSharedBase + 8, 16).message, "must be a multiple of 16"));
  const std::uint64_t peer = (1u << kRankShift) + kSharedBase;
  CHECK(contains(fault(peer, 4).message, "belongs to block 1 of the cluster"));
  CHECK(fault(peer, 4, Space::shared, true).message.empty());
  CHECK(fault(kSharedWindow + peer, 4, Space::none).message.empty());
  CHECK(contains(fault((7u << kRankShift) + kSharedBase, 4, Space::shared, true).message,
                 "no block's of the cluster"));
  CHECK(fault(kSharedWindow + (1ull << 40), 4, Space::none).fault == Fault::out_of_bounds);
}

TEST_CASE("Local memory is each lane's own") {
  SharedMachine machine;
  Warp& warp = machine.warp(1);
  std::byte* first = access(warp, Space::local, 8, 8, AccessKind::write, 0);
  std::byte* second = access(warp, Space::local, 8, 8, AccessKind::write, 1);
  CHECK(second - first == 16);
  CHECK(access(warp, Space::none, kLocalWindow + 8, 8, AccessKind::read, 1) == second);
  CHECK(access(warp, Space::local, kLocalWindow + 8, 8, AccessKind::read, 1) == second);
  const auto fault = fault_of([&] { access(warp, Space::local, 16, 4, AccessKind::read, 5); });
  CHECK(contains(fault.message, "a thread has 16 bytes of local memory"));
}

TEST_CASE("Parameters are read, at offsets or through their window") {
  SharedMachine machine;
  Warp& warp = machine.warp(0);
  const std::byte* at = access(warp, Space::param, 8, 4, AccessKind::read, 0);
  CHECK(access(warp, Space::none, kParamWindow + 8, 4, AccessKind::read, 0) == at);
  CHECK(contains(fault_of([&] { access(warp, Space::param, 8, 8, AccessKind::read, 0); }).message,
                 "12 bytes of arguments"));
  CHECK(contains(fault_of([&] { access(warp, Space::param, 0, 8, AccessKind::write, 0); }).message,
                 "read-only"));
}

TEST_CASE("Accesses of shared memory reach the shadow, unless checks are off") {
  SharedMachine strict, lax(1, false);
  for (SharedMachine* machine : {&strict, &lax}) {
    const auto fault = fault_of(
        [&] { access(machine->warp(0), Space::shared, kSharedBase, 4, AccessKind::read, 2); });
    CHECK((fault.fault == Fault::uninitialized_shared) == (machine == &strict));
  }
}
