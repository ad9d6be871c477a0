// Files and folders of others: the cache reads its own beside them and removes nothing of theirs.
#include "cache/own_folder.h"

#include "cache/key_lock.h"
#include "tests/cpu/cache_fixture.h"
#include "tests/support/catch.h"

using namespace kiln::cache;
using namespace kiln::cache::testing;

namespace {

// Files that look like what killed writers leave behind, two hours old, as another program may have
// made them; returns their paths.
std::vector<fs::path> foreign_litter(const fs::path& root) {
  const std::string hex = key_of(7).hex();
  std::vector<fs::path> files = {root / "ab" / ".tmp-draft",
                                 root / "ab" / (hex.substr(2) + ".json"), root / "locks" / hex};
  for (const fs::path& path : files) {
    fs::create_directories(path.parent_path());
    spill(path, "");
    set_age(path, 7200);
  }
  return files;
}

bool all_exist(const std::vector<fs::path>& files) {
  return std::all_of(files.begin(), files.end(), [](const fs::path& p) { return fs::exists(p); });
}

CacheOptions chosen(const CacheBox& box, const fs::path& folder) {
  CacheOptions options = box.options;
  options.directory = folder;
  options.directory_is_chosen = true;
  return options;
}

}  // namespace

TEST_CASE("nothing is removed from a folder that the cache has not made") {
  CacheBox box;
  const std::vector<fs::path> files = foreign_litter(box.store());
  box.options.max_bytes = 1;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  REQUIRE(cache.put(key_of(2), entry_of(2)));
  CHECK(all_exist(files));
  CHECK_FALSE(is_marked(box.store()));
  CHECK(cache.get(key_of(1)));  // the limit removes nothing either
  CHECK(box.warned_of("nothing is removed from it: it lacks the file .kiln-cache"));
  for (const Pruned& pruned : {cache.prune({.max_bytes = 0}), cache.clear()}) {
    CHECK(pruned.removed.empty());
    CHECK(pruned.problem.find("nothing is removed from") == 0);
  }
  CHECK(cache.layers()[0].advice.find("touch") != std::string::npos);
  CHECK(cache.list().size() == 2);

  spill(box.store() / kMarkerName, "");  // the user says that the folder is ours
  CHECK(cache.clear().removed.size() == 2);
  CHECK(cache.layers()[0].advice.empty());
}

TEST_CASE("a folder that the cache makes, or finds empty, is marked as its own") {
  CacheBox box;
  REQUIRE(DiskCache(box.options).put(key_of(1), entry_of(1)));
  CHECK(is_marked(box.store()));
  const fs::path volume = box.folder.path() / "volume";
  fs::create_directories(volume / "lost+found");
  REQUIRE(DiskCache(chosen(box, volume)).put(key_of(1), entry_of(1)));
  CHECK(is_marked(volume));
  CHECK(DiskCache(chosen(box, volume)).clear().removed.size() == 1);
  CHECK(is_marked(volume));

  const fs::path refused = box.folder.path() / "refused";
  fs::create_directory(refused);
  ::chmod(refused.c_str(), 0777);
  CHECK_FALSE(DiskCache(chosen(box, refused)).put(key_of(1), entry_of(1)));
  CHECK(fs::is_empty(refused));
}

TEST_CASE("a folder that another user has planted is used, with a warning") {
  CacheBox box;
  const fs::path open = box.folder.path() / "open", theirs = open / "theirs", store = theirs / "s";
  fs::create_directories(store);
  ::chmod(open.c_str(), 01777);
  ::chmod(box.folder.path().c_str(), 0755);
  for (const fs::path& path : {theirs, store}) ::chmod(path.c_str(), 0755);
  CHECK(planted(store).empty());
  CHECK(DiskCache(chosen(box, store)).layers()[0].warning.empty());
  if (!is_root()) return;  // only root can give a folder away
  REQUIRE(::chown(theirs.c_str(), kSomebodyElse, kSomebodyElse) == 0);
  CacheOptions options = chosen(box, store);
  options.read_only = {theirs};
  for (const LayerInfo& layer : DiskCache(options).layers()) {
    CHECK(layer.usable);
    CHECK(layer.warning == "it was created by the user 12345 (" + theirs.string() + ") in " +
                               open.string() +
                               ", where every user may create folders: its kernels run with your "
                               "rights, so use it only if you trust that user");
  }
  ::chmod(open.c_str(), 0755);
  CHECK(planted(store).empty());
}

TEST_CASE("a link in place of a mark is none") {
  TempFolder folder;
  spill(folder.path() / "other", "");
  fs::create_symlink("other", folder.path() / kMarkerName);
  CHECK_FALSE(is_marked(folder.path()));
}

TEST_CASE("sub-folders that are links are not written to, and nothing behind them is removed") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  const fs::path shard = box.file(1, ".cubin").parent_path();
  const fs::path elsewhere = box.folder.path() / "elsewhere";
  fs::rename(shard, elsewhere);
  fs::create_directory_symlink(elsewhere, shard);
  fs::remove(box.store() / "locks");
  fs::create_directory(box.folder.path() / "others");
  fs::create_directory_symlink(box.folder.path() / "others", box.store() / "locks");
  const fs::path lock = box.store() / "locks" / (key_of(1).hex() + ".publish");
  for (const fs::path& path : {elsewhere / ".tmp-old", lock}) {
    spill(path, "");
    set_age(path, 7200);
  }
  DiskCache other(box.options);
  CHECK(other.get(key_of(1)));  // reading is as before
  CHECK_FALSE(other.put(key_of(1), entry_of(9)));
  CHECK(box.warned_of("is a symbolic link"));
  CHECK(other.clear().removed.empty());
  CHECK(fs::exists(elsewhere / ".tmp-old"));
  CHECK(fs::exists(lock));
  CHECK(other.get(key_of(1)));
}

TEST_CASE("the mode of a folder is not set through a link that took its place") {
  TempFolder folder;
  const fs::path theirs = folder.path() / "theirs", link = folder.path() / "link";
  fs::create_directory(theirs);
  ::chmod(theirs.c_str(), 0700);
  fs::create_directory_symlink(theirs, link);
  CHECK(set_folder_mode(link, 0775) == "open: Not a directory");
  CHECK((fs::status(theirs).permissions() & fs::perms::group_write) == fs::perms::none);
  CHECK(set_folder_mode(theirs, 0775).empty());
  CHECK((fs::status(theirs).permissions() & fs::perms::group_write) != fs::perms::none);
  if (!is_root()) return;  // only root can give a folder away
  REQUIRE(::chown(theirs.c_str(), kSomebodyElse, kSomebodyElse) == 0);
  CHECK(set_folder_mode(theirs, 0700) == "chmod: Operation not permitted");
}

TEST_CASE("a lock that holds text was made by somebody else and stays") {
  TempFolder folder;
  const fs::path theirs = folder.path() / "theirs", ours = folder.path() / "ours";
  spill(theirs, "text");
  CHECK(FileLock(theirs, 0, 0600).held());
  CHECK(slurp(theirs) == "text");
  CHECK(FileLock(ours, 0, 0600).held());
  CHECK_FALSE(fs::exists(ours));
}

TEST_CASE("a home folder and the system's folders are refused, and stay as they are") {
  CacheBox box;
  const fs::path home = box.folder.path() / "home";
  fs::create_directory(home);
  CacheOptions options = chosen(box, home / ".");
  options.home = home;
  CHECK_FALSE(DiskCache(options).put(key_of(1), entry_of(1)));
  CHECK(box.warned_of("is a home folder, so it is not used: name a folder that holds nothing but"));
  CHECK(fs::is_empty(home));
  CHECK(DiskCache(options).clear().problem.find("is a home folder") != std::string::npos);
  CHECK(DiskCache(chosen(box, home)).put(key_of(1), entry_of(1)));  // of nobody

  const fs::path real = user_of(::geteuid()).home;
  if (fs::is_directory(real) && real != "/")
    CHECK(unfit_for_a_cache(real, {}) == "is a home folder");
  for (const char* folder : {"/", "/dev", "/dev/../", "//etc", "/usr", "/proc/self/root"}) {
    INFO(folder);
    CHECK(unfit_for_a_cache(folder, {}) == "is a folder of the system");
    const LayerInfo layer = DiskCache(chosen(box, folder)).layers()[0];
    CHECK_FALSE(layer.usable);
    CHECK(layer.advice.find("KILN_CACHE_DIR") != std::string::npos);
  }
  CHECK(unfit_for_a_cache(box.folder.path(), home).empty());
  CHECK(unfit_for_a_cache("/dev/shm/kiln", home).empty());
}
