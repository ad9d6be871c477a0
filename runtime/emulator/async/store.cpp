// PTX ISA, "st.async" and "red.async": writes to another block's shared memory that complete at an
// mbarrier there.
#include <cstring>
#include <memory>

#include "runtime/emulator/async/bulk.h"
#include "runtime/emulator/async/hooks.h"
#include "runtime/emulator/async/mbarrier.h"

namespace kiln::runtime::emulator {
namespace {

struct StoreExtra : OpExtra {
  AsyncAddress destination, barrier;
  Type type = Type::none;
  std::uint32_t list = 0, count = 0;  // values in Program::lists
  BulkReduce reduce = nullptr;
};

std::vector<std::byte> values_of(const Warp& warp, const StoreExtra& extra, int lane) {
  const auto size = static_cast<std::size_t>(bytes_of(extra.type));
  std::vector<std::byte> data(size * extra.count);
  for (std::size_t i = 0; i < extra.count; ++i) {
    const Ref ref = warp.block().cluster().program().lists[extra.list + i];
    if (size == 8) {
      std::memcpy(data.data() + i * size, warp.u64(ref) + lane, size);
    } else {
      std::memcpy(data.data() + i * size, warp.u32(ref) + lane, size);
    }
  }
  return data;
}

void store_lane(Warp& warp, const StoreExtra& extra, int lane) {
  Cluster& cluster = warp.block().cluster();
  const std::uint32_t to = extra.destination.shared(warp, lane);
  const std::uint32_t barrier = extra.barrier.shared(warp, lane);
  std::vector<std::byte> data = values_of(warp, extra, lane);
  const auto bytes = static_cast<std::uint32_t>(data.size());
  shared_at(cluster, to, bytes, bytes, lane);
  if (rank_of(to) != rank_of(barrier)) {
    raise(Fault::barrier_misuse, "an asynchronous store and its mbarrier are in different blocks",
          lane);
  }
  mbarrier_check(warp, barrier, lane);
  std::shared_ptr<const Shadow::Operation> operation;
  if (Shadow* shadow = cluster.shadow()) {
    operation =
        std::make_shared<const Shadow::Operation>(shadow->begin(warp, lane, /*async_proxy=*/false));
    shadow->write(*operation, rank_of(to), offset_of(to), bytes);
  }
  BulkWork work;
  work.issuer = &warp;
  work.lane = lane;
  work.ptx_line = ptx_line(warp);
  work.write = [&cluster, operation, to, barrier, data = std::move(data), reduce = extra.reduce] {
    check_block_runs(cluster, to, "an asynchronous store");
    const auto size = static_cast<std::uint32_t>(data.size());
    std::byte* at = shared_at(cluster, to, size, 1, -1);
    if (reduce != nullptr) {
      reduce(at, data.data(), size, /*atomic=*/false);
    } else {
      std::memcpy(at, data.data(), size);
    }
    if (operation != nullptr) mbarrier_publish(cluster, barrier, *operation);
    mbarrier_complete_tx(cluster, barrier, size);
  };
  cluster.async().issue(std::move(work));
}

Flow run_store(Warp& warp, const Op& op, Mask mask) {
  const Program& program = warp.block().cluster().program();
  const auto& extra = static_cast<const StoreExtra&>(*program.extras[op.extra]);
  for_each_lane(mask, [&](int lane) { store_lane(warp, extra, lane); });
  return Flow::next;
}

}  // namespace

bool decode_async_store(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (!instruction.has("async")) return false;
  Modifiers modifiers(decoder, instruction);
  modifiers.take("async");
  const bool reduces = instruction.opcode == "red";
  modifiers.take_one_of({"weak", "relaxed"});
  modifiers.take("cluster");
  modifiers.take("shared::cluster");
  if (!modifiers.take("mbarrier::complete_tx::bytes")) decoder.unknown();
  auto extra = std::make_unique<StoreExtra>();
  const int vector = reduces ? -1 : modifiers.take_one_of({"v2", "v4"});
  const auto operation = reduces ? take_bulk_operation(modifiers) : std::nullopt;
  extra->type = modifiers.take_type();
  modifiers.finish();
  const int bytes = extra->type == Type::none ? 0 : bytes_of(extra->type);
  if (bytes != 4 && bytes != 8) decoder.unknown();
  if (reduces) {
    const bool known = operation && info(extra->type).type_class != TypeClass::real;
    extra->reduce = known ? bulk_reduce(*operation, extra->type) : nullptr;
    if (extra->reduce == nullptr) decoder.unknown();
  }
  decoder.expect_operands(instruction, 3, 3);
  extra->destination = decode_async_address(decoder, instruction.operands[0], "shared::cluster");
  std::tie(extra->list, extra->count) = decoder.sources(instruction.operands[1], extra->type);
  if (extra->count != (vector < 0 ? 1u : vector == 0 ? 2u : 4u)) {
    decoder.fail("the vector's length is not the instruction's");
  }
  extra->barrier = decode_async_address(decoder, instruction.operands[2], "shared::cluster");
  op.extra = decoder.keep(std::move(extra));
  op.run = run_store;
  return true;
}

}  // namespace kiln::runtime::emulator
