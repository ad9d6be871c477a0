// Initial values of variables, and the addresses among them (PTX ISA, "Initializers").
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/parser.h"

namespace kiln::runtime::emulator {
namespace {

// Of a whole module: nested braces could ask for a gigabyte in a line.
constexpr std::uint64_t kMostInitialBytes = std::uint64_t{256} << 20;

float narrowed(double value) {
  // Out of float's range the conversion would be undefined.
  if (std::isfinite(value) && std::fabs(value) > std::numeric_limits<float>::max()) {
    return std::copysign(std::numeric_limits<float>::infinity(),
                         static_cast<float>(value > 0 ? 1 : -1));
  }
  return static_cast<float>(value);
}

}  // namespace

void Parser::reserve(Variable& variable, std::uint64_t bytes) {
  if (bytes <= variable.initial.size()) return;
  initial_bytes_ += bytes - variable.initial.size();
  if (initial_bytes_ > kMostInitialBytes) {
    raise_ptx(token_.line, "more than 256 MiB of initial values");
  }
  variable.initial.resize(bytes);
}

// A name, generic(name) or 0xFF00(either), each with an offset.
void Parser::parse_element_symbol(Initializer& element) {
  element.kind = Initializer::Kind::symbol;
  Token name = expect_identifier("the name of a variable or function");
  if (name.text == "generic" && accept('(')) {
    element.generic = true;
    name = expect_identifier("the name of a variable or function");
    if (token_.is('+') || token_.is('-'))
      element.value = static_cast<std::uint64_t>(parse_displacement());
    expect(')');
  }
  element.name = name.text;
  initializer_symbols_.emplace_back(name.text, name.line);
  if (token_.is('+') || token_.is('-')) {
    element.value += static_cast<std::uint64_t>(parse_displacement());
  }
}

Initializer Parser::parse_element() {
  Initializer element;
  element.line = token_.line;
  if (token_.kind == TokenKind::identifier && token_.text != "WARP_SZ") {
    parse_element_symbol(element);
    return element;
  }
  const bool negative = token_.is('-') && peek().kind == TokenKind::real;
  if (negative) take();
  if (token_.kind == TokenKind::real) {
    element.kind = Initializer::Kind::real;
    element.value = parse_real(&element.type);
    if (element.type == Type::none) element.type = Type::f64;
    if (negative) element.value ^= std::uint64_t{1} << (element.type == Type::f32 ? 31 : 63);
    return element;
  }
  element.value = parse_constant().bits;
  if (accept('(')) {
    element.mask = element.value;
    element.value = 0;
    if (element.mask == 0) raise_ptx(element.line, "a mask of 0 selects nothing of an address");
    parse_element_symbol(element);
    expect(')');
  }
  return element;
}

// nvcc writes pointers in byte arrays as 0xFF(x), 0xFF00(x), …; eight such bytes are one address.
void Parser::store_masked(Variable& variable, const Initializer& element, std::uint64_t at) {
  const auto bytes = static_cast<std::uint64_t>(bytes_of(variable.type));
  const std::uint64_t part = bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << bytes * 8) - 1;
  const std::uint64_t shift = masked_parts_ * bytes * 8;
  const bool continues =
      masked_parts_ == 0 ||
      (masked_.name == element.name && masked_.value == element.value &&
       masked_.generic == element.generic && masked_at_ + masked_parts_ * bytes == at);
  if (!continues || element.mask != part << shift) {
    raise_ptx(element.line, "only whole addresses are supported: the parts of '" +
                                printable(element.name) + "' have to stand in order");
  }
  if (masked_parts_ == 0) {
    masked_ = element;
    masked_at_ = at;
  }
  if (++masked_parts_ * bytes < 8) return;
  masked_parts_ = 0;
  variable.relocations.push_back(
      {masked_at_, element.name, static_cast<std::int64_t>(element.value), element.generic});
}

void Parser::store(Variable& variable, const Initializer& element, std::uint64_t at) {
  const auto bytes = static_cast<std::uint64_t>(bytes_of(variable.type));
  reserve(variable, at + bytes);
  const TypeClass type_class = info(variable.type).type_class;
  std::uint64_t bits = element.value;
  if (element.kind == Initializer::Kind::symbol) {
    if (element.mask != 0 && bytes < 8) return store_masked(variable, element, at);
    if (bytes != 8 || type_class == TypeClass::real) {
      raise_ptx(element.line, "an address needs a variable of 64 bits");
    }
    variable.relocations.push_back(
        {at, element.name, static_cast<std::int64_t>(element.value), element.generic});
    return;
  }
  if (masked_parts_ != 0) raise_ptx(element.line, "the parts of an address end too early");
  if (element.kind == Initializer::Kind::real) {
    const bool single = element.type == Type::f32;
    if (bytes == 4) {
      if (!single) bits = std::bit_cast<std::uint32_t>(narrowed(std::bit_cast<double>(bits)));
    } else if (bytes == 8) {
      const auto half = static_cast<std::uint32_t>(bits);
      if (single) bits = std::bit_cast<std::uint64_t>(double{std::bit_cast<float>(half)});
    } else {
      raise_ptx(element.line, "expected an integer, got a floating-point number");
    }
  } else if (type_class == TypeClass::real && bytes >= 4) {
    raise_ptx(element.line, "expected a floating-point number, got an integer");
  }
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(bytes, 8); ++i) {
    variable.initial[at + i] = static_cast<std::byte>(bits >> i * 8 & 0xff);
  }
}

// Braces at `level`, the first element of which is at byte `begin`; returns the end of what they
// name. As in C, inner braces may be left out.
std::uint64_t Parser::fill(Variable& variable, const std::vector<std::uint64_t>& strides,
                           std::size_t level, std::uint64_t begin) {
  expect('{');
  const std::uint64_t end = strides[level] == 0 ? ~std::uint64_t{0} : begin + strides[level];
  const std::uint64_t element_bytes = strides.back();
  std::uint64_t at = begin;
  if (accept('}')) return at;
  do {
    const std::uint32_t line = token_.line;
    const bool braces = token_.is('{');
    if (braces && level + 2 >= strides.size()) unexpected("a constant");
    const std::uint64_t step = braces ? strides[level + 1] : element_bytes;
    if ((at - begin) % step != 0) raise_ptx(line, "braces in the middle of a row");
    if (step > end - at)
      raise_ptx(line, "more initial values than '" + printable(variable.name) + "' has elements");
    if (braces) {
      fill(variable, strides, level + 1, at);
    } else {
      store(variable, parse_element(), at);
    }
    at += step;
  } while (accept(','));
  expect('}');
  return at;
}

void Parser::parse_initializer(Variable& variable, const std::vector<std::uint64_t>& extents,
                               std::uint64_t element_bytes) {
  masked_parts_ = 0;
  if (extents.empty()) {
    const bool braces = accept('{');
    store(variable, parse_element(), 0);
    if (braces) expect('}');
  } else {
    // strides[i]: the bytes of what braces at level i hold; the last one an element's.
    std::vector<std::uint64_t> strides(extents.size() + 1, element_bytes);
    for (std::size_t i = extents.size(); i-- > 0;) strides[i] = strides[i + 1] * extents[i];
    const std::uint64_t end = fill(variable, strides, 0, 0);
    if (extents[0] == 0) variable.bytes = (end + strides[1] - 1) / strides[1] * strides[1];
  }
  if (masked_parts_ != 0) raise_ptx(token_.line, "the parts of an address end too early");
}

}  // namespace kiln::runtime::emulator
