#include "tests/support/kernel_list.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>

#include "jit/op/arch.h"
#include "jit/op/family.h"
#include "jit/tools/spec.h"

namespace kiln::testing {
namespace {

// One of so many; archs that share their rows share this as well. With one of 40, the sample took
// 200 of the 4200 seconds of CPU time that CI has.
constexpr std::uint64_t kSampledOf = 60;
// Archs that run nothing but portable kernels, as sm_90 does beside its own: a config row is
// compiled for one of them, by turns. With all rows of sm_100 and of another one, they took as much
// of CI's time as sm_90.
constexpr int kArchsOfRows[] = {80, 86, 89, 100, 120};

// Properties of attention of which a config row has many values, each of them a kernel of 1 to 16
// seconds. Null and head dims without padding are always in the cover.
constexpr std::string_view kPropertiesInTurns[] = {"attn_mask", "cache_dtype", "head_dim",
                                                   "head_dim_v", "sinks"};
constexpr std::uint64_t kValueTurns = 3;

// Config rows take turns too. A row of these families has 10 to 25 kernels in a cover, and all of
// them together took a third of the time that CI has. An eighth of the rows took too long when GEMM
// had 13 more.
constexpr std::string_view kFamiliesOfManyKernels[] = {"flash_attention", "gemm"};
constexpr std::uint64_t kRowTurns = 12;
// The rows of the other families take shorter turns, as their kernels compile in a quarter of the
// time.
constexpr std::uint64_t kOtherRowTurns = 4;
// On the archs that share rows, turns are longer by this factor: sm_90 has the same templates.
constexpr std::uint64_t kLongerTurns = 2;

int number_of(int arch) { return arch_table()[static_cast<std::size_t>(arch)].number; }

// Whether an arch is one of those that have a part of the rows each.
bool shares_rows(int arch) {
  return std::ranges::find(kArchsOfRows, number_of(arch)) != std::end(kArchsOfRows);
}

// The template of a kernel and its config row. Two launches of a call may share a file, and two
// families a template: `op` is then a property.
std::string row_of(const Specialization& spec) {
  const Template& kernel = spec.kernel();
  const std::string place = std::to_string(&kernel - kernel.family->templates.data());
  return std::string(kernel.file) + " " + place + " " + std::to_string(spec.row());
}

// Whether a value takes turns with others, so that the seed decides which rows have it.
bool takes_turns(const std::string& op, const std::string& name, const nlohmann::json& value) {
  if (op != "flash_attention" || value.is_null()) return false;
  if (value.is_number() && value.get<int>() % 64 == 0) return false;
  return std::ranges::find(kPropertiesInTurns, name) != std::end(kPropertiesInTurns);
}

std::vector<std::vector<int>> numbered(std::span<const std::vector<std::string>> items,
                                       std::map<std::string, int>& numbers) {
  std::vector<std::vector<int>> all;
  for (const std::vector<std::string>& item : items) {
    std::vector<int>& pairs = all.emplace_back();
    for (const std::string& pair : item) {
      pairs.push_back(numbers.try_emplace(pair, static_cast<int>(numbers.size())).first->second);
    }
  }
  return all;
}

}  // namespace

std::vector<std::size_t> cover(std::span<const std::vector<std::string>> items) {
  std::map<std::string, int> numbers;
  const std::vector<std::vector<int>> all = numbered(items, numbers);
  std::vector<bool> covered(numbers.size());
  const auto gain = [&](std::size_t i) {
    return std::count_if(all[i].begin(), all[i].end(),
                         [&](int pair) { return !covered[static_cast<std::size_t>(pair)]; });
  };
  std::vector<std::size_t> chosen;
  while (true) {
    std::size_t best = 0;
    long most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const long gained = gain(i);
      if (gained > most) best = i, most = gained;
    }
    if (most == 0) break;
    chosen.push_back(best);
    for (int pair : all[best]) covered[static_cast<std::size_t>(pair)] = true;
  }
  std::ranges::sort(chosen);
  return chosen;
}

bool rests(const Specialization& spec) {
  const auto& archs = kArchsOfRows;
  const auto turn = seeded(test_seed(), row_of(spec) + " arch") % std::size(archs);
  return shares_rows(spec.arch()) && number_of(spec.arch()) != archs[turn];
}

bool waits(const Specialization& spec) {
  const std::string_view family = spec.kernel().family->name;
  const auto& families = kFamiliesOfManyKernels;
  const bool many = std::ranges::find(families, family) != std::end(families);
  const std::uint64_t turns =
      (many ? kRowTurns : kOtherRowTurns) * (shares_rows(spec.arch()) ? kLongerTurns : 1);
  return seeded(test_seed(), row_of(spec) + " turn") % turns != 0;
}

std::vector<std::string> row_pairs(const Specialization& spec) {
  if (rests(spec)) return {};
  const nlohmann::json properties = spec_to_json(spec, {});
  const std::string row = row_of(spec);
  const std::string op = properties.at("op"), seed = test_seed();
  const bool has_one = waits(spec);
  std::vector<std::string> pairs;
  for (const auto& [name, value] : properties.items()) {
    if (has_one && name != "op") continue;
    std::string pair = row + ", " + name + "=" + value.dump();
    if (takes_turns(op, name, value) && seeded(seed, pair) % kValueTurns != 0) continue;
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

KernelList kernel_list(int arch) {
  const std::vector<Specialization> all = all_samples(arch);
  std::vector<std::vector<std::string>> pairs;
  for (const Specialization& spec : all) pairs.push_back(row_pairs(spec));
  std::vector<bool> covers(all.size());
  for (std::size_t i : cover(pairs)) covers[i] = true;
  const std::string seed = test_seed();
  const std::uint64_t sampled_of = kSampledOf * (shares_rows(arch) ? std::size(kArchsOfRows) : 1);
  KernelList list;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (covers[i]) {
      list.cover.push_back(all[i]);
    } else if (seeded(seed, spec_to_json(all[i], {}).dump()) % sampled_of == 0) {
      list.sample.push_back(all[i]);
    } else {
      ++list.others;
    }
  }
  return list;
}

std::vector<Specialization> tested_kernels(int arch) {
  if (tests_all()) return all_samples(arch);
  KernelList list = kernel_list(arch);
  list.cover.insert(list.cover.end(), list.sample.begin(), list.sample.end());
  return list.cover;
}

bool tests_all() {
  const char* const full = std::getenv("KILN_TEST_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

std::string test_seed() {
  const char* const seed = std::getenv("KILN_TEST_SEED");
  return seed != nullptr && *seed != '\0' ? seed : "0";
}

std::uint64_t seeded(std::string_view seed, std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&](std::string_view bytes) {
    for (const char byte : bytes) {
      hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
    }
  };
  add(seed);
  add("/");
  add(text);
  hash ^= hash >> 32;  // its low bits alone mix badly
  hash *= 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

}  // namespace kiln::testing
