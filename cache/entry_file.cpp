// The three files of an entry: <key>.json describes, .ptx.z and .cubin carry.
#include "cache/entry_file.h"

#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cache/atomic_file.h"
#include "cache/json_text.h"

namespace kiln::cache {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;
// Bounds what a damaged or hostile file can make us allocate.
constexpr std::uint64_t kMaxPayload = std::uint64_t{1} << 26;
constexpr std::uint64_t kMaxSideFile = std::uint64_t{1} << 22;

// The description may hold any bytes (a compile log, say); JSON may hold UTF-8 only.
std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json payload_json(std::string_view bytes) {
  return {{"bytes", bytes.size()}, {"sha256", sha256(bytes).hex()}};
}

std::optional<std::string> compress(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(text.data()), text.size(), 6);
  if (status != Z_OK) return std::nullopt;
  out.resize(size);
  return out;
}

std::optional<std::string> decompress(const std::string& bytes, std::uint64_t size) {
  std::string text(static_cast<std::size_t>(size), '\0');
  uLongf filled = text.size();
  const int status = uncompress(reinterpret_cast<Bytef*>(text.data()), &filled,
                                reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  if (status != Z_OK || filled != text.size()) return std::nullopt;
  return text;
}

// Takes "bytes" and "sha256" of one payload out of the side file.
bool parse_payload(const json& root, const char* name, std::uint64_t& bytes, Key& digest) {
  const auto at = root.find(name);
  if (at == root.end() || !at->is_object()) return false;
  const auto size = at->find("bytes");
  const auto hash = at->find("sha256");
  if (size == at->end() || !size->is_number_unsigned()) return false;
  if (hash == at->end() || !hash->is_string()) return false;
  bytes = size->get<std::uint64_t>();
  const auto parsed = Key::from_hex(hash->get_ref<const std::string&>());
  if (!parsed || bytes > kMaxPayload) return false;
  digest = *parsed;
  return true;
}

// The side file carries a digest of itself, so that an altered description is noticed too.
bool take_and_match_check(json& root) {
  const auto at = root.find("check");
  if (at == root.end() || !at->is_string()) return false;
  const std::string check = at->get<std::string>();
  root.erase(at);
  return check == sha256(dump(root, -1)).hex();
}

std::string parse_side_file(const std::string& text, const Key& key, SideFile& side) {
  JsonText parsed = parse_json(text);
  if (!parsed.value || !parsed.value->is_object()) {
    return "has a JSON file that is cut off or altered";
  }
  json& root = *parsed.value;
  const json schema = root.value("schema", json());
  if (!schema.is_number_integer()) return "has a JSON file that is cut off or altered";
  if (schema != kSchema) return "was written by another version of this library";
  if (!take_and_match_check(root)) return "has a JSON file that is cut off or altered";
  if (root.value("key", json()) != key.hex()) return "is filed under another entry's key";
  const json pinned = root.value("pinned", json());
  if (!pinned.is_boolean() || !parse_payload(root, "cubin", side.sizes.cubin, side.cubin_digest) ||
      !parse_payload(root, "ptx", side.sizes.ptx, side.ptx_digest)) {
    return "has a JSON file without the required fields";
  }
  side.pinned = pinned.get<bool>();
  side.description = root.value("description", json::object());
  if (!side.description.is_object()) return "has a JSON file without the required fields";
  return "";
}

std::string take_cubin(std::string bytes, const SideFile& side, Entry& entry) {
  if (bytes.size() != side.sizes.cubin || sha256(bytes) != side.cubin_digest) {
    return "has a cubin that is cut off or altered";
  }
  entry.cubin = std::move(bytes);
  return "";
}

std::string take_ptx(const std::string& bytes, const SideFile& side, Entry& entry) {
  auto text = decompress(bytes, side.sizes.ptx);
  if (!text || sha256(*text) != side.ptx_digest) return "has a PTX file that is cut off or altered";
  entry.ptx = std::move(*text);
  return "";
}

std::string read_cubin(const EntryPaths& paths, const SideFile& side, Trust trust, Entry& entry) {
  FileRead read = read_file(paths.cubin, trust, side.sizes.cubin);
  if (!read.ok()) return read.missing ? "has lost its cubin" : "has a cubin that " + read.fault;
  return take_cubin(std::move(read.bytes), side, entry);
}

std::string read_ptx(const EntryPaths& paths, const SideFile& side, Trust trust, Entry& entry) {
  const FileRead read = read_file(paths.ptx, trust, compressBound(side.sizes.ptx));
  if (!read.ok()) return read.missing ? "has lost its PTX" : "has a PTX file that " + read.fault;
  return take_ptx(read.bytes, side, entry);
}

Checked<Entry> read_once(const EntryPaths& paths, const Key& key, Trust trust, Payload payload) {
  Checked<SideFile> side = read_side_file(paths, key, trust);
  if (!side.value) return {.absent = side.absent, .fault = std::move(side.fault), .value = {}};
  Entry entry;
  std::string fault = read_cubin(paths, *side.value, trust, entry);
  if (fault.empty() && payload == Payload::kCubinAndPtx) {
    fault = read_ptx(paths, *side.value, trust, entry);
  }
  if (!fault.empty()) return {.absent = false, .fault = std::move(fault), .value = {}};
  entry.description = std::move(side.value->description);
  return {.absent = false, .fault = {}, .value = std::move(entry)};
}

}  // namespace

std::string encode_side_file(const Key& key, const Entry& entry, bool pinned) {
  if (!entry.description.is_object()) return "";
  json root = {{"schema", kSchema},
               {"key", key.hex()},
               {"pinned", pinned},
               {"cubin", payload_json(entry.cubin)},
               {"ptx", payload_json(entry.ptx)},
               {"description", entry.description}};
  // Through text and back, so that the digest is of what a reader will parse: bytes that are not
  // UTF-8 are replaced, NaN becomes null.
  JsonText parsed = parse_json(dump(root, -1));
  if (!parsed.value || !parsed.value->is_object()) return "";
  root = std::move(*parsed.value);
  root["check"] = sha256(dump(root, -1)).hex();
  return dump(root, 2) + "\n";
}

Checked<SideFile> read_side_file(const EntryPaths& paths, const Key& key, Trust trust) {
  Checked<SideFile> result;
  std::error_code error;
  // The cubin's rename is the commit: without it there is no entry, whatever else lies there.
  const auto type = std::filesystem::status(paths.cubin, error).type();
  if (type == std::filesystem::file_type::not_found) {
    result.absent = true;
    return result;
  }
  const FileRead read = read_file(paths.json, trust, kMaxSideFile);
  SideFile side;
  if (read.missing) {
    result.fault = "has lost its JSON file";
  } else if (!read.ok()) {
    result.fault = "has a JSON file that " + read.fault;
  } else {
    result.fault = parse_side_file(read.bytes, key, side);
  }
  if (result.fault.empty()) result.value = std::move(side);
  return result;
}

Checked<Entry> read_entry(const EntryPaths& paths, const Key& key, Trust trust, Payload payload) {
  // A reader between two renames of a writer sees files of two generations. That lasts
  // microseconds, so a fault is believed only when it is still there a little later.
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    Checked<Entry> result = read_once(paths, key, trust, payload);
    if (result.fault.empty() || attempt == kAttempts) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string encode_entry(const Key& key, const Entry& entry, bool pinned, EntryFiles& files) {
  if (std::max(entry.cubin.size(), entry.ptx.size()) > kMaxPayload) {
    return "a payload is larger than 64 MiB";
  }
  std::optional<std::string> ptx = compress(entry.ptx);
  if (!ptx) return "zlib could not compress the PTX";
  files = {entry.cubin, std::move(*ptx), encode_side_file(key, entry, pinned)};
  return files.json.empty() ? "the description is not a JSON object" : "";
}

Checked<Entry> decode_entry(const Key& key, EntryFiles files) {
  if (files.json.size() > kMaxSideFile) {
    return {.absent = false, .fault = "has a JSON file that is too large", .value = {}};
  }
  SideFile side;
  Entry entry;
  std::string fault = parse_side_file(files.json, key, side);
  if (fault.empty()) fault = take_cubin(std::move(files.cubin), side, entry);
  if (fault.empty()) fault = take_ptx(files.ptx, side, entry);
  if (!fault.empty()) return {.absent = false, .fault = std::move(fault), .value = {}};
  entry.description = std::move(side.description);
  return {.absent = false, .fault = {}, .value = std::move(entry)};
}

std::string write_entry(const EntryPaths& paths, const Key& key, const Entry& entry, bool pinned,
                        mode_t mode) {
  EntryFiles files;
  if (std::string fault = encode_entry(key, entry, pinned, files); !fault.empty()) return fault;
  AtomicFile ptx_file(paths.ptx, mode), json_file(paths.json, mode), cubin_file(paths.cubin, mode);
  // All is on disk before the first rename, which keeps the mixed state of a replacement short.
  const bool done = ptx_file.write(files.ptx) && json_file.write(files.json) &&
                    cubin_file.write(files.cubin) && ptx_file.commit() && json_file.commit() &&
                    cubin_file.commit();
  if (done) return "";
  for (const AtomicFile* file : {&ptx_file, &json_file}) {
    if (!file->error().empty()) return file->error();
  }
  return cubin_file.error();
}

}  // namespace kiln::cache
