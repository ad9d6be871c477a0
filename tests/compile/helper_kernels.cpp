// Prints which kernels of an arch the tests take, as JSON: tests/support/kernel_list.h for tests in
// Python. {"seed": "…", "cover": [spec, …], "sample": [spec, …], "tested": [spec, …],
// "waits": [bool, …], "rests": [bool, …]}, the last two for each kernel in the order of
// kiln.enumerate_specs().
#include <cstdio>
#include <exception>

#include "jit/op/arch.h"
#include "jit/op/family.h"
#include "jit/tools/spec.h"
#include "tests/support/kernel_list.h"

namespace {

nlohmann::json specs(const std::vector<kiln::Specialization>& kernels) {
  nlohmann::json list = nlohmann::json::array();
  for (const kiln::Specialization& spec : kernels) list.push_back(kiln::spec_to_json(spec, {}));
  return list;
}

nlohmann::json of_all(int arch, bool (*is)(const kiln::Specialization& spec)) {
  nlohmann::json list = nlohmann::json::array();
  for (const kiln::Specialization& spec : kiln::all_samples(arch)) list.push_back(is(spec));
  return list;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: helper_kernels ARCH\n");
    return 2;
  }
  const int arch = kiln::arch_index(kiln::parse_arch(argv[1]));
  const kiln::testing::KernelList list = kiln::testing::kernel_list(arch);
  const nlohmann::json all = {{"seed", kiln::testing::test_seed()},
                              {"waits", of_all(arch, kiln::testing::waits)},
                              {"rests", of_all(arch, kiln::testing::rests)},
                              {"cover", specs(list.cover)},
                              {"sample", specs(list.sample)},
                              {"tested", specs(kiln::testing::tested_kernels(arch))}};
  std::printf("%s\n", all.dump().c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "helper_kernels: %s\n", error.what());
  return 1;
}
