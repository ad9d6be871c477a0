// The content key of a compiled kernel: a SHA-256 over labelled, delimited fields.
//
// The digest is our own (sha256.cpp, checked against the published vectors): it names content and
// detects damage, it guards no secret, and a crypto library would be a dependency whose versions
// clash between the machines and the frameworks that one build of this library has to run with.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kiln::cache {

struct Key {
  std::array<std::uint8_t, 32> digest{};

  std::string hex() const;  // 64 lower-case digits
  static std::optional<Key> from_hex(std::string_view hex);
  auto operator<=>(const Key&) const = default;
};

// Collects fields; each is hashed as (label length, label, value length, value), so that no two
// lists of fields hash alike. Never a path, a time or a compiler version: see docs/cache.md.
class KeyBuilder {
 public:
  KeyBuilder();  // starts with the schema of keys, so that a change of schema changes every key
  KeyBuilder& field(std::string_view label, std::string_view value);
  Key finish() const;  // may be called again after more fields

 private:
  std::string fields_;
};

Key sha256(std::string_view bytes);

}  // namespace kiln::cache
