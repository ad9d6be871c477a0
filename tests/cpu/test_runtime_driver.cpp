// Opening the driver: what is said when it is missing, old, broken or without a GPU.
#include "runtime/cuda/driver.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

namespace kiln::runtime {
namespace {

using kiln::testing::FakeDriver;
using kiln::testing::mentions;
using kiln::testing::message_of;

TEST_CASE("a working driver is described", "[runtime]") {
  FakeDriver fake;
  const CudaStatus& status = cuda_status();
  CHECK(status.driver_found);
  CHECK(status.driver_version == 13000);
  CHECK(status.device_count == 2);
  CHECK(status.driver_path == KILN_FAKE_CUDA);
  CHECK(status.problem.empty());
  CHECK(fake->count("cuInit") == 1);
}

TEST_CASE("a missing driver is an error only when a device is asked for", "[runtime]") {
  FakeDriver fake;
  set_driver_library_for_testing("libkiln-no-such-driver.so.1");
  const CudaStatus& status = cuda_status();
  CHECK_FALSE(status.driver_found);
  CHECK(status.device_count == 0);
  CHECK(mentions(status.problem, "libkiln-no-such-driver.so.1"));
  CHECK(mentions(status.problem, "install NVIDIA driver 550"));
  CHECK(cuda_current_ordinal() == -1);
  CHECK(cuda_ordinal_of_pointer(&fake) == -1);
  CHECK(message_of<NoDeviceError>([] { cuda_device(0); }) == status.problem);
}

TEST_CASE("an old driver is refused by its version", "[runtime]") {
  FakeDriver fake;
  fake->driver_version = 12030;
  const std::string message = message_of<NoDeviceError>([] { cuda_device(0); });
  CHECK(mentions(message, "supports CUDA 12.3, but Kiln needs 12.4"));
  CHECK(fake->count("cuInit") == 0);
}

TEST_CASE("a driver without one of the functions is named with the function", "[runtime]") {
  FakeDriver fake;
  fake->missing_symbol = "cuFuncLoad";
  const std::string message = message_of<NoDeviceError>([] { cuda_device(0); });
  CHECK(mentions(message, "has no cuFuncLoad although it reports CUDA 13.0"));
}

TEST_CASE("failures of cuInit carry the cure", "[runtime]") {
  FakeDriver fake;
  SECTION("no GPU") {
    fake->failures["cuInit"] = CUDA_ERROR_NO_DEVICE;
    CHECK(mentions(cuda_status().problem, "sees no GPU: check nvidia-smi"));
  }
  SECTION("no GPU left by CUDA_VISIBLE_DEVICES") {
    fake->device_count = 0;
    CHECK(mentions(cuda_status().problem, "CUDA_VISIBLE_DEVICES"));
  }
  SECTION("the toolkit's stub") {
    fake->failures["cuInit"] = CUDA_ERROR_STUB_LIBRARY;
    CHECK(mentions(cuda_status().problem, "stub"));
  }
  SECTION("a child of fork() whose parent had used CUDA") {
    fake->failures["cuInit"] = CUDA_ERROR_NOT_INITIALIZED;
    CHECK(mentions(cuda_status().problem, "start it with spawn instead"));
    CHECK(!mentions(cuda_status().problem, "nvidia-smi"));
  }
  SECTION("anything else") {
    fake->failures["cuInit"] = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    CHECK(mentions(cuda_status().problem, "cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"));
    CHECK(mentions(cuda_status().problem, "nvidia-smi"));
  }
  CHECK(cuda_status().driver_found);
  CHECK_THROWS_AS(cuda_device(0), NoDeviceError);
}

TEST_CASE("an ordinal that does not exist is refused", "[runtime]") {
  FakeDriver fake;
  for (const int ordinal : {-1, 2, 1000}) {
    const std::string message = message_of<NoDeviceError>([&] { cuda_device(ordinal); });
    CHECK(mentions(message, "no CUDA device " + std::to_string(ordinal)));
    CHECK(mentions(message, "can use 2"));
  }
}

TEST_CASE("a call in a child of fork() names spawn", "[runtime]") {
  FakeDriver fake;
  fake->failures["cuDeviceGet"] = CUDA_ERROR_NOT_INITIALIZED;
  const auto message = message_of<DeviceError>([] { cuda_device(0); });
  CHECK(mentions(message, "cuDeviceGet failed"));
  CHECK(mentions(message, "made by fork() from one that had used CUDA"));
}

TEST_CASE("pointers tell their device", "[runtime]") {
  FakeDriver fake;
  char memory[3];
  const auto address = [&](int i) { return reinterpret_cast<CUdeviceptr>(memory + i); };
  fake->pointers[address(0)] = {CU_MEMORYTYPE_DEVICE, 1};
  fake->pointers[address(1)] = {CU_MEMORYTYPE_HOST, 0};
  CHECK(cuda_ordinal_of_pointer(memory) == 1);
  CHECK(cuda_ordinal_of_pointer(memory + 1) == -1);
  CHECK(cuda_ordinal_of_pointer(memory + 2) == -1);
  CHECK(cuda_ordinal_of_pointer(nullptr) == -1);
  fake->failures["cuPointerGetAttribute"] = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK_THROWS_AS(cuda_ordinal_of_pointer(memory), DeviceError);
}

TEST_CASE("the current ordinal is that of the thread's context", "[runtime]") {
  FakeDriver fake;
  CHECK(cuda_current_ordinal() == -1);
  fake->contexts().push_back(fake_user_context(1));
  CHECK(cuda_current_ordinal() == 1);
  fake->failures["cuCtxGetDevice"] = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  CHECK(cuda_current_ordinal() == -1);
}

}  // namespace
}  // namespace kiln::runtime
