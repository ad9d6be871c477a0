// Specialization -> source, key and compiled entry: the part of the flow that needs no device.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cache/disk_cache.h"
#include "jit/compile/compiler.h"
#include "jit/op/specialization.h"
#include "jit/op/user_texts.h"

namespace kiln {

struct KernelSource {
  std::string source;
  std::string arch;  // "sm_90", "sm_90a"
  std::string what;  // describe()
  // Messages have `shown`, a path or the variant's name, in the place of the source's label.
  struct Label {
    std::string text, shown;
    bool is_path = false;
  };
  std::vector<Label> labels;
  std::span<const YieldRule> yields;  // of the template; empty: as ptxas has it
  cache::Key key;
  bool is_emulated = false;  // emulated_source()

  std::string target() const;  // for NVRTC: `arch`, or "compute_90a"
};
KernelSource source_of(const Specialization& spec, const UserTexts& texts);

// The same source for an emulated device, which runs PTX and is spared ptxas, half of a compile.
// The entry that is compiled from it has a key of its own, and an empty cubin.
KernelSource emulated_source(const KernelSource& source);

// Another source with the texts of a kernel, for the emulated device: none of the families', so it
// is never looked for in the cache.
KernelSource source_beside(const Specialization& spec, const UserTexts& texts, std::string text,
                           std::string what);

// Compiles, logs one line with `why`, counts. Throws CompileError.
cache::Entry compile_entry(const KernelSource& source, const std::string& why);

// The process's disk cache, made from the settings at first use.
cache::DiskCache& disk_cache();

// Hands the settings, the Python folders and the driver's version to the NVRTC loader, once.
void prepare_nvrtc();

}  // namespace kiln
