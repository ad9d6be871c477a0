// PTX ISA, "tensormap.replace" and "tensormap.cp_fenceproxy": maps that kernels make themselves, in
// shared or global memory, field by field.
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>

#include "runtime/emulator/async/address.h"
#include "runtime/emulator/async/tensor_map.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/machine/cluster_ops.h"
#include "runtime/emulator/memory/memory.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

constexpr unsigned kGlobalAlign = 64, kSharedAlign = 128;

enum class Field : std::uint8_t {
  address,
  rank,
  box,
  dim,
  stride,
  element_stride,
  element,  // from here on the value is a literal
  interleave,
  swizzle,
  fill
};
const std::initializer_list<std::string_view> kFieldNames = {
    "global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
    "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode"};

bool has_ordinal(Field field) { return field >= Field::box && field <= Field::element_stride; }
bool is_wide(Field field) { return field == Field::address || field == Field::stride; }

// The ISA's numbers of element types, from 0 on: u8, u16, u32, s32, u64, s64, f16, f32, f32.ftz,
// f64, bf16, tf32. Nothing: not modelled.
constexpr std::optional<TensorMapElement> kElements[] = {
    TensorMapElement::u8,  TensorMapElement::u16, TensorMapElement::u32,  TensorMapElement::i32,
    TensorMapElement::u64, std::nullopt,          TensorMapElement::f16,  TensorMapElement::f32,
    std::nullopt,          TensorMapElement::f64, TensorMapElement::bf16, TensorMapElement::tf32,
};

struct ReplaceExtra : OpExtra {
  AsyncAddress map;
  Field field = Field::address;
  std::size_t ordinal = 0;
  std::uint64_t literal = 0;  // of a field that has one: as TensorMapSpec has it
};

void replace(TensorMapSpec& spec, const ReplaceExtra& extra, std::uint64_t value, int lane) {
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
    case Field::element_stride:
      if (value == 1) break;
      raise(Fault::tensor_map,
            "the emulator models element strides of 1 only, not " + std::to_string(value), lane);
    case Field::element:
      spec.element = static_cast<TensorMapElement>(value);
      break;
    case Field::swizzle:
      spec.swizzle = static_cast<TensorMapSwizzle>(value);
      break;
    case Field::interleave:
    case Field::fill:
      break;  // none, and zeros: nothing else decodes
  }
}

// Kernels that make a map from nothing begin with zeros.
std::optional<TensorMapSpec> spec_of(const TensorMap& map) {
  if (map.words != TensorMap().words) return decode_emulated_tensor_map(map);
  TensorMapSpec empty;
  empty.element = TensorMapElement::u8;
  empty.rank = 1;
  return empty;
}

// The map's bytes in shared memory, of which the shadow is told.
std::byte* shared_map(Warp& warp, std::uint32_t address, bool write, int lane) {
  Cluster& cluster = warp.block().cluster();
  std::byte* at = shared_at(cluster, address, sizeof(TensorMap), kSharedAlign, lane);
  if (Shadow* shadow = cluster.shadow()) {
    shadow->read(warp, rank_of(address), offset_of(address), sizeof(TensorMap), lane);
    if (write) shadow->write(warp, rank_of(address), offset_of(address), sizeof(TensorMap), lane);
  }
  return at;
}

Flow run_replace(Warp& warp, const Op& op, Mask mask) {
  const Program& program = warp.block().cluster().program();
  const auto& extra = static_cast<const ReplaceExtra&>(*program.extras[op.extra]);
  for_each_lane(mask, [&](int lane) {
    std::uint64_t address = extra.map.at(warp, lane);
    const Space space = extra.map.space == Space::none ? resolve_generic(address) : extra.map.space;
    std::byte* at =
        space == Space::shared
            ? shared_map(warp, static_cast<std::uint32_t>(address), /*write=*/true, lane)
            : global_at(warp, address, sizeof(TensorMap), kGlobalAlign, /*write=*/true, lane);
    TensorMap map;
    std::memcpy(&map, at, sizeof map);
    auto spec = spec_of(map);
    if (!spec) {
      raise(Fault::tensor_map, "what tensormap.replace changes is no tensor map, and not zeros",
            lane);
    }
    const std::uint64_t value = extra.field >= Field::element ? extra.literal
                                : is_wide(extra.field)        ? warp.u64(op.b)[lane]
                                                              : warp.u32(op.b)[lane];
    replace(*spec, extra, value, lane);
    map = pack_emulated_tensor_map(*spec);
    std::memcpy(at, &map, sizeof map);
  });
  return Flow::next;
}

// ptxas takes literals only, in the ranges of the ISA's table of values.
std::uint64_t decode_literal(Decoder& decoder, Field field, const Operand& operand) {
  const std::int64_t value = decoder.literal(operand);
  if (value < 0) decoder.fail("tensormap.replace with a negative value");
  const auto index = static_cast<std::size_t>(value);
  if (field == Field::element) {
    if (index >= std::size(kElements) || !kElements[index]) decoder.unknown();
    return static_cast<std::uint64_t>(*kElements[index]);
  }
  if (field == Field::swizzle) {
    if (index > static_cast<std::size_t>(TensorMapSwizzle::b128)) decoder.unknown();
    return index;  // none, 32, 64, 128 bytes: as the driver counts them
  }
  if (index != 0) decoder.unknown();  // interleaved layouts; NaN for what lies outside
  return 0;
}

void decode_replace(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                    Op& op) {
  if (!modifiers.take("tile")) decoder.unknown();
  auto extra = std::make_unique<ReplaceExtra>();
  const int field = modifiers.take_one_of(kFieldNames);
  if (field < 0) decoder.unknown();
  extra->field = static_cast<Field>(field);
  const bool shared = modifiers.take("shared::cta");
  const bool global = !shared && modifiers.take("global");
  modifiers.take("b1024");
  const Type type = modifiers.take_type();
  if (type != (is_wide(extra->field) ? Type::b64 : Type::b32)) decoder.unknown();
  const std::size_t count = has_ordinal(extra->field) ? 3 : 2;
  decoder.expect_operands(instruction, count, count);
  const auto& operands = instruction.operands;
  extra->map =
      decode_async_address(decoder, operands[0], shared ? "shared::cta" : (global ? "global" : ""));
  if (has_ordinal(extra->field)) {
    const std::int64_t ordinal = decoder.literal(operands[1]);
    if (ordinal < 0 || ordinal > (extra->field == Field::stride ? 3 : 4)) {
      decoder.fail("tensormap.replace of dimension " + std::to_string(ordinal));
    }
    extra->ordinal = static_cast<std::size_t>(ordinal);
  }
  if (extra->field >= Field::element) {
    extra->literal = decode_literal(decoder, extra->field, operands[1]);
  } else {
    op.b = decoder.source(operands[count - 1], type);
  }
  op.extra = decoder.keep(std::move(extra));
  op.run = run_replace;
}

struct CopyExtra : OpExtra {
  AsyncAddress to, from;
};

// The whole warp copies one map.
Flow run_copy(Warp& warp, const Op& op, Mask mask) {
  if (!warp.gathered(kAllLanes)) return Flow::blocked;
  if (mask != kAllLanes) {
    raise(Fault::divergence,
          "tensormap.cp_fenceproxy needs all 32 lanes of its warp; lanes " + hex(~mask) +
              " have exited, were never started or are guarded off",
          std::countr_zero(~mask));
  }
  const Program& program = warp.block().cluster().program();
  const auto& extra = static_cast<const CopyExtra&>(*program.extras[op.extra]);
  const int lane = 0;
  const std::uint64_t address = extra.to.global(warp, lane);
  std::byte* to = global_at(warp, address, sizeof(TensorMap), kGlobalAlign, /*write=*/true, lane);
  std::memcpy(to, shared_map(warp, extra.from.shared(warp, lane), /*write=*/false, lane),
              sizeof(TensorMap));
  std::atomic_thread_fence(std::memory_order_seq_cst);  // for other clusters' threads
  return Flow::next;
}

// .global.shared::cta.tensormap::generic.release.scope.sync.aligned [to], [from], 128
void decode_copy(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers, Op& op) {
  for (const char* modifier :
       {"global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"}) {
    if (!modifiers.take(modifier)) decoder.unknown();
  }
  if (modifiers.take_one_of({"cta", "cluster", "gpu", "sys"}) < 0) decoder.unknown();
  decoder.expect_operands(instruction, 3, 3);
  if (decoder.literal(instruction.operands[2]) != 128) decoder.fail("the size must be 128");
  auto extra = std::make_unique<CopyExtra>();
  extra->to = decode_async_address(decoder, instruction.operands[0], "global");
  extra->from = decode_async_address(decoder, instruction.operands[1], "shared::cta");
  op.extra = decoder.keep(std::move(extra));
  op.run = run_copy;
}

}  // namespace

void decode_tensormap(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  if (modifiers.take("replace")) {
    decode_replace(decoder, instruction, modifiers, op);
  } else if (modifiers.take("cp_fenceproxy")) {
    decode_copy(decoder, instruction, modifiers, op);
  } else {
    decoder.unknown();
  }
  modifiers.finish();
}

}  // namespace kiln::runtime::emulator
