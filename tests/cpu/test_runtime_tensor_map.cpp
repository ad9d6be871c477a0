// Tensor maps on the fake driver: what is encoded, and one sentence for each mistake.
#include "runtime/cuda/driver.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

namespace kiln::runtime {
namespace {

using kiln::testing::FakeDriver;
using kiln::testing::mentions;
using kiln::testing::message_of;

// A [1000, 4096] bf16 matrix in boxes of 64 columns and 128 rows.
TensorMapSpec matrix() {
  return {.address = 0x10000,
          .element = TensorMapElement::bf16,
          .rank = 2,
          .dims = {4096, 1000},
          .strides_bytes = {8192},
          .box = {64, 128},
          .swizzle = TensorMapSwizzle::b128};
}

std::string refusal(const TensorMapSpec& spec) {
  return message_of<std::invalid_argument>([&] { cuda_device(0).make_tensor_map(spec); });
}

TEST_CASE("a tensor map is encoded with its type, rank and swizzle", "[runtime]") {
  FakeDriver fake;
  const TensorMap map = cuda_device(0).make_tensor_map(matrix());
  CHECK(map.words[0] == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  CHECK(map.words[1] == 2);
  CHECK(map.words[2] == CU_TENSOR_MAP_SWIZZLE_128B);
  fake->failures["cuTensorMapEncodeTiled"] = CUDA_ERROR_INVALID_VALUE;
  CHECK_THROWS_AS(cuda_device(0).make_tensor_map(matrix()), DeviceError);
}

TEST_CASE("a device before 9.0 has no tensor maps", "[runtime]") {
  FakeDriver fake;
  fake->compute_major = 8;
  CHECK(mentions(refusal(matrix()), "need compute capability 9.0 or newer, Fake GPU has 8.0"));
}

TEST_CASE("each mistake in a tensor map gets its sentence", "[runtime]") {
  FakeDriver fake;
  TensorMapSpec spec = matrix();
  const char* expected = nullptr;
  SECTION("rank") {
    spec.rank = 6;
    expected = "rank must be 1 to 5, got 6";
  }
  SECTION("address") {
    spec.address += 8;
    expected = "the address must be a multiple of 16 and not null, got 65544";
  }
  SECTION("null") {
    spec.address = 0;
    expected = "not null, got 0";
  }
  SECTION("dims") {
    spec.dims[1] = 0;
    expected = "dims[1] must be 1 to 2^32, got 0";
  }
  SECTION("stride") {
    spec.strides_bytes[0] = 8200;
    expected = "strides_bytes[0] must be a multiple of 16 below 2^40, got 8200";
  }
  SECTION("box") {
    spec.box[1] = 257;
    expected = "box[1] must be 1 to 256, got 257";
  }
  SECTION("inner box") {
    spec.box[0] = 20;
    expected = "box[0] must cover a multiple of 16 bytes, got 40";
  }
  SECTION("swizzle") {
    spec.swizzle = TensorMapSwizzle::b64;
    expected = "box[0] must cover at most the swizzle's 64 bytes, got 128";
  }
  CHECK(mentions(refusal(spec), expected));
  CHECK(fake->count("cuTensorMapEncodeTiled") == 0);
}

TEST_CASE("the last dimension's stride is not looked at", "[runtime]") {
  FakeDriver fake;
  TensorMapSpec spec = matrix();
  spec.strides_bytes[1] = 7;
  CHECK(refusal(spec).empty());
}

}  // namespace
}  // namespace kiln::runtime
