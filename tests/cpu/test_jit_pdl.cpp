// Programmatic launches of GEMM on the fake driver. Kernels come from entries made by hand, in the
// folder that test_jit_engine.cpp sets.
#include <algorithm>
#include <cstring>

#include "jit/compile/kernel_source.h"
#include "jit/gemm/problem.h"
#include "kiln/control.h"
#include "templates/gemm/params.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;

namespace {

void* const kMemory = reinterpret_cast<void*>(0x10000);
char* const kResult = reinterpret_cast<char*>(0x1000000);  // what is written lies apart

struct Call {
  FakeDriver fake;
  TensorView a = contiguous_view(kMemory, DType::bf16, 0, 64, 32);
  TensorView b = contiguous_view(kMemory, DType::bf16, 0, 32, 48);
  TensorView out = contiguous_view(kResult, DType::bf16, 0, 64, 48);
  GemmOptions options;

  Call() {
    fake->argument_bytes = sizeof(GemmSm90Params<runtime::TensorMap>);
    clear_memory_cache();
    disk_cache().clear();
  }
  void publish() {
    GemmProblem problem;
    check_gemm(a, b, out, options, problem);
    resolve(problem, device_of(0), true);
    REQUIRE(disk_cache().put(source_of(problem.recipe.first().spec, problem.texts).key,
                             {kiln::testing::fake_cubin(), "ptx", {{"arch", "sm_90"}}}));
  }
  void run() { gemm(a, b, out, options, nullptr); }
};

// Of an sm_90a kernel, behind its tensor maps.
GemmParams gemm_params(const FakeLaunch& launch) {
  GemmSm90Params<runtime::TensorMap> params;
  REQUIRE(launch.arguments.size() == sizeof params);
  std::memcpy(&params, launch.arguments.data(), sizeof params);
  return params.gemm;
}

}  // namespace

TEST_CASE("pdl makes programmatic launches of the same kernel, and weights tell it of b") {
  Call call;
  call.publish();
  const auto is_programmatic = [&] {
    const auto& attributes = call.fake->launches.back().attributes;
    return std::ranges::any_of(attributes, [](const CUlaunchAttribute& attribute) {
      return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
             attribute.value.programmaticStreamSerializationAllowed != 0;
    });
  };
  for (const Pdl pdl : {Pdl::off, Pdl::on, Pdl::weights}) {
    call.options.pdl = pdl;
    call.run();
    CHECK(is_programmatic() == (pdl != Pdl::off));
    CHECK(gemm_params(call.fake->launches.back()).weights_ahead == (pdl == Pdl::weights));
  }
  const Plan plan = plan_gemm(call.a, call.b, call.out, call.options);
  plan.launch({kMemory, kMemory, kResult});
  CHECK(is_programmatic());
  CHECK(gemm_params(call.fake->launches.back()).weights_ahead == 1);
  CHECK(call.fake->count("cuLibraryLoadData") == 1);
}

TEST_CASE("where a device knows no programmatic launches, pdl has no effect") {
  Call call;
  call.fake->compute_major = 8;
  call.fake->argument_bytes = sizeof(GemmParams);
  call.options.pdl = Pdl::on;
  call.publish();
  call.run();
  CHECK(call.fake->launches.back().attributes.empty());
}
