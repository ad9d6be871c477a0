// Building keys and writing them as hex.
#include "cache/key.h"

namespace kiln::cache {
namespace {

// The version of KeyBuilder's encoding: raised when that changes, so that old entries are never
// found again.
constexpr std::string_view kKeySchema = "1";

void append_length(std::string& out, std::size_t length) {
  for (int shift = 0; shift < 64; shift += 8) {
    out.push_back(static_cast<char>((static_cast<std::uint64_t>(length) >> shift) & 0xff));
  }
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

std::string Key::hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (std::uint8_t byte : digest) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::optional<Key> Key::from_hex(std::string_view hex) {
  Key key;
  if (hex.size() != 2 * key.digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < key.digest.size(); ++i) {
    const int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.digest[i] = static_cast<std::uint8_t>(16 * high + low);
  }
  return key;
}

KeyBuilder::KeyBuilder() { field("schema", kKeySchema); }

KeyBuilder& KeyBuilder::field(std::string_view label, std::string_view value) {
  append_length(fields_, label.size());
  fields_.append(label);
  append_length(fields_, value.size());
  fields_.append(value);
  return *this;
}

Key KeyBuilder::finish() const { return sha256(fields_); }

}  // namespace kiln::cache
