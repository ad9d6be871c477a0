// Operators and their kernels as rows of data. A Family is an operator, a Template one way to
// compute it; families() lists them all. Problems, checks and choices stay typed, in the operator's
// own folder; what is said about kernels in general (specs, explanations, prewarming, pages) reads
// these rows and names no operator.
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "jit/op/arguments.h"
#include "jit/op/field.h"
#include "jit/op/specialization.h"
#include "jit/op/tuning.h"
#include "jit/op/user_texts.h"
#include "jit/op/yields.h"
#include "runtime/device.h"

namespace kiln {

struct Family;

// What a launch of a kernel takes, whatever the problem.
struct Footprint {
  unsigned threads = 0;
  unsigned dynamic_shared_bytes = 0;
};

// The parameters of one launch where they are not the argument block itself: with tensor maps, say.
struct alignas(64) ParameterBlock {
  std::array<std::byte, 4096> bytes;  // as many as every driver takes

  // The block's beginning as `Params`, which nobody has written: its default values would be zeros
  // for each tensor map, all written again at once.
  template <class Params>
  Params& begin() {
    static_assert(sizeof(Params) <= sizeof bytes && alignof(Params) <= alignof(ParameterBlock));
    static_assert(std::is_trivially_copyable_v<Params>);
    return *std::launder(reinterpret_cast<Params*>(bytes.data()));
  }
};

struct Template {
  const Family* family;
  const char* path;                   // what explanations call it: "portable", "sm_90a"
  const char* file;                   // below templates/
  const char* means;                  // the instructions that it is made of
  bool arch_specific = false;         // compiled for sm_90a instead of sm_90
  std::span<const Field> row_fields;  // of its config rows; in a spec they select rows
  const void* (*row)(int row);        // of its closed config table
  std::string (*tile)(int row);       // "128x64x2"
  std::string_view (*reason)(int row);
  // Why it does not serve such kernels, in one sentence; "" where it does. Null: it serves all.
  std::string (*why_not)(const Traits& traits, int arch) = nullptr;
  Footprint (*footprint)(const Specialization& spec);
  // Requires: the texts are those whose digests `spec` holds.
  std::string (*render)(const Specialization& spec, const UserTexts& texts);
  // Says where its warps yield, by rules that live as long as the process. It is null where ptxas
  // decides that, and only kernels for sm_90a may have it.
  std::span<const YieldRule> (*yields)(const Specialization& spec) = nullptr;
  // Writes a launch's parameters and returns them. Null: they are the argument block. Throws
  // runtime::DeviceError.
  std::span<const std::byte> (*pack)(const CallArguments& arguments, const Specialization& spec,
                                     runtime::Device& device, ParameterBlock& block) = nullptr;
};

// Which kernels of some traits are meant: those that a call chooses among, or also those that only
// a caller who names a tile gets.
enum class Kernels : std::uint8_t { chosen, all };

struct Family {
  const char* name;   // the operation's: "flash_attention"
  const char* title;  // in sentences and headings: "attention"
  std::span<const Template> templates;
  std::span<const Field> fields;  // of the traits, in the order in which describe() tells them
  // Completes what a spec left open, after its fields were set, and refuses what does not go
  // together: throws std::invalid_argument. Null: nothing is to be done.
  void (*settle)(Traits& traits, const UserTexts& texts, int arch) = nullptr;
  // Every kernel that such traits can ever use on an arch, whatever the sizes: what prewarming
  // needs to know.
  std::vector<Specialization> (*kernels)(const Traits& traits, int arch, Kernels which);
  // One kernel for each thing that the templates do differently, without user texts: the closed
  // list that compile tests walk.
  std::vector<Specialization> (*samples)(int arch);
  // The reader of its entries of a tuning table. It is null where calls ask no such table.
  const TuningReader* tuning = nullptr;
  // Returns a sentence for explanations about a user's texts, or "". Null: there never is one.
  std::string (*note)(const UserTexts& texts) = nullptr;
};

// The only list of the operators: jit/families.cpp.
std::span<const Family* const> families();

// The samples of all families.
std::vector<Specialization> all_samples(int arch);

// Null where no operation has this name.
const Family* find_family(std::string_view name);

// One line for people: "flash_attention bfloat16 d128 causal, tile 128x64x2".
std::string describe(const Specialization& spec, const UserTexts& texts);

// "spec: field 'name' what", as std::invalid_argument.
[[noreturn]] void refuse_field(const char* name, const std::string& what);
[[noreturn]] void refuse_spec(const std::string& what);

}  // namespace kiln
