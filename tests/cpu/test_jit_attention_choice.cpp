// Which launch a call with a mask gets on Hopper: its path, its tile, and how its tiles are dealt;
// the same by keywords and as an expression.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "jit/attention/problem.h"
#include "jit/attention/sm90_config.h"
#include "jit/op/family.h"
#include "kiln/variant.h"
#include "templates/attention/params.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;

namespace {

struct Shape {
  int batch, len_q, len_kv, heads, dim = 128;
};

struct Launch {
  std::string path;
  int row, splits, heads_paired;

  bool operator==(const Launch&) const = default;
};

Launch launch_of(const Shape& shape, const AttentionOptions& options) {
  const FakeDriver fake;
  const auto view = [&](std::uintptr_t place, int length) {
    return contiguous_view(reinterpret_cast<void*>(place), DType::bf16, 0, shape.batch, length,
                           shape.heads, shape.dim);
  };
  const TensorView q = view(1ull << 40, shape.len_q), out = view(2ull << 40, shape.len_q);
  const TensorView k = view(3ull << 40, shape.len_kv), v = view(4ull << 40, shape.len_kv);
  AttentionProblem problem;
  check_attention(q, k, v, out, TensorView{}, options, problem);
  resolve(problem, device_of(0), true);
  const Step& step = problem.recipe.first();
  AttentionParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  return {step.spec.kernel().path, step.spec.row(), step.splits, params.heads_paired};
}

// `left` < 0: causal without a window.
Launch launch_of(const Shape& shape, int left) {
  AttentionOptions options;
  options.causal = true;
  if (left >= 0) options.window_left = left;
  return launch_of(shape, options);
}

// The parameters of the mask are called x, y, ..
Launch launch_of(const Shape& shape, const std::string& mask, std::vector<double> numbers,
                 bool causal = false) {
  VariantDefinition definition;
  definition.mask = mask;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    definition.params.push_back({std::string(1, static_cast<char>('x' + i)), DType::i32});
  }
  const BoundVariant bound = Variant(definition).bind(std::move(numbers), {});
  AttentionOptions options;
  options.causal = causal;
  options.variant = &bound;
  return launch_of(shape, options);
}

constexpr Shape kShapes[] = {
    {.batch = 16, .len_q = 1024, .len_kv = 1024, .heads = 16},
    {.batch = 4, .len_q = 4096, .len_kv = 4096, .heads = 16},
    {.batch = 4, .len_q = 4096, .len_kv = 4096, .heads = 32, .dim = 64},
    {.batch = 3, .len_q = 5000, .len_kv = 5000, .heads = 24},
    {.batch = 1, .len_q = 512, .len_kv = 131072, .heads = 32},
};

}  // namespace

TEST_CASE("A window as wide as the keys is dealt as causal tiles are") {
  const Shape prompts{.batch = 16, .len_q = 1024, .len_kv = 1024, .heads = 16};
  const Launch causal = launch_of(prompts, -1);
  CHECK(causal.heads_paired > 0);
  for (const int left : {1023, 1024, 4096}) {
    CHECK(launch_of(prompts, left).heads_paired == causal.heads_paired);
  }
  CHECK(launch_of(prompts, 1022).heads_paired == 0);
}

TEST_CASE("Windows get tiles of fewer keys, and wide ones those of long masks") {
  const auto tile_of = [](const Launch& launch) {
    return tile_name(attention_sm90_configs()[static_cast<std::size_t>(launch.row)]);
  };
  for (const int dim : {96, 128}) {
    CAPTURE(dim);
    const Shape prompts{.batch = 4, .len_q = 4096, .len_kv = 4096, .heads = 16, .dim = dim};
    CHECK(tile_of(launch_of(prompts, 447)) == "128x64x3");
    CHECK(tile_of(launch_of(prompts, 448)) == "192x64x2");
    CHECK(tile_of(launch_of(prompts, 1535)) == "192x64x2");
    CHECK(tile_of(launch_of(prompts, 1536)) == "192x80x2");
    CHECK(tile_of(launch_of(prompts, "q - kv < x", {300}, true)) == "128x64x3");
    AttentionOptions softcap;
    softcap.causal = true, softcap.window_left = 300, softcap.softcap = 30;
    CHECK(tile_of(launch_of(prompts, softcap)) == "128x128x2");
    const Shape chunk{.batch = 4, .len_q = 700, .len_kv = 4096, .heads = 16, .dim = dim};
    CHECK(tile_of(launch_of(chunk, 1023)) == "128x128x2");
    // These see all keys.
    const Shape triangles{.batch = 16, .len_q = 1024, .len_kv = 1024, .heads = 16, .dim = dim};
    CHECK(tile_of(launch_of(triangles, 1023)) == "128x128x2");
    CHECK(tile_of(launch_of(triangles, -1)) == "128x128x2");
  }
}

TEST_CASE("Causal tiles of up to 1.5k keys have the rows that pad less") {
  const auto rows_of = [](int length) {
    const Launch launch =
        launch_of({.batch = 10, .len_q = length, .len_kv = length, .heads = 16}, -1);
    return attention_sm90_configs()[static_cast<std::size_t>(launch.row)].block_q;
  };
  for (const int length : {576, 960, 1100, 1152, 1344, 1500, 1536, 1600}) {
    CAPTURE(length);
    CHECK(rows_of(length) == 192);
  }
  for (const int length : {300, 384, 512, 1024, 1200, 1280, 1408}) {
    CAPTURE(length);
    CHECK(rows_of(length) == 128);
  }
}

TEST_CASE("Few queries that see a narrow window are computed by Hopper's kernels") {
  const Shape chunk{.batch = 1, .len_q = 512, .len_kv = 65536, .heads = 8};
  CHECK(launch_of(chunk, 1024).path == "sm_90a");
  const Shape few{.batch = 1, .len_q = 512, .len_kv = 1024, .heads = 8};
  CHECK(launch_of(few, 1024).path == "portable");
}

TEST_CASE("A window as an expression is launched as the keyword's is") {
  for (const Shape& shape : kShapes) {
    for (const int left : {100, 255, 300, 700, 1024, 4096, 200000}) {
      CAPTURE(shape.len_q, shape.len_kv, shape.dim, left);
      const Launch built_in = launch_of(shape, left);
      if (built_in.path == "portable") continue;  // it has other rows for users' code
      const double size = left + 1;
      CHECK(launch_of(shape, "kv <= q && q - kv < x", {size}) == built_in);
      CHECK(launch_of(shape, "!(kv > q) and x > q - kv", {size}) == built_in);
      // Of flex_attention, which counts rows.
      const std::string shift = std::to_string(shape.len_kv - shape.len_q);
      CHECK(launch_of(shape, "row + " + shift + " - kv <= x && kv <= row + " + shift, {size - 1}) ==
            built_in);
      CHECK(launch_of(shape, "q - kv < x", {size}, true) == built_in);
      if (built_in.heads_paired != 0) continue;
      // A sum that may overflow leaves it a test of each pair, perhaps in another tile.
      CHECK(launch_of(shape, "q - kv - x <= y && q >= kv", {1, size - 2}).heads_paired == 0);
    }
  }
}

TEST_CASE("A causal mask as an expression is launched as the keyword's is") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.len_q, shape.len_kv, shape.dim);
    const Launch built_in = launch_of(shape, -1);
    if (built_in.path == "portable") continue;
    CHECK(launch_of(shape, "kv <= q", {}) == built_in);
    CHECK(launch_of(shape, "q - kv >= x", {0}) == built_in);
  }
}

TEST_CASE("Numbers that no window has are no matter to the choice") {
  const Shape shape = kShapes[1];
  for (const double number : {-2147483647.0, -1.0, 0.0, 2147483647.0}) {
    for (const char* const mask : {"q - kv < x", "kv <= q && q - kv <= x", "kv - q == x",
                                   "q - kv > x", "x - q <= -kv", "kv <= q || kv < x"}) {
      CAPTURE(number, mask);
      CHECK(launch_of(shape, mask, {number}).path == "sm_90a");
    }
  }
}

TEST_CASE("Code of a user that hides nothing is dealt as full attention is") {
  VariantDefinition definition;
  definition.logits = "logit * 2";
  const BoundVariant bound = Variant(definition).bind({}, {});
  AttentionOptions options;
  options.variant = &bound;
  CHECK(launch_of(kShapes[1], options).heads_paired == -1);
  options.causal = true;
  CHECK(launch_of(kShapes[1], options).heads_paired > 0);
}

TEST_CASE("A list's windows are known by the numbers of each") {
  VariantDefinition scaled, window, causal;
  scaled.params = {{"f", DType::f32}};
  scaled.logits = "logit * f";
  window.params = {{"unused", DType::i32}, {"left", DType::i32}};
  window.mask = "q - kv <= left";
  causal.mask = "kv <= q";
  const auto pair_of = [&](double left) {
    const BoundVariant bound =
        compose({Variant(scaled).bind({70000.0}, {}), Variant(window).bind({3, left}, {}),
                 Variant(causal).bind({}, {})});
    AttentionOptions options;
    options.variant = &bound;
    return launch_of(kShapes[1], options);
  };
  CHECK(pair_of(300).heads_paired == 0);
  CHECK(pair_of(70000).heads_paired > 0);
  CHECK(pair_of(300).row != pair_of(70000).row);
}

TEST_CASE("Tiles of masks that the host cannot judge are dealt of all heads if these are few") {
  const Shape few{.batch = 1, .len_q = 16384, .len_kv = 16384, .heads = 16};
  for (const char* const mask : {"kv <= q || kv < x", "q / x == kv / x", "kv < x || q - kv < x"}) {
    CAPTURE(mask);
    CHECK(launch_of(few, mask, {64}).heads_paired == 0);
    CHECK(launch_of(few, mask, {64}, true).heads_paired == 0);
    CHECK(launch_of(kShapes[1], mask, {64}).heads_paired > 0);
  }
  CHECK(launch_of(few, "kv <= q", {}).heads_paired == launch_of(few, -1).heads_paired);
}
