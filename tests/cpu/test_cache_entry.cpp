// One entry on disk: what goes in comes out, and any damage is a miss with a reason.
#include <cmath>

#include "cache/entry_file.h"
#include "tests/cpu/cache_fixture.h"
#include "tests/support/catch.h"

using namespace kiln::cache;
using namespace kiln::cache::testing;

namespace {

// Applies `damage` to one file of a stored entry; expects a miss, a warning, and a cure by put.
void check_damage(const std::string& extension, const std::function<void(const fs::path&)>& damage,
                  const std::string& reason) {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  damage(box.file(1, extension));
  CHECK_FALSE(cache.get(key_of(1)));
  INFO((box.warnings.empty() ? "no warning" : box.warnings[0]));
  CHECK(box.warned_of(reason));
  const auto faults = cache.verify();
  CHECK((faults.size() == 1 && faults[0].fault.find(reason) != std::string::npos));

  REQUIRE(cache.put(key_of(1), entry_of(1)));
  const auto hit = cache.get(key_of(1));
  CHECK((hit && same(hit->entry, entry_of(1))));
  CHECK(box.warnings.size() == 1);
}

void truncate_file(const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 2); }
void empty_file(const fs::path& path) { fs::resize_file(path, 0); }
void remove_file(const fs::path& path) { fs::remove(path); }
void grow_file(const fs::path& path) { spill(path, slurp(path) + "more"); }

}  // namespace

TEST_CASE("an entry comes back as it was put") {
  CacheBox box;
  DiskCache cache(box.options);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(cache.put(key_of(1), entry_of(1)));
  const auto hit = cache.get(key_of(1));
  REQUIRE(hit);
  CHECK(same(hit->entry, entry_of(1)));
  CHECK(hit->layer == 0);
  CHECK(same(DiskCache(box.options).get(key_of(1))->entry, entry_of(1)));
  CHECK(box.warnings.empty());
}

TEST_CASE("the cubin lies raw under its key, the PTX compressed beside it") {
  CacheBox box;
  DiskCache(box.options).put(key_of(1), entry_of(1));
  CHECK(slurp(box.file(1, ".cubin")) == entry_of(1).cubin);
  CHECK(fs::file_size(box.file(1, ".ptx.z")) < entry_of(1).ptx.size() / 3);
  CHECK(nlohmann::json::parse(slurp(box.file(1, ".json")))["description"]["registers"] == 1);
  CHECK(names_under(box.store(), ".tmp-").empty());
}

TEST_CASE("a JSON file that nests without end is a miss, and harms no tool") {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 100'000; ++i) deep += open;
    check_damage(".json", [&](const fs::path& path) { spill(path, deep); }, "JSON file");
  }
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  std::string sound = slurp(box.file(1, ".json"));
  const std::string closed = std::string(100'000, '[') + std::string(100'000, ']');
  sound.insert(sound.find('{') + 1, "\"more\": " + closed + ",");
  spill(box.file(1, ".json"), sound);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(cache.list().size() == 1);
  CHECK(cache.verify()[0].fault == "has a JSON file that is cut off or altered");
  CHECK(cache.prune({.max_bytes = 0}).removed.size() == 1);
}

TEST_CASE("a sealed description that is not an object is a fault") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  auto side = nlohmann::json::parse(slurp(box.file(1, ".json")));
  for (const nlohmann::json& odd : {nlohmann::json(1), nlohmann::json::array({1, 2})}) {
    side.erase("check");
    side["description"] = odd;
    side["check"] = sha256(side.dump()).hex();
    spill(box.file(1, ".json"), side.dump(2));
    CHECK_FALSE(cache.get(key_of(1)));
    CHECK(cache.verify()[0].fault == "has a JSON file without the required fields");
    CHECK(cache.list()[0].description.is_object());
  }
}

TEST_CASE("an entry may have empty payloads, arbitrary bytes and any description") {
  CacheBox box;
  DiskCache cache(box.options);
  Entry odd;
  odd.cubin = std::string("\0\xff\n\r\0", 5);
  odd.description = {{"seconds", 0.1}, {"list", {1, -2, 3e300}}, {"text", "\xc3\xa9"}};
  REQUIRE(cache.put(key_of(1), odd));
  CHECK(same(cache.get(key_of(1))->entry, odd));
  REQUIRE(cache.put(key_of(2), Entry{}));
  CHECK(same(cache.get(key_of(2))->entry, Entry{}));
}

TEST_CASE("a description that is not UTF-8 or not JSON does not lose the kernel or throw") {
  CacheBox box;
  DiskCache cache(box.options);
  Entry odd = entry_of(1);
  odd.description = {{"log", "bad \xff byte"}, {"nan", std::nan("")}};
  CHECK(cache.put(key_of(1), odd));
  CHECK(cache.get(key_of(1))->entry.cubin == odd.cubin);
  odd.description = nlohmann::json::parse("{", nullptr, false);
  CHECK_FALSE(cache.put(key_of(2), odd));
  odd.description = nlohmann::json::array({1, 2});
  CHECK_FALSE(cache.put(key_of(2), odd));
  CHECK(box.warned_of("the description is not a JSON object"));
}

TEST_CASE("a damaged cubin is a miss") {
  check_damage(".cubin", truncate_file, "cubin that is cut off or altered");
  check_damage(".cubin", empty_file, "cubin that is cut off or altered");
  check_damage(".cubin", grow_file, "larger than recorded");
}

TEST_CASE("a folder in the place of a file is a miss, and heals") {
  const auto empty = [](const fs::path& path) {
    fs::remove(path);
    fs::create_directory(path);
  };
  const auto full = [&](const fs::path& path) {
    empty(path);
    spill(path / "notes", "mine");
  };
  for (const char* extension : {".json", ".ptx.z"}) {
    check_damage(extension, empty, "is not a regular file");
    check_damage(extension, full, "is not a regular file");
  }
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  const std::vector<std::function<void(const fs::path&)>> damages = {empty, full};
  for (const auto& damage : damages) {
    damage(box.file(1, ".cubin"));
    CHECK_FALSE(cache.get(key_of(1)));
    REQUIRE(cache.put(key_of(1), entry_of(1)));
    CHECK(cache.get(key_of(1)));
  }
  CHECK(slurp(box.file(1, ".cubin.moved-away") / "notes") == "mine");
}

TEST_CASE("a huge file of nothing is refused before it is read") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  const std::uint64_t huge = std::uint64_t{1} << 30;
  fs::resize_file(box.file(1, ".cubin"), huge);
  auto side = nlohmann::json::parse(slurp(box.file(1, ".json")));
  side.erase("check");
  side["cubin"]["bytes"] = huge;
  side["check"] = sha256(side.dump()).hex();
  spill(box.file(1, ".json"), side.dump(2));
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(box.warned_of("has a JSON file without the required fields"));
}

TEST_CASE("a damaged PTX file is a miss") {
  check_damage(".ptx.z", truncate_file, "PTX file that is cut off or altered");
  check_damage(".ptx.z", empty_file, "PTX file that is cut off or altered");
  check_damage(".ptx.z", remove_file, "lost its PTX");
}

TEST_CASE("a damaged JSON file is a miss") {
  check_damage(".json", truncate_file, "JSON file that is cut off or altered");
  check_damage(".json", empty_file, "JSON file that is cut off or altered");
  check_damage(".json", remove_file, "lost its JSON");
  check_damage(".json", [](const fs::path& path) { spill(path, "[1, 2]"); }, "JSON file");
  check_damage(
      ".json", [](const fs::path& path) { spill(path, "{\"schema\": 2}"); }, "another version");
}

TEST_CASE("a bit flipped anywhere in any file never gives a wrong entry") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1, 200)));
  for (const char* extension : {".cubin", ".ptx.z", ".json"}) {
    const std::string sound = slurp(box.file(1, extension));
    for (std::size_t at = 0; at < sound.size(); at += 1 + sound.size() / 50) {
      std::string flipped = sound;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      spill(box.file(1, extension), flipped);
      const auto hit = cache.get(key_of(1));
      INFO(extension << " byte " << at);
      // White space between JSON's tokens carries nothing.
      CHECK((!hit || same(hit->entry, entry_of(1, 200))));
      CHECK((!hit || std::string(extension) == ".json"));
    }
    spill(box.file(1, extension), sound);
    CHECK(cache.get(key_of(1)));
  }
}

TEST_CASE("an entry filed under another key is a miss") {
  CacheBox box;
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  cache.put(key_of(2), entry_of(2));
  for (const char* extension : {".cubin", ".ptx.z", ".json"}) {
    fs::copy_file(box.file(1, extension), box.file(2, extension),
                  fs::copy_options::overwrite_existing);
  }
  CHECK_FALSE(cache.get(key_of(2)));
  CHECK(box.warned_of("filed under another entry's key"));
  CHECK(cache.get(key_of(1)));
}

TEST_CASE("a reader of the cubin alone does not need the PTX") {
  CacheBox box;
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  fs::remove(box.file(1, ".ptx.z"));
  const auto hit = cache.get(key_of(1), Payload::kCubin);
  REQUIRE(hit);
  CHECK(hit->entry.cubin == entry_of(1).cubin);
  CHECK(hit->entry.ptx.empty());
  CHECK_FALSE(cache.get(key_of(1), Payload::kCubinAndPtx));
}

TEST_CASE("a cubin that was never committed is an ordinary miss") {
  CacheBox box;
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  fs::remove(box.file(1, ".cubin"));
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(cache.list().empty());
  CHECK(box.warnings.empty());
}

TEST_CASE("an entry as bytes comes back whole, and any change of them is refused") {
  EntryFiles files;
  REQUIRE(encode_entry(key_of(1), entry_of(1), /*pinned=*/true, files).empty());
  const auto back = decode_entry(key_of(1), files);
  REQUIRE(back.value);
  CHECK(same(*back.value, entry_of(1)));
  CHECK(decode_entry(key_of(2), files).fault.find("another entry's key") != std::string::npos);
  for (std::string EntryFiles::* file : {&EntryFiles::cubin, &EntryFiles::ptx, &EntryFiles::json}) {
    for (std::size_t at = 0; at < (files.*file).size(); at += 97) {
      EntryFiles changed = files;
      (changed.*file)[at] = static_cast<char>((changed.*file)[at] ^ 4);
      const auto read = decode_entry(key_of(1), changed);
      CHECK((!read.fault.empty() || same(*read.value, entry_of(1))));
    }
    EntryFiles cut = files;
    (cut.*file).resize((cut.*file).size() / 2);
    CHECK_FALSE(decode_entry(key_of(1), cut).fault.empty());
  }
  EntryFiles huge = files;
  huge.json.append(std::size_t{1} << 23, ' ');
  CHECK(decode_entry(key_of(1), huge).fault == "has a JSON file that is too large");
  Entry odd = entry_of(1);
  odd.description = 3;
  CHECK_FALSE(encode_entry(key_of(1), odd, true, files).empty());
}

TEST_CASE("the bytes of an entry are those of its files") {
  CacheBox box;
  REQUIRE(DiskCache(box.options).put(key_of(1), entry_of(1)));
  EntryFiles files;
  REQUIRE(encode_entry(key_of(1), entry_of(1), /*pinned=*/false, files).empty());
  CHECK(slurp(box.file(1, ".cubin")) == files.cubin);
  CHECK(slurp(box.file(1, ".ptx.z")) == files.ptx);
  CHECK(slurp(box.file(1, ".json")) == files.json);
}
