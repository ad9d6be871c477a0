// The templates' own checks of their Config: a row that cannot work is one sentence, and a row at
// the edge of what is allowed still compiles without spilling. Real NVRTC, no GPU.
#include <string>
#include <string_view>
#include <vector>

#include "jit/compile/compiler.h"
#include "jit/compile/embedded.h"
#include "tests/support/catch.h"

namespace kiln {
namespace {

struct Change {
  std::string from, to;
};

constexpr std::string_view kAttention = R"(#include "/kiln/attention/flash_attention.cuh"
struct Config {
  using Element = kiln::bf16;
  static constexpr int kHeadDim = 64;
  static constexpr int kHeadDimV = 64;
  static constexpr int kBlockQ = 64;
  static constexpr int kBlockKv = 64;
  static constexpr int kWarps = 4, kTeams = 1, kPartners = 1, kStages = 2;
  static constexpr bool kPacked = false, kSplits = false;
  static constexpr bool kAligned = true;
};
using Variant = kiln::Variants<>;
extern "C" __global__ void __launch_bounds__(Config::kWarps * 32, 1)
kiln_kernel(const __grid_constant__ kiln::AttentionArgs<Variant> args) {
  kiln::flash_attention<Config, Variant>(args);
}
)";

constexpr std::string_view kGemm = R"(#include "/kiln/gemm/gemm.cuh"
struct Config {
  using Input = kiln::f16;
  using Output = kiln::f16;
  using Accumulator = float;
  using Bias = kiln::f16;
  using Residual = kiln::f16;
  static constexpr kiln::Major kMajorA = kiln::Major::k;
  static constexpr kiln::Major kMajorB = kiln::Major::k;
  static constexpr int kBlockM = 64, kBlockN = 64, kBlockK = 32, kStages = 3;
  static constexpr int kWarpsM = 2, kWarpsN = 2;
  static constexpr bool kAlignedLoads = true;
  static constexpr bool kAlignedStores = true;
  static constexpr bool kOverlaps = false;
  static constexpr kiln::Scale kScaleA = kiln::Scale::none, kScaleB = kiln::Scale::none;
  static constexpr kiln::Gate kGate = kiln::Gate::none;
  static constexpr kiln::Grouping kGrouping = kiln::Grouping::none;
};
using Epilogue = kiln::StandardEpilogue<kiln::Activation::none, false, false>;
extern "C" __global__ void __launch_bounds__(Config::kWarpsM * Config::kWarpsN * 32, 1)
kiln_kernel(const __grid_constant__ kiln::GemmParams args) {
  kiln::gemm<Config, Epilogue>(args);
}
)";

CompileResult compile_template(std::string_view source, const Change& change) {
  set_nvrtc_search({.python_paths = {KILN_TEST_SITE_PACKAGES}});
  std::string text(source);
  if (!change.from.empty()) {
    const std::size_t at = text.find(change.from);
    REQUIRE(at != std::string::npos);
    text.replace(at, change.from.size(), change.to);
  }
  std::vector<SourceFile> headers;
  for (const EmbeddedFile& file : embedded_templates()) headers.push_back({file.name, file.text});
  return compile({.name = "/kiln/kernel.cu",
                  .source = text,
                  .headers = headers,
                  .arch = "sm_80",
                  .entry = "kiln_kernel"});
}

// Whether the change fails to compile with exactly this sentence.
bool refused(std::string_view source, const Change& change, const std::string& sentence) {
  try {
    compile_template(source, change);
  } catch (const CompileError& error) {
    INFO(error.what());
    const std::string text = error.what();
    const std::size_t first = text.find("static assertion failed");
    CHECK(first != std::string::npos);
    return text.find("static assertion failed with \"" + sentence + "\"") != std::string::npos;
  }
  return false;
}

TEST_CASE("the attention template refuses a Config in one sentence") {
  CHECK(refused(kAttention, {"kHeadDim = 64", "kHeadDim = 60"},
                "flash_attention: kHeadDim must be a multiple of 8, 8 to 512"));
  CHECK(refused(kAttention, {"kHeadDimV = 64", "kHeadDimV = 520"},
                "flash_attention: kHeadDimV must be a multiple of 8, 8 to 512"));
  CHECK(refused(kAttention, {"kBlockKv = 64", "kBlockKv = 24"},
                "flash_attention: kBlockKv must be a multiple of 16"));
  CHECK(refused(kAttention, {"kiln::bf16", "float"},
                "flash_attention: Element must be kiln::f16 or kiln::bf16"));
  CHECK(
      refused(kAttention, {"kBlockQ = 64", "kBlockQ = 96"},
              "flash_attention: kBlockQ must be 16 or 32 rows for each group of kPartners warps"));
  CHECK(refused(kAttention, {"kTeams = 1", "kTeams = 3"},
                "flash_attention: kTeams must divide kWarps into teams of equally many"));
  CHECK(refused(kAttention, {"kPartners = 1", "kPartners = 4"},
                "flash_attention: partners need 16 keys and 64 columns each, or multiples"));
  const std::string between =
      ";\n  static constexpr int kBlockQ = 64;\n  static constexpr int kBlockKv = 64;\n"
      "  static constexpr int kWarps = 4, kTeams = 1, kPartners = ";
  CHECK(refused(kAttention, {"kHeadDimV = 64" + between + "1", "kHeadDimV = 120" + between + "2"},
                "flash_attention: partners have no columns of padding: kHeadDimV must be a "
                "multiple of 64 for each"));
  CHECK(refused(kAttention, {"kStages = 2", "kStages = 0"},
                "flash_attention: kStages must be 1 or more"));
}

TEST_CASE("the GEMM template refuses a Config in one sentence") {
  CHECK(refused(kGemm, {"kStages = 3", "kStages = 1"}, "gemm: kStages must be 2 to 8"));
  CHECK(refused(kGemm, {"kBlockM = 64", "kBlockM = 40"},
                "gemm: kBlockM must be a multiple of 16 * kWarpsM"));
  CHECK(refused(kGemm, {"kBlockK = 32", "kBlockK = 8"},
                "gemm: kBlockK must be a multiple of 64 bytes of Input"));
  CHECK(refused(kGemm, {"using Input = kiln::f16", "using Input = int"},
                "gemm: Input must be f16, bf16 or float (tf32)"));
}

TEST_CASE("the smallest configs compile without local memory") {
  for (const Change& change : {Change{"kHeadDim = 64", "kHeadDim = 8"},
                               Change{"kBlockKv = 64", "kBlockKv = 16"}, Change{}}) {
    const CompileResult result = compile_template(kAttention, change);
    CHECK(result.resources.stack_bytes == 0);
    CHECK(result.resources.warnings.empty());
    CHECK(result.cubin.size() > 1000);
  }
  for (const Change& change : {Change{"kStages = 3", "kStages = 2"},
                               Change{"Accumulator = float", "Accumulator = kiln::f16"}}) {
    const CompileResult result = compile_template(kGemm, change);
    CHECK(result.resources.stack_bytes == 0);
    CHECK(result.cubin.size() > 1000);
  }
}

}  // namespace
}  // namespace kiln
