#include "jit/tools/bundle_entry.h"

#include <stdexcept>

#include "jit/compile/kernel_source.h"
#include "kiln/error.h"

namespace kiln {
namespace {

cache::Key parse_key(const std::string& key) {
  if (const auto parsed = cache::Key::from_hex(key)) return *parsed;
  throw std::invalid_argument("a key must be 64 hex digits, got '" + key + "'");
}

cache::EntryFiles neutral_files(const cache::Key& key, cache::Entry entry) {
  // It is a fact of one run, and readers want the field.
  entry.description["compile_seconds"] = 0.0;
  cache::EntryFiles files;
  const std::string fault = cache::encode_entry(key, entry, /*pinned=*/true, files);
  if (!fault.empty()) throw Error("the entry " + key.hex() + " cannot be exported: " + fault);
  return files;
}

}  // namespace

std::optional<cache::EntryFiles> bundle_entry(const std::string& key) {
  const cache::Key parsed = parse_key(key);
  auto hit = disk_cache().get(parsed);
  if (!hit) return std::nullopt;
  return neutral_files(parsed, std::move(hit->entry));
}

std::string bundle_entry_fault(const std::string& key, const cache::EntryFiles& files) {
  return cache::decode_entry(parse_key(key), files).fault;
}

std::string store_bundle_entry(const std::string& key, const cache::EntryFiles& files,
                               bool replace) {
  const cache::Key parsed = parse_key(key);
  cache::Checked<cache::Entry> entry = cache::decode_entry(parsed, files);
  if (!entry.value) throw Error("the entry " + key + " " + entry.fault);
  if (auto hit = disk_cache().get(parsed)) {
    // The JSON file has the digests of the other two.
    if (!replace || neutral_files(parsed, std::move(hit->entry)).json == files.json) {
      disk_cache().pin(parsed);
      return "present";
    }
  }
  return disk_cache().put(parsed, *entry.value, /*pinned=*/true) ? "imported" : "unwritten";
}

}  // namespace kiln
