// A CUDA device on the fake driver: attributes, contexts, loading, capture, tensor maps.
#include <memory>
#include <thread>
#include <vector>

#include "runtime/cuda/driver.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

namespace kiln::runtime {
namespace {

using kiln::testing::fake_cubin;
using kiln::testing::FakeDriver;
using kiln::testing::mentions;
using kiln::testing::message_of;

KernelImage image_of(const std::string& cubin, unsigned shared = 0) {
  return {.cubin = cubin, .entry = "kernel", .dynamic_shared_bytes = shared};
}

TEST_CASE("device attributes are read once", "[runtime]") {
  FakeDriver fake;
  Device& device = cuda_device(1);
  const DeviceInfo& info = device.info();
  CHECK(info.kind == DeviceKind::cuda);
  CHECK(info.ordinal == 1);
  CHECK(info.name == "Fake GPU");
  CHECK(info.compute_major == 9);
  CHECK(info.sm_count == 132);
  CHECK(info.shared_bytes_per_block == 232448);
  CHECK(info.memory_bytes == std::size_t{8} << 30);
  CHECK(info.driver_version == 13000);
  const int calls = fake->count("cuDeviceGetAttribute");
  CHECK(&cuda_device(1) == &device);
  CHECK(fake->count("cuDeviceGetAttribute") == calls);
  CHECK(fake->count("cuDevicePrimaryCtxRetain") == 0);  // looking costs no context
}

TEST_CASE("threads that ask for a device at once get one device", "[runtime]") {
  FakeDriver fake;
  std::vector<Device*> seen(8);
  std::vector<std::thread> threads;
  for (Device*& slot : seen) threads.emplace_back([&slot] { slot = &cuda_device(0); });
  for (std::thread& thread : threads) thread.join();
  for (const Device* device : seen) CHECK(device == seen[0]);
  CHECK(fake->count("cuDeviceGet") == 1);
}

TEST_CASE("the caller's context is used when it is on the device", "[runtime]") {
  FakeDriver fake;
  fake->contexts().push_back(fake_user_context(0));
  cuda_device(0).synchronize(nullptr);
  CHECK(fake->count("cuStreamSynchronize") == 1);
  CHECK(fake->count("cuDevicePrimaryCtxRetain") == 0);
  CHECK(fake->count("cuCtxPushCurrent") == 0);
}

TEST_CASE("another device's context is put back, also after an error", "[runtime]") {
  FakeDriver fake;
  fake->contexts().push_back(fake_user_context(1));
  SECTION("success") { cuda_device(0).synchronize(nullptr); }
  SECTION("error") {
    fake->failures["cuStreamSynchronize"] = CUDA_ERROR_INVALID_VALUE;
    CHECK(message_of<DeviceError>([] { cuda_device(0).synchronize(nullptr); }) ==
          "cuStreamSynchronize failed: CUDA_ERROR_INVALID_VALUE (invalid argument)");
  }
  CHECK(fake->count("cuCtxPushCurrent") == 1);
  CHECK(fake->contexts() == std::vector<CUcontext>{fake_user_context(1)});
}

TEST_CASE("the primary context is retained once", "[runtime]") {
  FakeDriver fake;
  cuda_device(0).synchronize(nullptr);
  cuda_device(0).synchronize(nullptr);
  CHECK(fake->count("cuDevicePrimaryCtxRetain") == 1);
  CHECK(fake->contexts().empty());
}

TEST_CASE("an unknown error code still makes a whole sentence", "[runtime]") {
  FakeDriver fake;
  fake->failures["cuStreamSynchronize"] = static_cast<CUresult>(998);
  CHECK(message_of<DeviceError>([] { cuda_device(0).synchronize(nullptr); }) ==
        "cuStreamSynchronize failed: CUresult 998 (the driver has no text for this code)");
}

TEST_CASE("loading makes the kernel resident with its attribute set", "[runtime]") {
  FakeDriver fake;
  const std::string cubin = fake_cubin();
  std::shared_ptr<Kernel> kernel = cuda_device(1).load(image_of(cubin, 100000));
  CHECK(fake->count("cuFuncLoad") == 1);
  CHECK(fake->count("cuKernelSetAttribute") == 1);
  const std::string attribute =
      std::to_string(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) + "/1";
  CHECK(fake->attributes_set.at(attribute) == 100000);
  CHECK(fake->count("cuLibraryUnload") == 0);
  SECTION("unloaded with the last reference") {}
  SECTION("unloading after the driver's end is quiet") {
    fake->failures["cuLibraryUnload"] = CUDA_ERROR_DEINITIALIZED;
  }
  kernel.reset();
  CHECK(fake->count("cuLibraryUnload") == 1);
}

TEST_CASE("a failed load names the kernel and unloads what was loaded", "[runtime]") {
  FakeDriver fake;
  const std::string cubin = fake_cubin();
  const auto message = [&] {
    return message_of<DeviceError>([&] { cuda_device(0).load(image_of(cubin, 1000)); });
  };
  SECTION("wrong architecture") {
    fake->failures["cuLibraryLoadData"] = CUDA_ERROR_NO_BINARY_FOR_GPU;
    CHECK(mentions(message(), "CUDA_ERROR_NO_BINARY_FOR_GPU"));
    CHECK(fake->count("cuLibraryUnload") == 0);
  }
  SECTION("later failures") {
    for (const char* call :
         {"cuLibraryGetKernel", "cuKernelSetAttribute", "cuKernelGetFunction", "cuFuncLoad"}) {
      fake->failures = {{call, CUDA_ERROR_NOT_FOUND}};
      fake->calls.clear();
      const std::string text = message();
      CHECK(mentions(text, std::string(call) + " failed: CUDA_ERROR_NOT_FOUND"));
      CHECK(mentions(text, "kernel kernel on Fake GPU"));
      CHECK(fake->count("cuLibraryUnload") == 1);
    }
  }
  CHECK(fake->contexts().empty());
}

TEST_CASE("images that the driver must not see are refused", "[runtime]") {
  FakeDriver fake;
  std::string cubin = fake_cubin();
  const auto message = [&] {
    return message_of<DeviceError>([&] { cuda_device(0).load(image_of(cubin)); });
  };
  SECTION("empty") {
    cubin.clear();
    CHECK(mentions(message(), "CUDA_ERROR_INVALID_IMAGE"));
    CHECK(mentions(message(), "has only 0 bytes"));
  }
  SECTION("no ELF") {
    cubin.assign(1000, 'x');
    CHECK(mentions(message(), "is not a 64-bit ELF file"));
  }
  SECTION("truncated") {
    cubin[0x28] = 64;  // section table behind the header,
    cubin[0x3c] = 1;   // of one section, which is not there
    CHECK(mentions(message(), "is truncated"));
  }
  CHECK(fake->count("cuLibraryLoadData") == 0);
}

TEST_CASE("more shared memory than the device has is refused with both numbers", "[runtime]") {
  FakeDriver fake;
  const std::string cubin = fake_cubin();
  const std::string message =
      message_of<DeviceError>([&] { cuda_device(0).load(image_of(cubin, 232449)); });
  CHECK(mentions(message, "asks for 232449 bytes"));
  CHECK(mentions(message, "has 232448 a block"));
}

TEST_CASE("capture is detected", "[runtime]") {
  FakeDriver fake;
  void* stream = &fake;
  CHECK_FALSE(cuda_device(0).is_capturing(nullptr));
  fake->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  CHECK(cuda_device(0).is_capturing(stream));
  fake->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  CHECK(cuda_device(0).is_capturing(stream));
  fake->capture = CU_STREAM_CAPTURE_STATUS_NONE;
  fake->failures["cuStreamIsCapturing"] = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  CHECK(cuda_device(0).is_capturing(nullptr));
  fake->failures["cuStreamIsCapturing"] = CUDA_ERROR_INVALID_VALUE;
  CHECK_THROWS_AS(cuda_device(0).is_capturing(stream), DeviceError);
}

}  // namespace
}  // namespace kiln::runtime
