// One entry on disk: its three files encoded, decoded and checked against each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "cache/disk_cache.h"
#include "cache/entry.h"
#include "cache/file_io.h"
#include "cache/key.h"

namespace kiln::cache {

struct EntryPaths {
  std::filesystem::path cubin, ptx, json;
};

// What the JSON file says: the caller's description and what the payloads must be.
struct SideFile {
  struct Sizes {
    std::uint64_t cubin = 0, ptx = 0;  // bytes; of the PTX, uncompressed
  };
  bool pinned = false;
  Sizes sizes;
  Key cubin_digest, ptx_digest;
  nlohmann::json description;
};

// `absent` is an ordinary miss; else `fault` says in a sentence's tail what is wrong with the entry
// ("has a cubin that was altered"), or is empty when `value` holds it.
template <class T>
struct Checked {
  bool absent = false;
  std::string fault;
  std::optional<T> value;
};

// The bytes of the three files.
struct EntryFiles {
  std::string cubin, ptx, json;
};

// Empty when the description is not a JSON object, or nests too deeply to be read again.
std::string encode_side_file(const Key& key, const Entry& entry, bool pinned);
// Fills `files`. Returns why they cannot be made, or an empty string.
std::string encode_entry(const Key& key, const Entry& entry, bool pinned, EntryFiles& files);
// The entry of files from elsewhere, with every check that reading them from a folder has.
Checked<Entry> decode_entry(const Key& key, EntryFiles files);
Checked<SideFile> read_side_file(const EntryPaths& paths, const Key& key, Trust trust);
Checked<Entry> read_entry(const EntryPaths& paths, const Key& key, Trust trust, Payload payload);

// Publishes all three files, the cubin last. Returns what failed, or an empty string. `mode` is
// that of the files.
std::string write_entry(const EntryPaths& paths, const Key& key, const Entry& entry, bool pinned,
                        mode_t mode);

}  // namespace kiln::cache
