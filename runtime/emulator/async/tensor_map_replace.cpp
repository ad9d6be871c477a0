// PTX ISA, "tensormap.replace": one field of a map in shared or global memory.
#include <cstring>
#include <memory>

#include "runtime/emulator/async/address.h"
#include "runtime/emulator/async/tensor_map.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/machine/cluster_ops.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

enum class Field : std::uint8_t { address, rank, box, dim, stride };

struct ReplaceExtra : OpExtra {
  AsyncAddress map;
  Field field = Field::address;
  std::size_t ordinal = 0;
  bool wide = false;
};

void replace(TensorMapSpec& spec, const ReplaceExtra& extra, std::uint64_t value) {
  switch (extra.field) {
    case Field::address:
      spec.address = value;
      break;
    case Field::rank:
      spec.rank = static_cast<int>((value & 0xff) + 1);  // the ISA's rank counts from zero
      break;
    case Field::box:
      spec.box[extra.ordinal] = static_cast<std::uint32_t>(value);
      break;
    case Field::dim:
      spec.dims[extra.ordinal] = value;
      break;
    case Field::stride:
      spec.strides_bytes[extra.ordinal] = value;
      break;
  }
}

Flow run_replace(Warp& warp, const Op& op, Mask mask) {
  const Program& program = warp.block().cluster().program();
  const auto& extra = static_cast<const ReplaceExtra&>(*program.extras[op.extra]);
  for_each_lane(mask, [&](int lane) {
    std::uint64_t address = extra.map.at(warp, lane);
    const Space space = extra.map.space == Space::none ? resolve_generic(address) : extra.map.space;
    std::byte* at = space == Space::shared
                        ? shared_at(warp.block().cluster(), static_cast<std::uint32_t>(address),
                                    sizeof(TensorMap), 128, lane)
                        : global_at(warp, address, sizeof(TensorMap), 64, /*write=*/true, lane);
    TensorMap map;
    std::memcpy(&map, at, sizeof map);
    auto spec = decode_emulated_tensor_map(map);
    if (!spec) {
      raise(Fault::tensor_map, "what tensormap.replace changes is no tensor map", lane);
    }
    replace(*spec, extra, extra.wide ? warp.u64(op.b)[lane] : warp.u32(op.b)[lane]);
    map = pack_emulated_tensor_map(*spec);
    std::memcpy(at, &map, sizeof map);
  });
  return Flow::next;
}

}  // namespace

void decode_tensormap(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  if (!modifiers.take("replace") || !modifiers.take("tile")) decoder.unknown();
  auto extra = std::make_unique<ReplaceExtra>();
  const int field =
      modifiers.take_one_of({"global_address", "rank", "box_dim", "global_dim", "global_stride"});
  if (field < 0) decoder.unknown();  // element types, swizzles, fills
  extra->field = static_cast<Field>(field);
  const bool shared = modifiers.take("shared::cta");
  const bool global = !shared && modifiers.take("global");
  modifiers.take("b1024");
  const Type type = modifiers.take_type();
  if (type != Type::b32 && type != Type::b64) decoder.unknown();
  modifiers.finish();
  extra->wide = type == Type::b64;
  const bool has_ordinal = extra->field >= Field::box;
  const std::size_t count = has_ordinal ? 3 : 2;
  decoder.expect_operands(instruction, count, count);
  const auto& operands = instruction.operands;
  extra->map =
      decode_async_address(decoder, operands[0], shared ? "shared::cta" : (global ? "global" : ""));
  if (has_ordinal) {
    const std::int64_t ordinal = decoder.literal(operands[1]);
    if (ordinal < 0 || ordinal > (extra->field == Field::stride ? 3 : 4)) {
      decoder.fail("tensormap.replace of dimension " + std::to_string(ordinal));
    }
    extra->ordinal = static_cast<std::size_t>(ordinal);
  }
  op.b = decoder.source(operands[count - 1], type);
  op.extra = decoder.keep(std::move(extra));
  op.run = run_replace;
}

}  // namespace kiln::runtime::emulator
