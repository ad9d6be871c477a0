// Layers: which folder answers, and what is done to the ones that are only read.
#include "tests/cpu/cache_fixture.h"
#include "tests/support/catch.h"

using namespace kiln::cache;
using namespace kiln::cache::testing;

namespace {

// A read-only layer holding entry `number` under key `number`.
fs::path make_layer(const CacheBox& box, const std::string& name, int number, Entry entry) {
  CacheOptions options;
  options.directory = box.folder.path() / name;
  REQUIRE(DiskCache(options).put(key_of(number), entry));
  return options.directory;
}

}  // namespace

TEST_CASE("the writable folder is asked first, then the layers in order") {
  CacheBox box;
  box.options.read_only = {make_layer(box, "a", 1, entry_of(10)),
                           make_layer(box, "b", 1, entry_of(20))};
  make_layer(box, "b", 2, entry_of(2));
  DiskCache cache(box.options);
  CHECK(same(cache.get(key_of(1))->entry, entry_of(10)));
  CHECK(cache.get(key_of(1))->layer == 1);
  CHECK(cache.get(key_of(2))->layer == 2);
  cache.put(key_of(1), entry_of(1));
  CHECK(same(cache.get(key_of(1))->entry, entry_of(1)));
  CHECK(cache.get(key_of(1))->layer == 0);
  CHECK(box.warnings.empty());
}

TEST_CASE("without a writable folder the first read-only layer is layer 0") {
  CacheBox box;
  box.options.read_only = {make_layer(box, "a", 1, entry_of(1))};
  box.options.directory.clear();
  DiskCache cache(box.options);
  CHECK(cache.get(key_of(1))->layer == 0);
  CHECK_FALSE(cache.put(key_of(2), entry_of(2)));
  CHECK(cache.lock(key_of(2), 0.1));
  CHECK(cache.prune({.max_bytes = 1}).removed.size() == 0);
  CHECK(cache.clear().removed.size() == 0);
  CHECK(cache.get(key_of(1)));
  CHECK(box.warnings.empty());
}

TEST_CASE("a damaged entry in one layer does not hide a sound one further down") {
  CacheBox box;
  box.options.read_only = {make_layer(box, "a", 1, entry_of(1))};
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  spill(box.file(1, ".cubin"), "junk");
  const auto hit = cache.get(key_of(1));
  REQUIRE(hit);
  CHECK(hit->layer == 1);
}

TEST_CASE("reading never writes to a read-only layer") {
  CacheBox box;
  const fs::path layer = make_layer(box, "a", 1, entry_of(1));
  box.options.read_only = {layer};
  const std::string hex = key_of(1).hex();
  const fs::path cubin = layer / hex.substr(0, 2) / (hex.substr(2) + ".cubin");
  set_age(cubin, 100000);
  const auto before = fs::last_write_time(cubin);
  DiskCache cache(box.options);
  CHECK(cache.get(key_of(1)));
  cache.clear();
  CHECK(fs::last_write_time(cubin) == before);
  CHECK_FALSE(fs::exists(box.store()));
}

TEST_CASE("layers and entries are reported") {
  CacheBox box;
  box.options.read_only = {make_layer(box, "a", 1, entry_of(1)), box.folder.path() / "nowhere"};
  DiskCache cache(box.options);
  cache.put(key_of(2), entry_of(2), /*pinned=*/true);
  const auto layers = cache.layers();
  REQUIRE(layers.size() == 3);
  CHECK((layers[0].writable && layers[0].usable && layers[0].entries == 1));
  CHECK(layers[0].verdict == "ok");
  CHECK(layers[0].mode == 0700);
  CHECK((!layers[1].writable && layers[1].usable && layers[1].entries == 1));
  CHECK(layers[1].bytes > 3000);
  CHECK((!layers[2].usable && layers[2].verdict == "does not exist"));

  const auto entries = cache.list();
  REQUIRE(entries.size() == 2);
  CHECK((entries[0].layer == 0 && entries[0].pinned && entries[0].key == key_of(2)));
  CHECK((entries[1].layer == 1 && !entries[1].pinned && entries[1].key == key_of(1)));
  CHECK(entries[1].description["what"] == "kernel 1");
  CHECK(cache.verify().size() == 2);
}

TEST_CASE("a missing read-only layer is warned about once, an unborn writable one never") {
  CacheBox box;
  box.options.read_only = {box.folder.path() / "nowhere"};
  DiskCache cache(box.options);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(cache.get(key_of(i)));
  REQUIRE(box.warnings.size() == 1);
  CHECK(box.warned_of("nowhere does not exist"));
}

TEST_CASE("a relative folder stays where it was when the process moves on") {
  CacheBox box;
  const fs::path before = fs::current_path();
  fs::current_path(box.folder.path());
  box.options.directory = "relative";
  DiskCache cache(box.options);
  fs::current_path(before);
  CHECK(cache.put(key_of(1), entry_of(1)));
  CHECK(fs::exists(box.folder.path() / "relative"));
}
