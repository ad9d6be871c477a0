// Operands (PTX ISA, "Instruction Operands"): registers, constants, addresses, vectors, pairs.
#include <algorithm>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/parser.h"

namespace kiln::runtime::emulator {
namespace {

using Kind = Operand::Kind;

constexpr std::string_view kVectorSpecials[] = {"%tid",           "%ntid",          "%ctaid",
                                                "%nctaid",        "%clusterid",     "%nclusterid",
                                                "%cluster_ctaid", "%cluster_nctaid"};
constexpr std::string_view kScalarSpecials[] = {"%laneid",
                                                "%warpid",
                                                "%nwarpid",
                                                "%smid",
                                                "%nsmid",
                                                "%gridid",
                                                "%is_explicit_cluster",
                                                "%cluster_ctarank",
                                                "%cluster_nctarank",
                                                "%lanemask_eq",
                                                "%lanemask_le",
                                                "%lanemask_lt",
                                                "%lanemask_ge",
                                                "%lanemask_gt",
                                                "%clock",
                                                "%clock_hi",
                                                "%clock64",
                                                "%globaltimer",
                                                "%globaltimer_lo",
                                                "%globaltimer_hi",
                                                "%total_smem_size",
                                                "%aggr_smem_size",
                                                "%dynamic_smem_size",
                                                "%current_graph_exec"};
constexpr std::string_view kSpecialPrefixes[] = {"%envreg", "%pm", "%reserved_smem_offset_"};

template <std::size_t size>
bool contains(const std::string_view (&list)[size], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool is_special(std::string_view name) {
  if (name == "WARP_SZ" || contains(kScalarSpecials, name)) return true;
  return std::any_of(std::begin(kSpecialPrefixes), std::end(kSpecialPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

// %tid and its kin have the members x to w; as a whole they are v4 operands.
void Parser::read_special(const Token& name, Operand& operand) {
  operand.kind = Kind::special;
  operand.name = name.text;
  if (token_.kind != TokenKind::word || !token_.joined) return;
  const std::string_view member = token_.text;
  if (member.size() != 2 || member.find_first_of("xyzw") != 1) {
    unexpected("a member of the special register: .x, .y, .z or .w");
  }
  operand.name = std::string_view(name.text.data(), name.text.size() + member.size());
  take();
}

// Whether the name has a meaning; only labels may be without one yet.
bool Parser::resolve(const Token& name, Operand& operand) {
  operand.name = name.text;
  const Binding* binding = names_.find(name.text, function_->registers);
  if (binding == nullptr) {
    if (name.text.front() != '%' && name.text != "WARP_SZ") return false;
    if (contains(kVectorSpecials, name.text)) {
      read_special(name, operand);
    } else if (is_special(name.text)) {
      operand.kind = Kind::special;
    } else {
      raise_ptx(name.line, "unknown register '" + printable(name.text) + "'");
    }
    return true;
  }
  if (binding->kind == Binding::Kind::reg) {
    operand.kind = Kind::reg;
    operand.reg = binding->index;
    return true;
  }
  operand.kind = Kind::symbol;
  operand.reg = binding->kind == Binding::Kind::variable ? binding->index : kNotOfBody;
  return true;
}

std::int64_t Parser::parse_displacement() {
  accept('+');  // a minus belongs to the constant
  return parse_integer();
}

// A name, with what may follow it: symbol+8, p|q.
Operand Parser::parse_named(bool nested) {
  const Token name = take();
  Operand operand;
  if (name.text == "_") {
    operand.kind = Kind::sink;
    operand.name = name.text;
  } else if ((opcode_ == "bra" && !nested) || !resolve(name, operand)) {
    const bool takes_labels = opcode_ == "bra" || opcode_ == "brx" || opcode_ == "call";
    if (nested || !takes_labels) {
      raise_ptx(name.line, "unknown name '" + printable(name.text) + "'");
    }
    operand.kind = Kind::label;
    operand.name = name.text;
    labels_.use(name.text, name.line, static_cast<std::uint32_t>(function_->body.size()),
                operand_index_);
  }
  if (operand.is(Kind::symbol) && (token_.is('+') || token_.is('-'))) {
    operand.value = parse_displacement();
  }
  if (!token_.is('|') || nested || !(operand.is(Kind::reg) || operand.is(Kind::sink))) {
    return operand;
  }
  take();
  if (token_.kind != TokenKind::identifier) unexpected("the second register of a pair");
  Operand pair;
  pair.kind = Kind::pair;
  pair.items.push_back(std::move(operand));
  pair.items.push_back(parse_named(true));
  return pair;
}

Operand Parser::parse_number(bool negated) {
  Operand operand;
  if (token_.kind == TokenKind::real) {
    operand.kind = Kind::real;
    std::uint64_t bits = parse_real(&operand.type);
    if (negated) bits ^= std::uint64_t{1} << (operand.type == Type::f32 ? 31 : 63);
    operand.value = static_cast<std::int64_t>(bits);
    return operand;
  }
  operand.kind = Kind::integer;
  operand.value = parse_integer();
  return operand;
}

// [base], [base+4], [4], [map, {c0, c1}]
Operand Parser::parse_address() {
  Operand address;
  address.kind = Kind::address;
  expect('[');
  if (token_.kind == TokenKind::identifier && token_.text != "WARP_SZ") {
    const Token name = take();
    Operand base;
    if (!resolve(name, base)) raise_ptx(name.line, "unknown name '" + printable(name.text) + "'");
    address.items.push_back(std::move(base));
    if (token_.is('+') || token_.is('-')) address.value = parse_displacement();
  } else {
    Operand base;
    base.kind = Kind::integer;
    base.value = parse_integer();
    address.items.push_back(std::move(base));
  }
  while (accept(',')) address.items.push_back(parse_operand(true));
  expect(']');
  return address;
}

// What stands between the opening bracket, which is the current token, and `close`.
Operand Parser::parse_list(char close, Kind kind, bool empty_allowed) {
  Operand list;
  list.kind = kind;
  take();
  if (empty_allowed && accept(close)) return list;
  do {
    if (token_.is('{') && kind == Kind::vector) unexpected("an element of the vector");
    list.items.push_back(parse_operand(true));
  } while (accept(','));
  expect(close);
  return list;
}

// `nested`: inside an address, a vector or a list of arguments.
Operand Parser::parse_operand(bool nested) {
  if (token_.kind == TokenKind::identifier) {
    if (!token_.is_identifier("WARP_SZ")) return parse_named(nested);
    const Token next = peek();
    const bool alone = next.is(',') || next.is(';') || next.is('}') || next.is(')');
    return alone ? parse_named(nested) : parse_number(false);  // WARP_SZ-1 is a constant
  }
  if (token_.is('[') && !nested) return parse_address();
  if (token_.is('{')) return parse_list('}', Kind::vector, false);
  if (token_.is('(') && !nested && opcode_ == "call") return parse_list(')', Kind::group, true);
  if (token_.is('!') || token_.is('-')) {
    const Token next = peek();
    if (next.kind == TokenKind::identifier && next.text != "WARP_SZ") {
      take();
      Operand operand = parse_named(true);
      if (!operand.is(Kind::reg)) raise_ptx(next.line, "expected a register behind '!' or '-'");
      operand.negated = true;
      return operand;
    }
    if (token_.is('-') && next.kind == TokenKind::real) {
      take();
      return parse_number(true);
    }
  }
  return parse_number(false);
}

}  // namespace kiln::runtime::emulator
