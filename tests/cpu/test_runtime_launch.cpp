// Launches on the fake driver: what reaches cuLaunchKernelEx, and what a failure says.
#include <array>
#include <cstring>

#include "runtime/cuda/driver.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

namespace kiln::runtime {
namespace {

using kiln::testing::FakeDriver;
using kiln::testing::mentions;
using kiln::testing::message_of;

struct Arguments {
  int m = 3;
  float scale = 0.5f;
};

struct LaunchTest {
  FakeDriver fake;
  std::string cubin = kiln::testing::fake_cubin();
  Arguments arguments;
  LaunchShape shape{.grid = {4, 5, 6}, .block = {128, 1, 1}, .dynamic_shared_bytes = 2048};

  LaunchTest() { fake->argument_bytes = sizeof arguments; }

  std::shared_ptr<Kernel> load(int ordinal = 0) {
    return cuda_device(ordinal).load({.cubin = cubin, .entry = "kernel"});
  }
  FakeLaunch launch(const Kernel& kernel) {
    cuda_device(0).launch(kernel, shape, &fake, std::as_bytes(std::span(&arguments, 1)), {});
    return fake->launches.back();
  }
};

TEST_CASE("shape, stream and arguments reach the driver unchanged", "[runtime]") {
  LaunchTest test;
  const FakeLaunch launch = test.launch(*test.load());
  CHECK(launch.config.gridDimX == 4);
  CHECK(launch.config.gridDimY == 5);
  CHECK(launch.config.gridDimZ == 6);
  CHECK(launch.config.blockDimX == 128);
  CHECK(launch.config.sharedMemBytes == 2048);
  CHECK(launch.config.hStream == static_cast<void*>(&test.fake));
  CHECK(std::memcmp(launch.arguments.data(), &test.arguments, sizeof test.arguments) == 0);
  CHECK(launch.attributes.empty());
  CHECK(launch.context == fake_primary_context(0));
}

TEST_CASE("cluster and programmatic attributes are sent only when asked for", "[runtime]") {
  LaunchTest test;
  const auto kernel = test.load();
  test.shape.cluster = {2, 1, 1};
  FakeLaunch launch = test.launch(*kernel);
  REQUIRE(launch.attributes.size() == 1);
  CHECK(launch.attributes[0].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  CHECK(launch.attributes[0].value.clusterDim.x == 2);
  CHECK(launch.attributes[0].value.clusterDim.y == 1);

  test.shape.programmatic = true;
  launch = test.launch(*kernel);
  REQUIRE(launch.attributes.size() == 2);
  CHECK(launch.attributes[1].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  CHECK(launch.attributes[1].value.programmaticStreamSerializationAllowed == 1);
}

TEST_CASE("a device before 9.0 launches without the programmatic attribute", "[runtime]") {
  LaunchTest test;
  test.fake->compute_major = 8;
  test.shape.programmatic = true;
  CHECK(test.launch(*test.load()).attributes.empty());
}

TEST_CASE("a hot launch asks for the context and launches, nothing more", "[runtime]") {
  LaunchTest test;
  const auto kernel = test.load();
  test.fake->contexts().push_back(fake_primary_context(0));
  test.fake->calls.clear();
  test.launch(*kernel);
  const std::vector<std::string> expected{"cuCtxGetCurrent", "cuLaunchKernelEx"};
  CHECK(test.fake->calls == expected);
}

TEST_CASE("in a context of the caller's own the kernel handle is launched", "[runtime]") {
  LaunchTest test;
  const auto kernel = test.load();
  CHECK(test.launch(*kernel).function == kFakeFunction);
  test.fake->contexts().push_back(fake_user_context(0));
  const FakeLaunch launch = test.launch(*kernel);
  CHECK(launch.function == reinterpret_cast<CUfunction>(kFakeKernel));
  CHECK(launch.context == fake_user_context(0));
}

TEST_CASE("a failed launch says what was launched and puts the context back", "[runtime]") {
  LaunchTest test;
  const auto kernel = test.load();
  test.fake->contexts().push_back(fake_user_context(1));
  test.fake->failures["cuLaunchKernelEx"] = CUDA_ERROR_INVALID_VALUE;
  CHECK(message_of<DeviceError>([&] { test.launch(*kernel); }) ==
        "cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE (invalid argument; kernel kernel, grid "
        "4x5x6, block 128x1x1, cluster 1x1x1, 2048 bytes of dynamic shared memory)");
  CHECK(test.fake->contexts() == std::vector<CUcontext>{fake_user_context(1)});
}

TEST_CASE("a kernel of another device is refused", "[runtime]") {
  LaunchTest test;
  const auto kernel = test.load(1);
  CHECK_THROWS_AS(test.launch(*kernel), std::invalid_argument);
  CHECK(test.fake->launches.empty());
}

}  // namespace
}  // namespace kiln::runtime
