// The choice of kernels that the other tests compile and run: that the cover covers, and that seeds
// choose other samples.
#include "tests/support/kernel_list.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "jit/op/arch.h"
#include "jit/op/family.h"
#include "jit/tools/spec.h"
#include "tests/support/catch.h"

namespace kiln::testing {
namespace {

using Items = std::vector<std::vector<std::string>>;

std::set<std::string> united(const Items& items) {
  std::set<std::string> all;
  for (const auto& item : items) all.insert(item.begin(), item.end());
  return all;
}

Items chosen(const Items& items) {
  Items some;
  for (std::size_t i : cover(items)) some.push_back(items[i]);
  return some;
}

std::set<std::string> united(const std::vector<Specialization>& specs) {
  Items items;
  for (const Specialization& spec : specs) items.push_back(row_pairs(spec));
  return united(items);
}

bool has(const std::vector<Specialization>& specs, const Specialization& spec) {
  return std::ranges::find(specs, spec) != specs.end();
}

// The variables for as long as the object lives.
class TestSettings {
 public:
  TestSettings(const char* seed, bool full) {
    setenv("KILN_TEST_SEED", seed, 1);
    setenv("KILN_TEST_FULL", full ? "1" : "0", 1);
  }
  ~TestSettings() { restore("KILN_TEST_SEED", seed_), restore("KILN_TEST_FULL", full_); }
  TestSettings(const TestSettings&) = delete;
  TestSettings& operator=(const TestSettings&) = delete;

 private:
  static std::string current(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
  }
  static void restore(const char* name, const std::string& value) {
    value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  }
  std::string seed_ = current("KILN_TEST_SEED"), full_ = current("KILN_TEST_FULL");
};

TEST_CASE("a cover has every pair of all items, in few of them") {
  CHECK(cover(Items{}).empty());
  CHECK(cover(Items{{}, {}}).empty());
  CHECK(cover(Items{{"a"}, {"a", "b"}, {"b"}}) == std::vector<std::size_t>{1});
  CHECK(cover(Items{{"a"}, {"b"}, {"a"}}) == std::vector<std::size_t>{0, 1});
  // Two rows of 3 x 4 x 2 combinations: the largest property decides how many a row needs.
  Items grid;
  for (const char* row : {"r", "s"}) {
    for (int a = 0; a < 3; ++a) {
      for (int b = 0; b < 4; ++b) {
        for (int c = 0; c < 2; ++c) {
          grid.push_back({row + std::string(" a") + std::to_string(a),
                          row + std::string(" b") + std::to_string(b),
                          row + std::string(" c") + std::to_string(c)});
        }
      }
    }
  }
  CHECK(united(chosen(grid)) == united(grid));
  CHECK(chosen(grid).size() == 8);
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 20; ++repeat) {
    Items items(1 + random() % 40);
    for (auto& item : items) {
      for (unsigned i = random() % 6; i > 0; --i) item.push_back(std::to_string(random() % 25));
    }
    CHECK(united(chosen(items)) == united(items));
    CHECK(chosen(chosen(items)).size() == chosen(items).size());
  }
}

TEST_CASE("of every arch, the cover has each config row with each property's values") {
  for (std::size_t arch = 0; arch < arch_table().size(); ++arch) {
    const auto all = all_samples(static_cast<int>(arch));
    const KernelList list = kernel_list(static_cast<int>(arch));
    CAPTURE(arch_table()[arch].name);
    CHECK(united(list.cover) == united(all));
    std::set<std::pair<const Template*, int>> rows, covered;
    for (const auto& spec : all) {
      if (!rests(spec)) rows.emplace(&spec.kernel(), spec.row());
    }
    for (const auto& spec : list.cover) covered.emplace(&spec.kernel(), spec.row());
    CHECK(covered == rows);
    CHECK(list.cover.size() + list.sample.size() + list.others == all.size());
    CHECK(list.cover.size() < all.size() / 2);
  }
}

TEST_CASE("a seed decides the sample, a sixtieth of what is not in the cover") {
  const int arch = arch_index({9, 0});
  std::set<std::string> lists;
  for (const char* seed : {"0", "1", "4f2a", "4f2b"}) {
    const TestSettings settings(seed, false);
    const KernelList list = kernel_list(arch), again = kernel_list(arch);
    CHECK(list.sample == again.sample);
    CHECK(list.cover == again.cover);
    std::string names;
    for (const Specialization& spec : list.sample) {
      CHECK(!has(list.cover, spec));
      names += row_pairs(spec).front() + std::to_string(spec.hash());
    }
    lists.insert(names);
    const double share = double(list.sample.size()) / double(list.sample.size() + list.others);
    CHECK(share > 0.008);
    CHECK(share < 0.025);
    CHECK(tested_kernels(arch).size() == list.cover.size() + list.sample.size());
  }
  CHECK(lists.size() == 4);
  const TestSettings settings("0", true);
  CHECK(tested_kernels(arch) == all_samples(arch));
}

TEST_CASE("each row is compiled for one of the archs that share rows, in the end for each") {
  std::map<std::string, std::set<int>> served;  // what has served a row, by its name
  for (int seed = 0; seed < 60; ++seed) {
    const TestSettings settings(std::to_string(seed).c_str(), false);
    std::map<std::string, int> archs;  // that have a row
    for (const int number : {80, 86, 89, 100, 120}) {
      std::set<std::string> rows;
      for (const Specialization& spec : all_samples(arch_index({number / 10, number % 10}))) {
        const std::string row = std::string(spec.kernel().file) + std::to_string(spec.row());
        served.try_emplace(std::to_string(number) + " " + row);
        if (!rests(spec)) rows.insert(row);
        CHECK(row_pairs(spec).empty() == rests(spec));
      }
      for (const std::string& row : rows) {
        served[std::to_string(number) + " " + row].insert(seed);
        ++archs[row];
      }
    }
    for (const auto& [row, times] : archs) CHECK(times <= 2);  // two launches may share a file
  }
  for (const auto& [row, seeds] : served) {
    CAPTURE(row);
    CHECK(!seeds.empty());
  }
  for (const Specialization& spec : all_samples(arch_index({9, 0}))) CHECK(!rests(spec));
}

// How often a row has had its turn.
struct Turns {
  bool many = false;  // attention and GEMM
  int times = 0;
};

TEST_CASE("each row gets its turn, and waits otherwise") {
  std::map<std::string, Turns> turns;  // of each row
  // A row of attention or GEMM has its turn with one seed in twelve: 64 seeds left one of 300 rows
  // out.
  constexpr int kSeeds = 256;
  const auto all = all_samples(arch_index({9, 0})), others = all_samples(arch_index({8, 0}));
  int of_others[2] = {};  // specs of another arch that have their turn, and those that wait
  for (int seed = 0; seed < kSeeds; ++seed) {
    const TestSettings settings(std::to_string(seed).c_str(), false);
    std::set<std::string> served;
    for (const Specialization& spec : all) {
      const std::string first = row_pairs(spec).front();
      const std::string row = first.substr(0, first.find(','));
      const std::string_view family = spec.kernel().family->name;
      turns[row].many = family == "flash_attention" || family == "gemm";
      if (!waits(spec)) served.insert(row);
    }
    for (const std::string& row : served) ++turns[row].times;
    for (const Specialization& spec : others) ++of_others[waits(spec)];
  }
  double rows[2] = {}, times[2] = {};
  for (const auto& [row, of] : turns) {
    CAPTURE(row);
    CHECK(of.times > 0);
    CHECK(of.times < kSeeds);
    rows[of.many] += 1;
    times[of.many] += of.times;
  }
  // A single seed shows little of it: the rows of a family have few or many kernels.
  CHECK(std::abs(times[true] / rows[true] / kSeeds - 1 / 12.0) < 0.01);
  CHECK(std::abs(times[false] / rows[false] / kSeeds - 1 / 4.0) < 0.03);
  const double share = double(of_others[0]) / (of_others[0] + of_others[1]);
  CHECK(share > 1 / 24.0);
  CHECK(share < 1 / 8.0);
}

TEST_CASE("each value that takes turns gets one, in every row that has it") {
  std::vector<Specialization> quantized;
  for (const Specialization& spec : all_samples(arch_index({9, 0}))) {
    const nlohmann::json properties = spec_to_json(spec, {});
    if (properties.at("op") != "flash_attention") continue;
    if (!properties.at("cache_dtype").is_null()) quantized.push_back(spec);
  }
  const auto dtypes = [&] {
    std::set<std::string> pairs = united(quantized);
    std::erase_if(pairs, [](const std::string& pair) {
      return pair.find("cache_dtype") == std::string::npos;
    });
    return pairs;
  };
  std::set<std::string> served;
  std::size_t largest = 0;
  for (int seed = 0; seed < 400; ++seed) {
    const TestSettings settings(std::to_string(seed).c_str(), false);
    const auto pairs = dtypes();
    largest = std::max(largest, pairs.size());
    served.insert(pairs.begin(), pairs.end());
  }
  std::set<std::string> all;
  for (const Specialization& spec : quantized) {
    const std::string row = row_pairs(spec).front();
    const std::string dtype = spec_to_json(spec, {}).at("cache_dtype").dump();
    all.insert(row.substr(0, row.find(',')) + ", cache_dtype=" + dtype);
  }
  CHECK(served == all);
  CHECK(largest < all.size());
}

}  // namespace
}  // namespace kiln::testing
