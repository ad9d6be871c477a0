#include "jit/compile/kernel_source.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>

#include "jit/compile/policy.h"
#include "jit/compile/settings.h"
#include "jit/compile/statistics.h"
#include "jit/compile/template_files.h"
#include "jit/compile/yields.h"
#include "jit/op/arch.h"
#include "jit/op/family.h"
#include "jit/op/log.h"
#include "jit/op/source_text.h"
#include "runtime/cuda/cuda_device.h"

namespace kiln {
namespace {

// The version of the fields of a kernel's key, in key_of(): raised when their meaning changes.
// cache/key.cpp has the version of how fields are hashed.
constexpr const char* kFieldsSchema = "1";

std::vector<std::string>& python_paths() {
  static auto& paths = *new std::vector<std::string>;  // never destroyed, like g_disk_cache
  return paths;
}

cache::Key key_of(const KernelSource& source) {
  cache::KeyBuilder key;
  key.field("schema", kFieldsSchema).field("source", source.source);
  for (const SourceFile& file : included_files(source.source)) {
    key.field("include", file.name).field("text", file.text);
  }
  if (!source.yields.empty()) key.field("yields", text_of(source.yields));
  return key.field("options", compile_options()).field("arch", source.target()).finish();
}

nlohmann::json description(const KernelSource& source, const CompileResult& result) {
  const NvrtcInfo nvrtc = nvrtc_info(false);
  const ResourceUse& use = result.resources;
  return {{"what", source.what},
          {"arch", source.target()},
          {"nvrtc_version", nvrtc.version},
          {"nvrtc_build", nvrtc.build},
          // A cubin runs on drivers of its toolkit's major version and later.
          {"min_driver", nvrtc.version.substr(0, nvrtc.version.find('.')) + ".0"},
          {"registers", use.registers},
          {"shared_bytes", use.static_shared_bytes},
          {"spill_bytes", use.spill_store_bytes + use.spill_load_bytes},
          {"local_bytes", use.stack_bytes},
          {"warnings", use.warnings},
          {"compile_seconds", result.seconds}};
}

// Compiler messages name what the user wrote by its label: puts what is shown in its place.
std::string with_labels(std::string text, const std::vector<KernelSource::Label>& labels) {
  for (const auto& [label, shown, is_path] : labels) {
    for (std::size_t at = text.find(label + "("); at != std::string::npos;
         at = text.find(label + "(", at + shown.size())) {
      text.replace(at, label.size(), shown);
    }
  }
  return text;
}

// One variant's expressions need no name. A file without a path keeps its label.
std::vector<KernelSource::Label> labels_of(const Variant& variant) {
  const Variant::Definitions& definitions = variant.definitions();
  std::vector<KernelSource::Label> labels;
  for (std::size_t i = 0; i < definitions.size(); ++i) {
    const VariantDefinition& d = *definitions[i];
    const bool is_list = definitions.size() > 1;
    if (!d.file_name.empty()) {
      const std::string label = numbered_label(i, kVariantTexts[0]);
      labels.push_back({is_list ? label : std::string(kUserFileLabel), d.file_name, true});
    }
    if (!is_list) continue;
    for (const char* text : kVariantTexts) {
      labels.push_back({numbered_label(i, text), "variant '" + d.name + "' " + text});
    }
  }
  return labels;
}

CompileResult compile_named(const KernelSource& source) {
  const std::vector<SourceFile> headers = included_files(source.source);
  const std::string target = source.target();
  try {
    return compile({"/kiln/kernel.cu", source.source, headers, target, kEntryName, source.yields});
  } catch (const CompileError& error) {
    if (source.labels.empty() || error.path().empty()) throw;
    std::string path = error.path();
    for (const KernelSource::Label& label : source.labels) {
      const bool is_only = source.labels.size() == 1;
      if (label.is_path && (is_only || error.log().find(label.text + "(") != std::string::npos)) {
        path = label.shown;
        break;
      }
    }
    throw CompileError(with_labels(error.what(), source.labels),
                       with_labels(error.log(), source.labels), path);
  }
}

// Never destroyed: calls may come from threads that outlive main.
std::atomic<cache::DiskCache*> g_disk_cache{nullptr};

// A child of fork makes its own, because another thread may have held a lock of the parent's.
[[maybe_unused]] const int g_fork_handler =
    pthread_atfork(nullptr, nullptr, [] { g_disk_cache.store(nullptr); });

std::unique_ptr<cache::DiskCache> make_disk_cache() {
  const Settings& s = settings();
  cache::CacheOptions options;
  options.directory = s.cache_dir;
  options.home = s.home;
  options.directory_is_chosen = s.cache_dir_is_chosen;
  options.read_only = s.cache_path;
  options.max_bytes = s.cache_max_bytes;
  options.warn = [](const std::string& text) { log(LogLevel::warning, text); };
  return std::make_unique<cache::DiskCache>(std::move(options));
}

std::string one_decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

}  // namespace

void set_python_paths(std::vector<std::string> paths) { python_paths() = std::move(paths); }

void prepare_nvrtc() {
  static std::once_flag once;
  std::call_once(once, [] {
    NvrtcSearch search;
    search.nvrtc_override = settings().nvrtc;
    search.cuda_home = settings().cuda_home;
    search.python_paths = python_paths();
    search.driver_version = runtime::cuda_status().driver_version;
    set_nvrtc_search(std::move(search));
  });
}

std::string KernelSource::target() const {
  if (!is_emulated) return arch;
  return std::string(kVirtualPrefix) + arch.substr(arch.find('_') + 1);
}

KernelSource source_of(const Specialization& spec, const UserTexts& texts) {
  KernelSource source;
  const Template& kernel = spec.kernel();
  source.source = kernel.render(spec, texts);
  source.arch = arch_table()[static_cast<std::size_t>(spec.arch())].name;
  if (kernel.arch_specific) source.arch += "a";
  if (kernel.yields != nullptr) source.yields = kernel.yields(spec);
  source.what = describe(spec, texts);
  if (texts.variant) source.labels = labels_of(*texts.variant);
  source.key = key_of(source);
  return source;
}

KernelSource emulated_source(const KernelSource& source) {
  KernelSource emulated = source;
  emulated.is_emulated = true;
  emulated.yields = {};  // PTX has none
  emulated.key = key_of(emulated);
  return emulated;
}

KernelSource source_beside(const Specialization& spec, const UserTexts& texts, std::string text,
                           std::string what) {
  KernelSource source = source_of(spec, texts);
  source.source = std::move(text);
  source.what = std::move(what);
  return emulated_source(source);
}

cache::Entry compile_entry(const KernelSource& source, const std::string& why) {
  prepare_nvrtc();
  const CompileResult result = compile_named(source);
  count(statistics().compiles);
  count(statistics().compile_nanoseconds, static_cast<std::uint64_t>(result.seconds * 1e9));
  const LogLevel level = jit_mode() == JitMode::warn ? LogLevel::warning : LogLevel::info;
  log(level, "compiled " + source.what + " for " + source.arch + " in " +
                 one_decimal(result.seconds * 1e3) + " ms (" + why + ")");
  for (const std::string& warning : result.resources.warnings) log(LogLevel::warning, warning);
  return {result.cubin, result.ptx, description(source, result)};
}

cache::DiskCache& disk_cache() {
  if (cache::DiskCache* const ready = g_disk_cache.load(std::memory_order_acquire)) return *ready;
  // Threads that come first together each make one, of which the first is kept.
  auto made = make_disk_cache();
  cache::DiskCache* kept = nullptr;
  if (g_disk_cache.compare_exchange_strong(kept, made.get(), std::memory_order_acq_rel)) {
    kept = made.release();
  }
  return *kept;
}

}  // namespace kiln
