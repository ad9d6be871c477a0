// What lanes of a warp do together: shfl, vote, match, redux, elect, activemask.
#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/emulator/arithmetic/lanes.h"
#include "runtime/emulator/arithmetic/moves.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/machine/faults.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::size_t at(int lane) { return static_cast<std::size_t>(lane); }

std::string lanes_text(Mask lanes) { return hex(lanes); }

// Calls f(together, members) for each set of executing lanes that named the same members, once all
// members are there. Different halves of a warp may name different sets in one instruction.
template <class F>
Flow together(Warp& warp, Ref members_row, Mask mask, F f) {
  const std::uint32_t* const members_of = warp.u32(members_row);
  std::array<std::pair<Mask, Mask>, kLanes> sets;
  std::size_t count = 0;
  for (Mask rest = mask; rest != 0; rest &= ~sets[count++].first) {
    const Mask members = members_of[std::countr_zero(rest)];
    Mask same = 0;
    for_each_lane(rest, [&](int lane) {
      if (members_of[lane] == members) same |= Mask{1} << lane;
    });
    const Mask uninvited = same & ~members;
    if (uninvited != 0) {
      raise(Fault::divergence,
            "executed by lanes that are not in its member mask " + lanes_text(members) + ": " +
                lanes_text(uninvited),
            std::countr_zero(uninvited));
    }
    if (!warp.gathered(members)) return Flow::blocked;
    const Mask absent = members & warp.live() & ~same;
    if (absent != 0) {
      raise(Fault::divergence,
            "lanes " + lanes_text(absent) + " of its member mask " + lanes_text(members) +
                " do not execute it (guard), or name other members",
            std::countr_zero(absent));
    }
    sets[count] = {same, members};
  }
  for (std::size_t i = 0; i < count; ++i) f(sets[i].first, sets[i].second);
  return Flow::next;
}

enum class Shuffle : std::uint8_t { up, down, bfly, idx };

// A lane's source, and whether it lies within the bounds that c gives (PTX ISA, shfl.sync): bits
// 0-4 clamp, bits 8-12 the mask that splits the warp into segments.
struct Source {
  int lane;
  bool in_range;
};
Source shuffle_source(Shuffle mode, int lane, std::uint32_t b, std::uint32_t c) {
  const int offset = static_cast<int>(b & 31);
  const int clamp = static_cast<int>(c & 31);
  const int segment = static_cast<int>(c >> 8 & 31);
  const int bound = (lane & segment) | (clamp & ~segment);
  int source = lane;
  bool in_range = false;
  switch (mode) {
    case Shuffle::up:
      source = lane - offset;
      in_range = source >= bound;
      break;
    case Shuffle::down:
      source = lane + offset;
      in_range = source <= bound;
      break;
    case Shuffle::bfly:
      source = lane ^ offset;
      in_range = source <= bound;
      break;
    case Shuffle::idx:
      source = (lane & segment) | (offset & ~segment);
      in_range = source <= bound;
      break;
  }
  return {in_range ? source : lane, in_range};
}

// What a lane gets from one that does not take part, which PTX leaves undefined: a NaN as f32 and
// as two halves, a large integer.
constexpr std::uint32_t kUndefined = 0x7fff7fff;

// op.list: b, c, members; op.extra: the predicate; op.flags: the mode.
Flow shfl(Warp& warp, const Op& op, Mask mask) {
  const std::uint32_t* const offset = warp.u32(op.b);
  const std::uint32_t* const bounds = warp.u32(op.c);
  const auto mode = static_cast<Shuffle>(op.flags);
  return together(warp, warp.list(op)[0], mask, [&](Mask lanes, Mask) {
    std::array<std::uint32_t, kLanes> from;
    std::copy_n(warp.u32(op.a), kLanes, from.begin());
    std::array<std::uint32_t, kLanes> value;
    Mask in_range = 0;
    for_each_lane(lanes, [&](int lane) {
      const Source source = shuffle_source(mode, lane, offset[lane], bounds[lane]);
      if (source.in_range) in_range |= Mask{1} << lane;
      const bool takes_part = (lanes >> source.lane & 1) != 0;
      value[at(lane)] = takes_part ? from[at(source.lane)] : kUndefined;
    });
    if (op.d != kNoRef) {
      std::uint32_t* const to = warp.u32_out(op.d);
      for_each_lane(lanes, [&](int lane) { to[lane] = value[at(lane)]; });
    }
    if (op.extra != kNoRef) warp.set_predicate(op.extra, in_range, lanes);
  });
}

enum class Vote : std::uint8_t { all, any, uni, ballot };

// op.a: the predicate, inverted by op.size; op.b: members; op.flags: the kind.
Flow vote(Warp& warp, const Op& op, Mask mask) {
  const Mask value = PredicateSource{op.a, op.size != 0}.lanes(warp);
  return together(warp, op.b, mask, [&](Mask lanes, Mask) {
    const Mask holds = value & lanes;
    const auto kind = static_cast<Vote>(op.flags);
    if (op.d == kNoRef) return;
    if (kind == Vote::ballot) {
      std::uint32_t* const to = warp.u32_out(op.d);
      for_each_lane(lanes, [&](int lane) { to[lane] = holds; });
      return;
    }
    const bool all = holds == lanes;
    const bool outcome = kind == Vote::all   ? all
                         : kind == Vote::any ? holds != 0
                                             : all || holds == 0;
    warp.set_predicate(op.d, outcome ? kAllLanes : 0, lanes);
  });
}

// op.a: values; op.b: members; op.extra: the predicate of match.all, or none.
template <class T, bool All>
Flow match(Warp& warp, const Op& op, Mask mask) {
  std::array<T, kLanes> value;
  std::copy_n(row<T>(warp, op.a), kLanes, value.begin());
  return together(warp, op.b, mask, [&](Mask lanes, Mask) {
    std::array<Mask, kLanes> equal{};
    for_each_lane(lanes, [&](int lane) {
      for_each_lane(lanes, [&](int other) {
        if (value[at(other)] == value[at(lane)]) equal[at(lane)] |= Mask{1} << other;
      });
    });
    const bool all = equal[at(std::countr_zero(lanes))] == lanes;
    if (op.d != kNoRef) {
      std::uint32_t* const to = warp.u32_out(op.d);
      for_each_lane(lanes, [&](int lane) { to[lane] = All && !all ? 0 : equal[at(lane)]; });
    }
    if (op.extra != kNoRef) warp.set_predicate(op.extra, all ? kAllLanes : 0, lanes);
  });
}

// op.a: values; op.b: members.
template <auto F, class T>
Flow redux(Warp& warp, const Op& op, Mask mask) {
  std::array<std::uint32_t, kLanes> value;
  std::copy_n(warp.u32(op.a), kLanes, value.begin());
  return together(warp, op.b, mask, [&](Mask lanes, Mask) {
    const int first = std::countr_zero(lanes);
    T result = from_cell<T>(value[at(first)]);
    for_each_lane(lanes & (lanes - 1),
                  [&](int lane) { result = F(result, from_cell<T>(value[at(lane)])); });
    if (op.d == kNoRef) return;
    std::uint32_t* const to = warp.u32_out(op.d);
    for_each_lane(lanes, [&](int lane) { to[lane] = to_cell<T>(result); });
  });
}

// op.a: members; op.d: the leader's number; op.extra: the leader's predicate.
Flow elect(Warp& warp, const Op& op, Mask mask) {
  return together(warp, op.a, mask, [&](Mask lanes, Mask) {
    const int leader = std::countr_zero(lanes);
    if (op.d != kNoRef) {
      std::uint32_t* const to = warp.u32_out(op.d);
      for_each_lane(lanes, [&](int lane) { to[lane] = static_cast<std::uint32_t>(leader); });
    }
    if (op.extra != kNoRef) warp.set_predicate(op.extra, Mask{1} << leader, lanes);
  });
}

Flow activemask(Warp& warp, const Op& op, Mask mask) {
  std::uint32_t* const to = warp.u32_out(op.d);
  for_each_lane(mask, [&](int lane) { to[lane] = mask; });
  return Flow::next;
}

// d or d|p.
void decode_results(Decoder& decoder, const Operand& operand, Type type, Op& op) {
  op.extra = kNoRef;
  const bool pair = operand.is(Operand::Kind::pair);
  op.d = decoder.destination(pair ? operand.items[0] : operand, type);
  if (pair) op.extra = decoder.predicate(operand.items[1]);
}

// Of sm_70 and later every one of them is .sync.
void expect_sync(Decoder& decoder, Modifiers& modifiers) {
  if (!modifiers.take("sync")) decoder.unknown();
}

void decode_shfl(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 5, 5);
  Modifiers modifiers(decoder, instruction);
  expect_sync(decoder, modifiers);
  const int mode = modifiers.take_one_of({"up", "down", "bfly", "idx"});
  if (mode < 0 || !modifiers.take("b32")) decoder.unknown();
  modifiers.finish();
  decode_results(decoder, instruction.operands[0], Type::b32, op);
  op.a = decoder.source(instruction.operands[1], Type::b32);
  op.b = decoder.source(instruction.operands[2], Type::b32);
  op.c = decoder.source(instruction.operands[3], Type::b32);
  std::tie(op.list, op.list_size) = decoder.sources(instruction.operands[4], Type::b32);
  op.flags = static_cast<std::uint8_t>(mode);
  op.run = shfl;
}

void decode_vote(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 3, 3);
  Modifiers modifiers(decoder, instruction);
  expect_sync(decoder, modifiers);
  const int kind = modifiers.take_one_of({"all", "any", "uni", "ballot"});
  const bool ballot = static_cast<Vote>(kind) == Vote::ballot;
  if (kind < 0 || !modifiers.take(ballot ? "b32" : "pred")) decoder.unknown();
  modifiers.finish();
  op.d = ballot ? decoder.destination(instruction.operands[0], Type::b32)
                : decoder.predicate(instruction.operands[0]);
  const PredicateSource source = predicate_source(decoder, instruction.operands[1]);
  op.a = source.ref;
  op.size = source.inverted ? 1 : 0;
  op.b = decoder.source(instruction.operands[2], Type::b32);
  op.flags = static_cast<std::uint8_t>(kind);
  op.run = vote;
}

void decode_match(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 3, 3);
  Modifiers modifiers(decoder, instruction);
  expect_sync(decoder, modifiers);
  const int kind = modifiers.take_one_of({"any", "all"});
  const Type type = modifiers.take_type();
  if (kind < 0 || (type != Type::b32 && type != Type::b64)) decoder.unknown();
  modifiers.finish();
  if (kind == 0 && instruction.operands[0].is(Operand::Kind::pair)) {
    decoder.fail("match.any has no predicate");
  }
  decode_results(decoder, instruction.operands[0], Type::b32, op);
  op.a = decoder.source(instruction.operands[1], type);
  op.b = decoder.source(instruction.operands[2], Type::b32);
  if (type == Type::b64) {
    op.run = kind == 0 ? match<std::uint64_t, false> : match<std::uint64_t, true>;
  } else {
    op.run = kind == 0 ? match<std::uint32_t, false> : match<std::uint32_t, true>;
  }
}

struct Reduction {
  std::string_view name;
  Type type;
  Handler run;
};
using U = std::uint32_t;
using S = std::int32_t;
constexpr Reduction kReductions[] = {
    {"add", Type::u32, redux<[](U a, U b) { return a + b; }, U>},
    {"add", Type::s32, redux<[](U a, U b) { return a + b; }, U>},
    {"min", Type::u32, redux<[](U a, U b) { return a < b ? a : b; }, U>},
    {"max", Type::u32, redux<[](U a, U b) { return a < b ? b : a; }, U>},
    {"min", Type::s32, redux<[](S a, S b) { return a < b ? a : b; }, S>},
    {"max", Type::s32, redux<[](S a, S b) { return a < b ? b : a; }, S>},
    {"and", Type::b32, redux<[](U a, U b) { return a & b; }, U>},
    {"or", Type::b32, redux<[](U a, U b) { return a | b; }, U>},
    {"xor", Type::b32, redux<[](U a, U b) { return a ^ b; }, U>},
};

void decode_redux(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 3, 3);
  Modifiers modifiers(decoder, instruction);
  expect_sync(decoder, modifiers);
  const Type type = modifiers.take_type();
  for (const Reduction& reduction : kReductions) {
    if (reduction.type == type && modifiers.take(reduction.name)) op.run = reduction.run;
  }
  if (op.run == nullptr) decoder.unknown();
  modifiers.finish();
  op.d = decoder.destination(instruction.operands[0], type);
  op.a = decoder.source(instruction.operands[1], type);
  op.b = decoder.source(instruction.operands[2], Type::b32);
}

void decode_elect(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 2, 2);
  Modifiers modifiers(decoder, instruction);
  expect_sync(decoder, modifiers);
  modifiers.finish();
  decode_results(decoder, instruction.operands[0], Type::b32, op);
  op.a = decoder.source(instruction.operands[1], Type::b32);
  op.run = elect;
}

void decode_activemask(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 1, 1);
  Modifiers modifiers(decoder, instruction);
  if (!modifiers.take("b32")) decoder.unknown();
  modifiers.finish();
  op.d = decoder.destination(instruction.operands[0], Type::b32);
  if (op.d == kNoRef) decoder.fail("expected a register to write to");
  op.run = activemask;
}

}  // namespace

std::span<const OpcodeRow> warp_opcodes() {
  static constexpr OpcodeRow kRows[] = {
      {"shfl", decode_shfl},   {"vote", decode_vote},   {"match", decode_match},
      {"redux", decode_redux}, {"elect", decode_elect}, {"activemask", decode_activemask},
  };
  return kRows;
}

}  // namespace kiln::runtime::emulator
