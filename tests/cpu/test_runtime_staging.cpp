// Host arrays on a device, on the fake driver, whose device memory is host memory.
#include <numeric>
#include <vector>

#include "runtime/cuda/host_staging.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"
#include "tests/support/limited_process.h"

namespace kiln::runtime {
namespace {

using testing::FakeDriver;

std::vector<std::byte> numbered(std::size_t bytes, int first) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(first + i * 7 + i / 977);
  return data;
}

TEST_CASE("staging: what goes to the device comes back, whatever the sizes") {
  FakeDriver fake;
  HostStaging& staging = host_staging(0);
  // Nothing, less than a block, blocks that do not divide, and more than all lanes hold at once.
  for (const std::vector<std::size_t>& sizes : {std::vector<std::size_t>{0},
                                                {1},
                                                {100, 3},
                                                {std::size_t{5} << 20, 12345},
                                                {(std::size_t{37} << 20) + 11}}) {
    const auto lock = staging.begin();
    std::vector<std::vector<std::byte>> sent, received;
    std::vector<HostCopy> up, down;
    for (const std::size_t bytes : sizes) {
      sent.push_back(numbered(bytes, static_cast<int>(sent.size())));
      received.emplace_back(bytes);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::byte* const device = staging.reserve(sizes[i]);
      CHECK(reinterpret_cast<std::uintptr_t>(device) % 256 == 0);
      up.push_back({sent[i].data(), device, sizes[i]});
      down.push_back({received[i].data(), device, sizes[i]});
    }
    staging.upload(up);
    staging.download(down);
    CHECK(received == sent);
  }
}

TEST_CASE("staging: what could be made before a failure is used by the next call") {
  FakeDriver fake;
  fake->failures["cuEventCreate"] = CUDA_ERROR_OUT_OF_MEMORY;
  for (int call = 0; call < 2; ++call) CHECK_THROWS_AS(host_staging(0), DeviceError);
  CHECK(fake->count("cuStreamCreate") == 1);
  CHECK(fake->count("cuMemHostAlloc") == 1);
  fake->failures.clear();
  HostStaging& staging = host_staging(0);
  const auto lock = staging.begin();
  CHECK(staging.reserve(1) != nullptr);
  CHECK(fake->count("cuStreamCreate") == 1);
  CHECK(fake->count("cuMemHostAlloc") == fake->count("cuEventCreate") - 2);
}

TEST_CASE("staging: device memory is reused, pieces become one") {
  FakeDriver fake;
  HostStaging& staging = host_staging(1);
  const std::size_t large = std::size_t{40} << 20;
  std::byte* first = nullptr;
  for (int call = 0; call < 4; ++call) {
    const auto lock = staging.begin();
    std::byte* const a = staging.reserve(large);
    std::byte* const b = staging.reserve(large);
    CHECK((b >= a + large || a >= b + large));
    if (call == 1) first = a;
    if (call > 1) CHECK(a == first);
  }
  CHECK(fake->count("cuMemAlloc") == 3);  // two pieces, then one in their place
  CHECK(fake->count("cuMemFree") == 2);
}

TEST_CASE("staging: no more than a gigabyte is kept between calls") {
  FakeDriver fake;
  HostStaging& staging = host_staging(1);
  {
    const auto lock = staging.begin();
  }
  fake->calls.clear();
  {
    const auto lock = staging.begin();
    staging.reserve((std::size_t{1} << 30) + 1);
  }
  {
    const auto lock = staging.begin();
  }
  CHECK(fake->count("cuMemAlloc") == 1);
  CHECK(fake->count("cuMemFree") >= 1);
}

TEST_CASE("staging: copies work on the threads that they get") {
  FakeDriver fake;
  HostStaging& staging = host_staging(0);
  const auto copies = [&] {
    const std::vector<std::byte> data = numbered(std::size_t{37} << 20, 1);
    std::vector<std::byte> back(data.size());
    const auto lock = staging.begin();
    std::byte* const device = staging.reserve(data.size());
    const HostCopy up{const_cast<std::byte*>(data.data()), device, data.size()};
    const HostCopy down{back.data(), device, data.size()};
    staging.upload({&up, 1});
    staging.download({&down, 1});
    return back == data;
  };
  CHECK(copies());
  CHECK(kiln::testing::holds_in_child([&] { return kiln::testing::forbid_threads() && copies(); }));
}

TEST_CASE("staging: a copy that fails is an error, and the next call is whole") {
  FakeDriver fake;
  HostStaging& staging = host_staging(0);
  std::vector<std::byte> data = numbered(std::size_t{9} << 20, 1), back(data.size());
  {
    const auto lock = staging.begin();
    const HostCopy copy{data.data(), staging.reserve(data.size()), data.size()};
    fake->failures["cuMemcpyHtoDAsync"] = CUDA_ERROR_INVALID_VALUE;
    CHECK(testing::mentions(testing::message_of<DeviceError>([&] { staging.upload({&copy, 1}); }),
                            "cuMemcpyHtoDAsync failed: CUDA_ERROR_INVALID_VALUE"));
  }
  fake->failures.clear();
  const auto lock = staging.begin();
  std::byte* const device = staging.reserve(data.size());
  const HostCopy up{data.data(), device, data.size()}, down{back.data(), device, data.size()};
  staging.upload({&up, 1});
  staging.download({&down, 1});
  CHECK(back == data);
}

}  // namespace
}  // namespace kiln::runtime
