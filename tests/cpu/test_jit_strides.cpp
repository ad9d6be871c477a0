// Strides that lead further than any memory: through C++, through C, and where the limit is.
#include <array>
#include <string>

#include "jit/op/checks.h"
#include "kiln/c.h"
#include "tests/cpu/problem_calls.h"
#include "tests/support/catch.h"

namespace kiln {
namespace {

using testing::contains;
using testing::half;

constexpr std::int64_t kFar[] = {std::int64_t{1} << 62, -(std::int64_t{1} << 62),
                                 std::int64_t{1} << 61, INT64_MIN, INT64_MAX};

TEST_CASE("strides beyond the address space are refused by name") {
  for (const std::int64_t stride : kFar) {
    testing::Attention attention;
    attention.k.strides[1] = stride;
    CHECK(contains(attention.error(), "k has the shape [2, 7, 4, 64] and the strides"));
    CHECK(contains(attention.error(), std::to_string(stride)));
    testing::Gemm gemm;
    gemm.a.strides[0] = stride;
    CHECK(contains(gemm.error(), "a has the shape [6, 16] and the strides"));
    gemm = {};
    gemm.out.strides[0] = stride;
    CHECK(contains(gemm.error(), "out has the shape"));
  }
}

TEST_CASE("the limit is 2^62 bytes from the first element to the last") {
  const std::int64_t most = (std::int64_t{1} << 61) - 1;  // elements of two bytes
  TensorView view = half({2, 8});
  for (const std::int64_t stride : {std::int64_t{8}, std::int64_t{1} << 33, most - 7, 7 - most}) {
    view.strides[0] = stride;
    CHECK(inside_address_space(view));
  }
  for (const std::int64_t stride : {most - 6, 6 - most}) {
    view.strides[0] = stride;
    CHECK_FALSE(inside_address_space(view));
  }
  // Many dimensions add up, at the edge of what is settled quickly too.
  view = half({1, 1, 1, 1, 1});
  for (std::int64_t& size : view.shape) size = (1 << 25) - 1;
  for (std::int64_t& stride : view.strides) stride = (std::int64_t{1} << 31) - 1;
  CHECK(inside_address_space(view));
  for (std::int64_t& stride : view.strides) stride = std::int64_t{1} << 36;
  CHECK_FALSE(inside_address_space(view));
}

TEST_CASE("strides that lead nowhere are not looked at") {
  TensorView one = half({1, 8});
  TensorView none = half({0, 8, 8});
  for (const std::int64_t stride : kFar) {
    one.strides[0] = none.strides[1] = stride;
    CHECK(inside_address_space(one));
    CHECK(inside_address_space(none));
  }
}

TEST_CASE("C refuses strides beyond the address space") {
  REQUIRE(kiln_set_device("emulator") == KILN_OK);
  std::array<std::uint16_t, 64> memory{};
  const std::int64_t shape[] = {8, 8};
  for (const std::int64_t stride : kFar) {
    kiln_tensor a = kiln_contiguous(memory.data(), KILN_F16, KILN_CPU, 0, 2, shape);
    const kiln_tensor b = a, out = a;
    a.strides[0] = stride;
    CHECK(kiln_gemm(&a, &b, &out, nullptr, nullptr) == KILN_INVALID_ARGUMENT);
    CHECK(contains(kiln_last_error(), "reach further than 2^62 bytes"));
  }
  REQUIRE(kiln_set_device("auto") == KILN_OK);
}

}  // namespace
}  // namespace kiln
