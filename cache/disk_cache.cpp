// The order of things: which layer is asked, what is warned about, when the folder is pruned.
#include "cache/disk_cache.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>

#include "cache/entry_file.h"
#include "cache/key_lock.h"
#include "cache/layer.h"
#include "cache/own_folder.h"
#include "cache/prune.h"

namespace kiln::cache {
namespace {

// Publishing takes milliseconds; a lock that is held for longer is worth less than the wait.
constexpr double kPublishWaitSeconds = 1.0;

// Other processes write to the folder too. So its size is taken anew once we have added this part
// of the limit, or this long after the last look.
constexpr std::uint64_t kRescanPart = 8;
constexpr std::chrono::seconds kRescanAfter{5};

using Clock = std::chrono::steady_clock;

struct HeldKeyLock : DiskCache::KeyLock {
  HeldKeyLock(const std::filesystem::path& path, double max_wait_seconds, mode_t mode)
      : lock(path, max_wait_seconds, mode) {}
  FileLock lock;
};

std::uint64_t stored_bytes(const EntryPaths& files) {
  std::uint64_t bytes = 0;
  for (const auto* path : {&files.cubin, &files.ptx, &files.json}) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(*path, error);
    if (!error) bytes += size;
  }
  return bytes;
}

// Requires: the folder carries our mark. What is gone, or would be, no longer counts.
void sweep(Layer::Scan& scan, bool dry_run = false) {
  for (const Layer::Scan::Litter& file : scan.litter) {
    if (dry_run || remove_in_place(file.path)) scan.bytes -= file.bytes;
  }
}

std::string how_to_mark(const Layer& layer) {
  return "it lacks the file " + std::string(kMarkerName) +
         ", which marks the folders that Kiln has made; if only Kiln uses this folder, create the "
         "file (touch " +
         (layer.root() / kMarkerName).string() + ")";
}

// What cures a folder that is not used, as its kind of trust admits.
std::string cure(const Layer& layer, const Layer::Verdict& verdict) {
  if (verdict.distrusted && layer.trust() == Trust::kOwnerOnly) {
    return "use a folder that only its owner can write (chmod go-w); if others are meant to write "
           "it, name it in KILN_CACHE_DIR";
  }
  if (verdict.distrusted) {
    return "take the right to write it from everybody (chmod -R o-w), or name another folder";
  }
  if (verdict.unfit) {
    return std::string("name a folder that holds nothing but kernels in ") +
           (layer.writable() ? "KILN_CACHE_DIR" : "KILN_CACHE_PATH") + ", such as " +
           (layer.root() / "kiln-cache").string();
  }
  return layer.writable() ? "correct KILN_CACHE_DIR, or the folder"
                          : "correct KILN_CACHE_PATH, or the folder";
}

std::string refusal(const Layer& layer, const Layer::Verdict& verdict) {
  return "the cache folder " + layer.root().string() + " " + verdict.fault +
         ", so it is not used: " + cure(layer, verdict);
}

}  // namespace

struct DiskCache::Impl {
  std::vector<Layer> layers;  // the writable one first, if there is one
  std::uint64_t max_bytes = 0;
  std::function<void(const std::string&)> warn;

  std::mutex warned_mutex;
  std::set<std::string> warned;
  std::mutex size_mutex;
  bool measured = false;            // the folder was scanned, and swept, once
  std::uint64_t scanned_bytes = 0;  // as of the last scan
  std::uint64_t added_bytes = 0;    // by us since then
  Clock::time_point scanned_at;

  const Layer* writable() const {
    return layers.empty() || !layers[0].writable() ? nullptr : &layers[0];
  }
  void warn_once(const std::string& cause, const std::string& text);
  bool may_use(const Layer& layer);
  std::string publish(const Layer& layer, const Key& key, const Entry& entry, bool pinned);
  bool must_scan() const;
  void remember(const Layer::Scan& scan);

  struct Warning {
    std::string cause, text;
  };
  // Returns what is to be warned about once size_mutex is free: `warn` may call Kiln.
  std::vector<Warning> account(const Layer& layer, std::uint64_t bytes, const Key& fresh);
};

void DiskCache::Impl::warn_once(const std::string& cause, const std::string& text) {
  {
    std::lock_guard lock(warned_mutex);
    if (!warned.insert(cause).second) return;
  }
  try {
    if (warn) warn("[cache] " + text);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {  // a warning that cannot be delivered must not fail the call it is about
  }
}

bool DiskCache::Impl::may_use(const Layer& layer) {
  const Layer::Verdict verdict = layer.inspect();
  if (verdict.usable()) return true;
  // A writable folder is created at the first write; until then it is merely empty.
  if (verdict.missing && layer.writable()) return false;
  warn_once(layer.root().string() + '\n' + verdict.fault, refusal(layer, verdict));
  return false;
}

std::string DiskCache::Impl::publish(const Layer& layer, const Key& key, const Entry& entry,
                                     bool pinned) {
  if (std::string failed = layer.make_locks(); !failed.empty()) return failed;
  if (std::string failed = layer.make_shard(key); !failed.empty()) return failed;
  // Keeps the files of two writers from mixing. Without it the mix is a miss, and built again.
  const FileLock lock(layer.lock_path(key, "publish"), kPublishWaitSeconds, layer.file_mode());
  const EntryPaths files = layer.paths(key);
  const auto old = read_side_file(files, key, layer.trust());
  return write_entry(files, key, entry, pinned || (old.value && old.value->pinned),
                     layer.file_mode());
}

// Requires: size_mutex is held.
bool DiskCache::Impl::must_scan() const {
  if (!measured) return true;
  if (max_bytes == 0) return false;
  return scanned_bytes + added_bytes > max_bytes || added_bytes >= max_bytes / kRescanPart ||
         Clock::now() - scanned_at >= kRescanAfter;
}

void DiskCache::Impl::remember(const Layer::Scan& scan) {
  measured = true;
  scanned_bytes = scan.bytes;
  added_bytes = 0;
  scanned_at = Clock::now();
}

std::vector<DiskCache::Impl::Warning> DiskCache::Impl::account(const Layer& layer,
                                                               std::uint64_t bytes,
                                                               const Key& fresh) {
  std::vector<Warning> warnings;
  std::lock_guard lock(size_mutex);
  added_bytes += bytes;
  if (!must_scan()) return warnings;
  Layer::Scan scan = layer.scan();
  if (!layer.may_remove()) {
    remember(scan);
    if (max_bytes != 0 && scanned_bytes > max_bytes) {
      warnings.push_back(
          {"unmarked", "the folder " + layer.root().string() +
                           " exceeds KILN_CACHE_MAX_SIZE, and nothing is removed from it: " +
                           how_to_mark(layer)});
    }
    return warnings;
  }
  sweep(scan);
  // A tenth below the limit, so that a full cache is not scanned again at every write.
  if (max_bytes != 0 && scan.bytes > max_bytes) {
    const Pruned pruned =
        prune_layer(layer, scan, {.max_bytes = max_bytes - max_bytes / 10}, &fresh);
    if (!pruned.problem.empty()) warnings.push_back({"remove", pruned.problem});
  }
  remember(scan);
  const std::uint64_t kept_bytes = scan.bytes - scan.unfinished;
  if (max_bytes != 0 && kept_bytes > max_bytes) {
    warnings.push_back(
        {"size", "the pinned and the newest entries in " + layer.root().string() + " take " +
                     std::to_string(kept_bytes) + " bytes, more than the limit of " +
                     std::to_string(max_bytes) +
                     ". Raise KILN_CACHE_MAX_SIZE, or clear the cache and prewarm less."});
  }
  return warnings;
}

DiskCache::DiskCache(CacheOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->max_bytes = options.max_bytes;
  impl_->warn = std::move(options.warn);
  if (!options.directory.empty()) {
    const Trust trust = options.directory_is_chosen ? Trust::kNotWorldWritable : Trust::kOwnerOnly;
    impl_->layers.emplace_back(std::move(options.directory), /*writable=*/true, trust,
                               options.home);
  }
  for (auto& path : options.read_only) {
    impl_->layers.emplace_back(std::move(path), /*writable=*/false, Trust::kNotWorldWritable,
                               options.home);
  }
}

DiskCache::~DiskCache() = default;

std::optional<Hit> DiskCache::get(const Key& key, Payload payload) {
  for (std::size_t i = 0; i < impl_->layers.size(); ++i) {
    const Layer& layer = impl_->layers[i];
    if (!impl_->may_use(layer)) continue;
    Checked<Entry> read = layer.read(key, payload);
    if (read.value) {
      if (layer.writable()) layer.touch(key);
      return Hit{.entry = std::move(*read.value), .layer = i};
    }
    if (read.absent) continue;
    impl_->warn_once(layer.root().string() + '\n' + read.fault,
                     "the entry " + layer.paths(key).cubin.string() + " " + read.fault +
                         "; it counts as missing, and the kernel is looked up further or built "
                         "again");
  }
  return std::nullopt;
}

bool DiskCache::pin(const Key& key) {
  const Layer* layer = impl_->writable();
  if (!layer || !impl_->may_use(*layer)) return false;
  const auto side = read_side_file(layer->paths(key), key, layer->trust());
  if (!side.value) return false;
  if (side.value->pinned) return true;
  const Checked<Entry> read = layer->read(key, Payload::kCubinAndPtx);
  return read.value && put(key, *read.value, /*pinned=*/true);
}

bool DiskCache::put(const Key& key, const Entry& entry, bool pinned) {
  const Layer* layer = impl_->writable();
  if (!layer) return false;
  std::string failed = layer->make_root();
  if (failed.empty()) {
    if (!impl_->may_use(*layer)) return false;
    failed = impl_->publish(*layer, key, entry, pinned);
  }
  if (!failed.empty()) {
    impl_->warn_once("put\n" + failed, "cannot store a kernel in " + layer->root().string() + ": " +
                                           failed +
                                           ". It works now, but the next process compiles it "
                                           "again; free space, or set KILN_CACHE_DIR to a folder "
                                           "that can be written (empty: none).");
    return false;
  }
  for (const auto& [cause, text] : impl_->account(*layer, stored_bytes(layer->paths(key)), key)) {
    impl_->warn_once(cause, text);
  }
  return true;
}

std::unique_ptr<DiskCache::KeyLock> DiskCache::lock(const Key& key, double max_wait_seconds) {
  const Layer* layer = impl_->writable();
  const bool ready =
      layer && layer->make_root().empty() && impl_->may_use(*layer) && layer->make_locks().empty();
  if (!ready) return std::make_unique<KeyLock>();
  return std::make_unique<HeldKeyLock>(layer->lock_path(key, "compile"), max_wait_seconds,
                                       layer->file_mode());
}

std::size_t DiskCache::layer_count() const { return impl_->layers.size(); }

const std::filesystem::path& DiskCache::layer_root(std::size_t layer) const {
  return impl_->layers.at(layer).root();
}

std::vector<LayerInfo> DiskCache::layers() const {
  std::vector<LayerInfo> infos;
  for (const Layer& layer : impl_->layers) {
    const Layer::Verdict verdict = layer.inspect();
    LayerInfo info;
    info.path = layer.root();
    info.writable = layer.writable();
    info.usable = verdict.usable() || (verdict.missing && layer.writable());
    info.verdict = info.usable ? "ok" : verdict.fault;
    if (!info.usable) info.advice = cure(layer, verdict);
    if (const std::string fault = layer.write_fault(); info.usable && !fault.empty()) {
      info.verdict = fault;
      info.advice = "make it writable, or set KILN_CACHE_DIR to a folder that is (empty: none)";
    }
    if (layer.writable() && verdict.usable() && info.advice.empty() && !layer.may_remove()) {
      // An empty folder is marked by the first write.
      if (!is_empty_folder(layer.root())) {
        info.advice = "nothing is removed from it: " + how_to_mark(layer);
      }
    }
    if (const std::string who = planted(layer.root()); info.usable && !who.empty()) {
      info.warning =
          "it " + who + ": its kernels run with your rights, so use it only if you trust that user";
    }
    info.owner = verdict.missing ? "" : user_of(verdict.owner).name;
    info.mode = verdict.mode;
    if (verdict.usable()) {
      const Layer::Scan scan = layer.scan();
      info.entries = scan.entries.size();
      info.bytes = scan.bytes;
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

std::vector<EntryInfo> DiskCache::list() const {
  std::vector<EntryInfo> all;
  for (std::size_t i = 0; i < impl_->layers.size(); ++i) {
    const Layer& layer = impl_->layers[i];
    if (!layer.inspect().usable()) continue;
    Layer::Scan scan = layer.scan();
    for (EntryInfo& entry : scan.entries) {
      entry.layer = i;
      add_side_file(layer, entry);
      all.push_back(std::move(entry));
    }
  }
  return all;
}

std::vector<VerifyResult> DiskCache::verify() const {
  std::vector<VerifyResult> results;
  for (const Layer& layer : impl_->layers) {
    if (!layer.inspect().usable()) continue;
    const Layer::Scan scan = layer.scan();
    for (const EntryInfo& entry : scan.entries) {
      const Checked<Entry> read = layer.read(entry.key, Payload::kCubinAndPtx);
      if (read.absent) continue;  // removed since the scan
      results.push_back({.key = entry.key, .path = entry.path, .fault = read.fault});
    }
  }
  return results;
}

Pruned DiskCache::prune(const PruneOptions& options) {
  const Layer* layer = impl_->writable();
  if (!layer) return {};
  if (const Layer::Verdict verdict = layer->inspect(); !verdict.usable()) {
    Pruned nothing;
    if (!verdict.missing) nothing.problem = refusal(*layer, verdict);
    return nothing;
  }
  Layer::Scan scan = layer->scan();
  if (!layer->may_remove()) {
    Pruned nothing;
    if (!scan.entries.empty()) {
      nothing.problem =
          "nothing is removed from " + layer->root().string() + ": " + how_to_mark(*layer);
    }
    return nothing;
  }
  sweep(scan, options.dry_run);
  Pruned pruned = prune_layer(*layer, scan, options);
  if (options.dry_run) return pruned;
  const std::lock_guard lock(impl_->size_mutex);
  impl_->remember(scan);
  return pruned;
}

Pruned DiskCache::clear() {
  Pruned pruned = prune({.expired = [](const EntryInfo&) { return true; }});
  if (pruned.in_use > 0 && pruned.problem.empty()) {
    pruned.problem = "not every entry was removed, as other processes were using some (" +
                     std::to_string(pruned.in_use) + "): clear the cache again";
  }
  return pruned;
}

}  // namespace kiln::cache
