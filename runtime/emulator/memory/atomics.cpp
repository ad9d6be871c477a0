// atom and red. Clusters run in several host threads, so an element is changed by the host's own
// compare-and-swap; lanes take their turns in order.
#include <atomic>

#include "runtime/emulator/async/hooks.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/memory/atomic_values.h"
#include "runtime/emulator/memory/ops.h"
#include "runtime/emulator/memory/warp_access.h"

namespace kiln::runtime::emulator {
namespace {

const std::initializer_list<std::string_view> kNames = {"add", "min", "max", "inc",  "dec",
                                                        "and", "or",  "xor", "exch", "cas"};

struct Atomic : OpExtra {
  MemoryOperand memory;
  const AtomicOperation* operation = nullptr;
  struct Element {
    Ref d = kNoRef, b = kNoRef, c = kNoRef;
  };
  std::vector<Element> elements;
};

template <class T>
T change(std::byte* at, Combine combine, std::uint64_t b, std::uint64_t c) {
  const std::atomic_ref<T> element(*reinterpret_cast<T*>(at));
  T old = element.load(std::memory_order_relaxed);
  while (!element.compare_exchange_weak(old, static_cast<T>(combine(old, b, c)))) {
  }
  return old;
}

bool is_shared(const Warp& warp, const std::byte* at) {
  for (Block& block : warp.block().cluster().blocks()) {
    const auto shared = block.shared();
    if (at >= shared.data() && at < shared.data() + shared.size()) return true;
  }
  return false;
}

template <class T>
Flow atomic(Warp& warp, const Op& op, Mask mask) {
  const auto& self = static_cast<const Atomic&>(*warp.block().cluster().program().extras[op.extra]);
  const LanePointers lanes = access_lanes(warp, self.memory, AccessKind::atomic, mask);
  const AtomicOperation& operation = *self.operation;
  const auto value = [&](Ref ref, int lane) -> std::uint64_t {
    if (ref == kNoRef) return 0;
    return sizeof(T) == 8 ? warp.u64(ref)[lane] : static_cast<T>(warp.u32(ref)[lane]);
  };
  // Lanes outside, elements inside: a destination may be a source of the next element, but no lane
  // sees another lane's registers. All sources of a lane are read before its first result.
  for_each_lane(mask, [&](int lane) {
    std::array<std::array<std::uint64_t, 2>, 8> sources;
    for (std::size_t i = 0; i < self.elements.size(); ++i) {
      sources[i] = {value(self.elements[i].b, lane), value(self.elements[i].c, lane)};
    }
    Combine combine = operation.combine;
    if (operation.in_global != nullptr) {
      const bool global = lanes.space == Space::global ||
                          (lanes.space == Space::none && !is_shared(warp, lanes.at[lane]));
      if (global) combine = operation.in_global;
    }
    for (std::size_t i = 0; i < self.elements.size(); ++i) {
      const T old =
          change<T>(lanes.at[lane] + i * sizeof(T), combine, sources[i][0], sources[i][1]);
      const Ref d = self.elements[i].d;
      if (d == kNoRef) continue;
      if constexpr (sizeof(T) == 8) {
        warp.u64_out(d)[lane] = old;
      } else {
        warp.u32_out(d)[lane] = old;
      }
    }
  });
  return Flow::yield;  // a lock that is taken may be what this waits for
}

const Operand& element_of(const Operand& operand, std::size_t index) {
  return operand.is(Operand::Kind::vector) ? operand.items[index] : operand;
}

void decode(Decoder& decoder, const Instruction& instruction, Op& op, bool returns) {
  Modifiers modifiers(decoder, instruction);
  auto self = std::make_unique<Atomic>();
  MemoryModifiers how = take_memory_modifiers(modifiers);
  how.strong = true;
  const int name = modifiers.take_one_of(kNames);
  const int vector = modifiers.take_one_of({"v2", "v4", "v8"});
  const bool noftz = modifiers.take("noftz");
  const Type type = modifiers.take_type();
  modifiers.finish();
  self->operation = name < 0 ? nullptr : find_atomic(kNames.begin()[name], type);
  if (self->operation == nullptr ||
      (how.space != Space::none && how.space != Space::global && how.space != Space::shared)) {
    decoder.unknown();
  }
  const bool real = info(type).type_class == TypeClass::real;
  const bool half = real && type != Type::f32 && type != Type::f64;
  const bool swaps = self->operation->name == "cas";
  if (noftz != half) decoder.unknown();
  if (vector < 0 && half && self->operation->name != "add") decoder.unknown();
  if (vector >= 0 && (!real || type == Type::f64 || how.space == Space::shared)) decoder.unknown();
  if (!returns && (swaps || self->operation->name == "exch")) decoder.unknown();
  const std::size_t count = vector < 0 ? 1 : std::size_t{2} << vector;
  const std::size_t first = returns ? 1 : 0;
  const std::size_t operands = first + 2 + (swaps ? 1 : 0) + (how.cache_policy ? 1 : 0);
  decoder.expect_operands(instruction, operands, operands);
  if (how.cache_policy) decoder.source(instruction.operands.back(), Type::b64);
  const auto bytes = static_cast<unsigned>(count) * static_cast<unsigned>(bytes_of(type));
  if (bytes > 16) decoder.unknown();
  const auto check_count = [&](const Operand& operand) {
    const bool is_vector = operand.is(Operand::Kind::vector);
    if (is_vector != (vector >= 0) || (is_vector && operand.items.size() != count)) {
      decoder.fail("expected " + std::to_string(count) + " elements");
    }
  };
  self->memory = decode_memory_operand(decoder, instruction.operands[first], how, bytes);
  const Operand& b = instruction.operands[first + 1];
  check_count(b);
  if (returns && !instruction.operands[0].is(Operand::Kind::sink)) {
    check_count(instruction.operands[0]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    Atomic::Element element;
    element.b = decoder.source(element_of(b, i), type);
    if (swaps) element.c = decoder.source(instruction.operands[first + 2], type);
    if (returns) element.d = decoder.destination(element_of(instruction.operands[0], i), type);
    self->elements.push_back(element);
  }
  const int size = bytes_of(type);
  op.run = size == 2   ? atomic<std::uint16_t>
           : size == 4 ? atomic<std::uint32_t>
                       : atomic<std::uint64_t>;
  op.extra = decoder.keep(std::move(self));
}

}  // namespace

void decode_atomic(Decoder& decoder, const Instruction& instruction, Op& op) {
  decode(decoder, instruction, op, true);
}

void decode_reduction(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (decode_async_store(decoder, instruction, op)) return;
  decode(decoder, instruction, op, false);
}

}  // namespace kiln::runtime::emulator
