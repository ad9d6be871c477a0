// The config tables are closed: whatever the sizes and the machine, only listed kernels are used.
#include <set>

#include "jit/arch.h"
#include "jit/config.h"
#include "tests/support/catch.h"

using namespace kiln;

namespace {

bool is_listed(const std::vector<int>& rows, int row) {
  return std::find(rows.begin(), rows.end(), row) != rows.end();
}

AttentionTraits attention(int dim, int dim_v) {
  AttentionTraits traits;
  traits.head_dim = static_cast<std::uint16_t>(dim);
  traits.head_dim_v = static_cast<std::uint16_t>(dim_v);
  return traits;
}

// With a variant of the user's: the enumeration cannot know them, the tables do.
AttentionTraits with_variant(int dim, int dim_v) {
  AttentionTraits traits = attention(dim, dim_v);
  traits.variant[0] = 1;
  return traits;
}

}  // namespace

TEST_CASE("sweep: attention never leaves its rows") {
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    for (int dim = 8; dim <= 256; dim += 8) {
      for (const AttentionTraits& traits :
           {attention(dim, 8), attention(dim, dim), attention(dim, 256), with_variant(dim, 256)}) {
        const auto rows = attention_rows(traits, arch);
        REQUIRE_FALSE(rows.empty());
        for (std::int64_t len_q = 0; len_q <= 16384; len_q = len_q < 300 ? len_q + 1 : len_q * 2) {
          REQUIRE(is_listed(rows, pick_attention_row(traits, arch, len_q)));
        }
      }
    }
  }
}

TEST_CASE("sweep: gemm never leaves its rows, for every M and machine") {
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    for (DType dtype : {DType::bf16, DType::f32}) {
      GemmTraits traits;
      traits.input = dtype;
      const auto rows = gemm_rows(traits, arch);
      REQUIRE_FALSE(rows.empty());
      std::set<int> used;
      for (int sm_count : {132, 114, 78, 16}) {
        for (std::int64_t m = 1; m <= 16384; m += m < 512 ? 1 : 61) {
          for (std::int64_t n : {1, 128, 4096, 28672}) {
            for (std::int64_t batch : {1, 7}) {
              used.insert(pick_gemm_row(traits, arch, m, n, batch, sm_count));
            }
          }
        }
      }
      for (int row : used) REQUIRE(is_listed(rows, row));
      CHECK(used.size() >= 2);  // the choice depends on the problem at all
    }
  }
}

TEST_CASE("every row fits the shared memory of every arch that lists it") {
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    const auto specs = enumerate_specializations(arch);
    CHECK(specs.size() > 100);
    for (const Specialization& spec : specs) {
      const std::size_t row = static_cast<std::size_t>(spec.row());
      const int bytes = spec.family() == Family::attention
                            ? shared_bytes(attention_configs()[row], spec.attention())
                            : shared_bytes(gemm_configs()[row]);
      REQUIRE(bytes <= arch_table()[static_cast<std::size_t>(arch)].shared_bytes);
    }
  }
}

TEST_CASE("every row of the tables is used somewhere") {
  std::set<int> attention_seen, gemm_seen;
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    for (const Specialization& spec : enumerate_specializations(arch)) {
      (spec.family() == Family::attention ? attention_seen : gemm_seen).insert(spec.row());
    }
    for (int dim = 8; dim <= 256; dim += 8) {
      for (int row : attention_rows(with_variant(dim, dim), arch)) attention_seen.insert(row);
    }
  }
  CHECK(attention_seen.size() == attention_configs().size());
  CHECK(gemm_seen.size() == gemm_configs().size());
}

TEST_CASE("specializations compare and hash by everything that is baked") {
  const AttentionTraits base = attention(64, 64);
  AttentionTraits other = base;
  other.softcap = true;
  const Specialization a(3, 1, base), b(3, 1, base), c(3, 1, other), d(2, 1, base), e(3, 0, base);
  CHECK(a == b);
  CHECK(a.hash() == b.hash());
  for (const Specialization& x : {c, d, e}) {
    CHECK_FALSE(a == x);
    CHECK(a.hash() != x.hash());
  }
  CHECK(c.attention() == other);
}

TEST_CASE("arch: devices map to the code they run") {
  const auto name = [](int major, int minor) {
    return arch_table()[static_cast<std::size_t>(arch_index({major, minor}))].name;
  };
  CHECK(name(8, 0) == "sm_80");
  CHECK(name(8, 7) == "sm_86");
  CHECK(name(9, 0) == "sm_90");
  CHECK(name(10, 3) == "sm_100");
  CHECK(name(12, 1) == "sm_120");
  CHECK_THROWS_AS(arch_index({7, 5}), std::invalid_argument);
  CHECK(parse_arch("sm_90a") == Capability{9, 0});
  CHECK(parse_arch("120") == Capability{12, 0});
  CHECK(parse_arch("sm_87") == Capability{8, 7});
  CHECK(parse_arch("sm_100f") == Capability{10, 0});
  CHECK(parse_arch("sm_121a") == Capability{12, 1});
  for (const char* bad : {"", "sm_", "sm_75", "90b", "sm_9x", "hopper", "sm_900", "sm_99", "sm_129",
                          "sm_95a", "sm_80a", "sm_90f", "sm_090", "sm_90aa", "sm_110", "sm_-90"}) {
    CHECK_THROWS_AS(parse_arch(bad), std::invalid_argument);
  }
}
