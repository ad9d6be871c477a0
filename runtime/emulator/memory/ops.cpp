// ld and st. Narrow values are extended to their registers as PTX ISA, "Operand size exceeding
// instruction-type size", says.
#include "runtime/emulator/memory/ops.h"

#include <atomic>
#include <cstring>

#include "runtime/emulator/async/hooks.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/memory/warp_access.h"

namespace kiln::runtime::emulator {
namespace {

struct Transfer : OpExtra {
  MemoryOperand memory;
  std::vector<Ref> rows;       // kNoRef: the sink
  bool wide = false;           // rows of 64-bit lanes
  bool sign_extends = false;   // of a load
  std::uint64_t keep = ~0ull;  // the bits that a loaded register has
};

// Global memory is other clusters' too, which run in other host threads: a strong access of it is
// one of the host's atomics. Local memory may be less aligned, and nobody else sees it.
template <class T>
T load_element(const std::byte* from, bool strong) {
  if (strong && reinterpret_cast<std::uintptr_t>(from) % sizeof(T) == 0) {
    return std::atomic_ref<T>(*reinterpret_cast<T*>(const_cast<std::byte*>(from)))
        .load(std::memory_order_seq_cst);
  }
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store_element(std::byte* to, T value, bool strong) {
  if (strong && reinterpret_cast<std::uintptr_t>(to) % sizeof(T) == 0) {
    std::atomic_ref<T>(*reinterpret_cast<T*>(to)).store(value, std::memory_order_seq_cst);
    return;
  }
  std::memcpy(to, &value, sizeof value);
}

// Calls f(lane): a plain loop where all lanes take part.
template <class F>
void each(Mask mask, F f) {
  if (mask == kAllLanes) {
    for (int l = 0; l < kLanes; ++l) f(l);
  } else {
    for_each_lane(mask, f);
  }
}

template <class T>
Flow load(Warp& warp, const Op& op, Mask mask) {
  const auto& transfer =
      static_cast<const Transfer&>(*warp.block().cluster().program().extras[op.extra]);
  const LanePointers lanes = access_lanes(warp, transfer.memory, AccessKind::read, mask);
  const bool strong = transfer.memory.how.strong;
  using Signed = std::make_signed_t<T>;
  for (std::size_t i = 0; i < transfer.rows.size(); ++i) {
    const Ref ref = transfer.rows[i];
    if (ref == kNoRef) continue;
    const std::size_t at = i * sizeof(T);
    if (transfer.wide) {
      std::uint64_t* row = warp.u64_out(ref);
      const bool extends = transfer.sign_extends;
      each(mask, [&](int l) {
        const T value = load_element<T>(lanes.at[l] + at, strong);
        row[l] = extends ? static_cast<std::uint64_t>(std::int64_t{static_cast<Signed>(value)})
                         : std::uint64_t{value};
      });
    } else if constexpr (sizeof(T) <= 4) {
      std::uint32_t* row = warp.u32_out(ref);
      const auto keep = static_cast<std::uint32_t>(transfer.keep);
      if (transfer.sign_extends) {
        each(mask, [&](int l) {
          const T value = load_element<T>(lanes.at[l] + at, strong);
          row[l] = static_cast<std::uint32_t>(std::int32_t{static_cast<Signed>(value)}) & keep;
        });
      } else {
        each(mask, [&](int l) { row[l] = load_element<T>(lanes.at[l] + at, strong) & keep; });
      }
    }
  }
  // Whoever loads like this may be waiting for another's store.
  return strong ? Flow::yield : Flow::next;
}

template <class T>
Flow store(Warp& warp, const Op& op, Mask mask) {
  const auto& transfer =
      static_cast<const Transfer&>(*warp.block().cluster().program().extras[op.extra]);
  const LanePointers lanes = access_lanes(warp, transfer.memory, AccessKind::write, mask);
  const bool strong = transfer.memory.how.strong;
  for (std::size_t i = 0; i < transfer.rows.size(); ++i) {
    const std::size_t at = i * sizeof(T);
    if (transfer.wide) {
      const std::uint64_t* row = warp.u64(transfer.rows[i]);
      each(mask,
           [&](int l) { store_element<T>(lanes.at[l] + at, static_cast<T>(row[l]), strong); });
    } else {
      const std::uint32_t* row = warp.u32(transfer.rows[i]);
      each(mask,
           [&](int l) { store_element<T>(lanes.at[l] + at, static_cast<T>(row[l]), strong); });
    }
  }
  return Flow::next;
}

struct Handlers {
  int bytes;
  Handler load, store;
};
constexpr Handlers kHandlers[] = {{1, load<std::uint8_t>, store<std::uint8_t>},
                                  {2, load<std::uint16_t>, store<std::uint16_t>},
                                  {4, load<std::uint32_t>, store<std::uint32_t>},
                                  {8, load<std::uint64_t>, store<std::uint64_t>}};

std::span<const Operand> elements_of(const Operand& operand) {
  if (operand.is(Operand::Kind::vector)) return operand.items;
  return {&operand, 1};
}

// The width of the registers of a transfer: all the same. 0 when there are none.
int register_bits(const Decoder& decoder, std::span<const Operand> elements) {
  int bits = 0;
  for (const Operand& element : elements) {
    if (!element.is(Operand::Kind::reg)) continue;
    const Type type = decoder.register_type(element);
    if (type == Type::pred) decoder.fail("a predicate cannot be loaded or stored");
    const int have = info(type).bits;
    if (bits != 0 && have != bits) decoder.fail("registers of different sizes in one vector");
    bits = have;
  }
  return bits;
}

struct Form {
  std::unique_ptr<Transfer> transfer;
  Type type = Type::none;
  const Handlers* handlers = nullptr;
  std::span<const Operand> elements;
};

// What ld and st share. `address` and `data`: which operand is which.
Form decode_transfer(Decoder& decoder, const Instruction& instruction, std::size_t address,
                     std::size_t data) {
  Modifiers modifiers(decoder, instruction);
  Form form;
  form.transfer = std::make_unique<Transfer>();
  const MemoryModifiers how = take_memory_modifiers(modifiers);
  const int vector = modifiers.take_one_of({"v2", "v4", "v8"});
  form.type = modifiers.take_type();
  modifiers.finish();
  decoder.expect_operands(instruction, how.cache_policy ? 3 : 2, how.cache_policy ? 3 : 2);
  if (how.cache_policy) decoder.source(instruction.operands[2], Type::b64);
  for (const Handlers& row : kHandlers) {
    if (row.bytes == bytes_of(form.type)) form.handlers = &row;
  }
  if (form.handlers == nullptr) decoder.unknown();
  const Operand& value = instruction.operands[data];
  const std::size_t count = vector < 0 ? 1 : std::size_t{2} << vector;
  form.elements = elements_of(value);
  if (form.elements.size() != count || value.is(Operand::Kind::vector) != (vector >= 0)) {
    decoder.fail("expected " + std::to_string(count) + " elements");
  }
  const auto bytes = static_cast<unsigned>(count) * static_cast<unsigned>(bytes_of(form.type));
  if (bytes > 32) decoder.fail("a vector of more than 32 bytes");
  const int bits = register_bits(decoder, form.elements);
  if (bits != 0 && bits < info(form.type).bits) {
    decoder.fail("a register of " + std::to_string(bits) + " bits for an access of " +
                 std::to_string(info(form.type).bits));
  }
  form.transfer->wide = (bits != 0 ? bits : info(form.type).bits) > 32;
  form.transfer->keep = bits == 0 || bits >= 64 ? ~0ull : (1ull << bits) - 1;
  form.transfer->memory = decode_memory_operand(decoder, instruction.operands[address], how, bytes);
  return form;
}

}  // namespace

void decode_load(Decoder& decoder, const Instruction& instruction, Op& op) {
  Form form = decode_transfer(decoder, instruction, 1, 0);
  for (const Operand& element : form.elements) {
    form.transfer->rows.push_back(decoder.destination(element, decoder.register_type(element)));
  }
  form.transfer->sign_extends = is_signed(form.type);
  op.run = form.handlers->load;
  op.extra = decoder.keep(std::move(form.transfer));
}

void decode_store(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (decode_async_store(decoder, instruction, op)) return;
  Form form = decode_transfer(decoder, instruction, 0, 1);
  for (const Operand& element : form.elements) {
    const bool is_register = element.is(Operand::Kind::reg);
    // A literal among 64-bit registers is a row of 64-bit lanes, too.
    const Type literal = form.transfer->wide && bytes_of(form.type) < 8 ? Type::b64 : form.type;
    form.transfer->rows.push_back(
        decoder.source(element, is_register ? decoder.register_type(element) : literal));
  }
  op.run = form.handlers->store;
  op.extra = decoder.keep(std::move(form.transfer));
}

std::span<const OpcodeRow> memory_opcodes() {
  static constexpr OpcodeRow kRows[] = {
      {"ld", decode_load},
      {"ldu", decode_load},
      {"st", decode_store},
      {"atom", decode_atomic},
      {"red", decode_reduction},
      {"fence", decode_fence},
      {"membar", decode_membar},
      {"prefetch", decode_prefetch},
      {"prefetchu", decode_prefetch},
      {"applypriority", decode_prefetch},
      {"discard", decode_prefetch},
  };
  return kRows;
}

}  // namespace kiln::runtime::emulator
