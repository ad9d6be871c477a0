// The config tables are closed: whatever the sizes and the machine, only listed kernels are used.
#include <algorithm>
#include <map>
#include <set>

#include "jit/attention/config.h"
#include "jit/attention/family.h"
#include "jit/attention/paths.h"
#include "jit/gemm/config.h"
#include "jit/gemm/family.h"
#include "jit/op/arch.h"
#include "tests/support/catch.h"

using namespace kiln;

namespace {

template <class Row>
bool is_listed(const std::vector<Row>& rows, Row row) {
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

std::vector<AttentionTraits> all_head_dims() {
  std::vector<AttentionTraits> all{attention(512, 512), with_variant(512, 512)};
  for (int dim = 8; dim <= 256; dim += 8) {
    all.insert(all.end(), {attention(dim, 8), attention(dim, dim), attention(dim, 256),
                           with_variant(dim, 256)});
  }
  return all;
}

}  // namespace

TEST_CASE("sweep: attention never leaves its rows") {
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    for (const AttentionTraits& traits : all_head_dims()) {
      const auto rows = attention_rows(traits, arch);
      REQUIRE(rows.size() >= 2);
      for (int row : rows) REQUIRE(row >= 0);
      for (std::int64_t len_q = 0; len_q <= 16384; len_q = len_q < 300 ? len_q + 1 : len_q * 2) {
        for (int sm_count : {132, 114, 78, 16}) {
          const AttentionExtent extent{3, 8, 2, len_q, 40 * len_q + 1};
          const AttentionChoice choice = choose_attention(traits, arch, extent, sm_count, true);
          REQUIRE(is_listed(rows, choice.row));
          REQUIRE(choice.splits >= 1);
          REQUIRE((choice.splits == 1 || attention_configs()[choice.row].splits));
          REQUIRE(choose_attention(traits, arch, extent, sm_count, false).splits == 1);
        }
      }
    }
  }
}

namespace {

enum class Kind { decode, few, narrow, many };
Kind kind_of(const AttentionChoice& choice) {
  const AttentionConfig& config = attention_configs()[static_cast<std::size_t>(choice.row)];
  return config.teams > 1      ? Kind::decode
         : config.splits       ? Kind::few
         : config.max_keys > 0 ? Kind::narrow
                               : Kind::many;
}

// On an H200.
AttentionChoice choice_of(const AttentionExtent& extent, bool may_split = true, int dim = 128) {
  return choose_attention(attention(dim, dim), arch_index({9, 0}), extent, 132, may_split);
}

}  // namespace

TEST_CASE("attention: the rows of the heads of a KV head choose the kind of tile") {
  for (int dim : {64, 128, 256}) {
    for (std::int64_t group : {1, 4, 5, 7, 16}) {
      for (std::int64_t len_q : {1, 2, 3, 5, 16, 17, 64, 65}) {
        // So many tiles that nothing is split.
        const AttentionChoice choice = choice_of({200, 2 * group, 2, len_q, 4096}, true, dim);
        const std::int64_t rows = len_q * group;
        CHECK(choice.splits == 1);
        CHECK(kind_of(choice) == (rows <= 16 ? Kind::decode : rows <= 64 ? Kind::few : Kind::many));
      }
    }
  }
}

TEST_CASE("attention: blocks share the keys of a decoding tile where tiles are few") {
  const auto splits = [](std::int64_t batch, std::int64_t keys) {
    const AttentionChoice choice = choice_of({batch, 32, 8, 1, keys});
    CHECK(kind_of(choice) == Kind::decode);
    return choice.splits;
  };
  CHECK(splits(1, 8192) == 16);
  CHECK(splits(4, 8192) == 4);
  CHECK(splits(10, 8192) == 2);  // 80 tiles would leave 52 multiprocessors idle
  CHECK(splits(12, 8192) == 1);
  CHECK(splits(64, 8192) == 1);
  // Every split has as many keys as its warps take at once.
  CHECK(splits(1, 0) == 1);
  CHECK(splits(1, 127) == 1);
  CHECK(splits(1, 128) == 2);
  CHECK(splits(1, 300) == 4);
  CHECK(choice_of({1, 1, 1, 1, 1 << 20}).splits == 128);
  CHECK(choice_of({1, 32, 8, 1, 8192}, /*may_split=*/false).splits == 1);
}

TEST_CASE("attention: a long chunk with few tiles uses the row for few queries and splits") {
  const AttentionChoice chunk = choice_of({1, 4, 4, 512, 8192});
  CHECK(kind_of(chunk) == Kind::few);
  CHECK(chunk.splits == 8);
  CHECK(choice_of({1, 4, 4, 512, 600}).splits == 2);
  // With nothing to share, or nowhere to meet, or tiles for every multiprocessor, wide tiles.
  CHECK(kind_of(choice_of({1, 4, 4, 512, 511})) == Kind::many);
  CHECK(kind_of(choice_of({1, 4, 4, 512, 8192}, /*may_split=*/false)) == Kind::many);
  CHECK(kind_of(choice_of({1, 32, 8, 2048, 8192})) == Kind::many);
}

TEST_CASE("attention: windows of few keys have small tiles") {
  for (const auto& [dim, most] : {std::pair{64, 512}, std::pair{128, 256}, std::pair{256, 0}}) {
    AttentionTraits traits = attention(dim, dim);
    traits.mask = Mask::window;
    const auto kind = [&](std::int64_t keys) {
      const int arch = arch_index({9, 0});
      return kind_of(choose_attention(traits, arch, {4, 64, 8, 4096, keys}, 132, true));
    };
    CHECK(kind(std::max(most, 1)) == (most > 0 ? Kind::narrow : Kind::many));
    CHECK(kind(most + 1) == Kind::many);
  }
}

TEST_CASE("attention: a window limits the keys that count for splits") {
  const auto keys = [](std::int64_t left, std::int64_t right, bool causal, int len_q = 1) {
    const TensorView q =
        contiguous_view(reinterpret_cast<void*>(0x10000), DType::bf16, 0, 1, len_q, 32, 128);
    const TensorView k =
        contiguous_view(reinterpret_cast<void*>(1 << 30), q.dtype, 0, 1, 8192, 8, 128);
    AttentionOptions options;
    options.window_left = left;
    options.window_right = right;
    options.causal = causal;
    AttentionProblem problem;
    check_attention(q, k, k, q, {}, options, problem);
    return problem.keys;
  };
  CHECK(keys(-1, -1, false) == 8192);
  CHECK(keys(-1, -1, true) == 8192);
  CHECK(keys(1023, -1, true) == 1024);
  CHECK(keys(100, 20, false, 64) == 121);
  // The last query is that of the last key.
  CHECK(keys(100, 20, false) == 101);
  CHECK(keys(100, -1, false) == 101);
  CHECK(keys(100, -1, false, 64) == 164);
  CHECK(keys(std::int64_t{1} << 40, std::int64_t{1} << 40, false) == 8192);
  CHECK(choice_of({1, 32, 8, 1, keys(1023, -1, true)}).splits == 16);
  CHECK(choice_of({1, 32, 8, 1, keys(127, -1, true)}).splits == 2);
  CHECK(choice_of({1, 32, 8, 1, keys(100, -1, true)}).splits == 1);
}

TEST_CASE("gemm splits K where tiles are few, and the tiles of a last wave that is nearly empty") {
  GemmTraits traits;
  traits.input = DType::bf16;
  traits.loads = Access::elements;  // the portable rows
  const int arch = arch_index({9, 0});
  const auto choice = [&](const GemmExtent& extent, bool may_split) {
    return choose_gemm(traits, arch, extent, 132, may_split);
  };
  const GemmExtent few{64, 64, 8192}, nearly_empty{512, 4608, 3584}, full{4096, 4096, 4096};
  CHECK(choice(few, true).splits > 1);
  CHECK(choice(few, true).whole_tiles == 0);
  CHECK(choice(nearly_empty, true).splits > 1);
  CHECK(choice(nearly_empty, true).whole_tiles == 132);
  CHECK(choice(full, true).splits == 1);
  for (const GemmExtent& extent : {few, nearly_empty, full}) {
    CHECK(choice(extent, false).splits == 1);
    CHECK(choice(extent, false).whole_tiles == 0);
  }
  // Nothing to split.
  for (const GemmExtent& extent : {GemmExtent{1, 1, 1}, GemmExtent{64, 64, 0}}) {
    CHECK(choice(extent, true).splits == 1);
  }
}

TEST_CASE("sweep: gemm never leaves its rows, for every M and machine") {
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    for (DType dtype : {DType::bf16, DType::f32}) {
      GemmTraits traits;
      traits.input = dtype;
      const auto rows = gemm_rows(traits, arch);
      REQUIRE_FALSE(rows.empty());
      std::set<std::pair<const Template*, int>> used;
      for (int sm_count : {132, 114, 78, 16}) {
        for (std::int64_t m = 1; m <= 16384; m += m < 512 ? 1 : 61) {
          for (std::int64_t n : {1, 128, 4096, 28672}) {
            for (std::int64_t batch : {1, 7}) {
              const GemmChoice choice =
                  choose_gemm(traits, arch, {m, n, 4096, batch}, sm_count, m % 2 == 0);
              used.insert({choice.row.kernel, choice.row.row});
              CHECK(choice.splits >= 1);
              CHECK(choice.whole_tiles % sm_count == 0);
            }
          }
        }
      }
      for (const auto& [kernel, row] : used) REQUIRE(is_listed(rows, GemmRow{kernel, row}));
      CHECK(used.size() >= 2);  // the choice depends on the problem at all
    }
  }
}

TEST_CASE("sweep: gemm of 8-bit floats never leaves its rows, which Hopper alone has") {
  GemmTraits traits;
  traits.input = DType::f8_e4m3;
  const int hopper = arch_index({9, 0});
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    CHECK(gemm_rows(traits, arch).empty() == (arch != hopper));
  }
  for (const bool fast : {false, true}) {
    traits.fast = fast;
    const auto rows = gemm_rows(traits, hopper);
    for (int sm_count : {132, 114, 78, 16}) {
      for (std::int64_t m = 1; m <= 16384; m += m < 512 ? 1 : 61) {
        for (std::int64_t k : {1, 4096}) {
          const GemmChoice choice = choose_gemm(traits, hopper, {m, 4096, k}, sm_count, true);
          REQUIRE(is_listed(rows, choice.row));
          REQUIRE(choice.row.is_sm90());
        }
      }
    }
  }
  traits.major_b = Major::mn;
  CHECK(gemm_rows(traits, hopper).empty());
  traits.major_b = Major::k, traits.loads = Access::elements;
  CHECK(gemm_rows(traits, hopper).empty());
}

namespace {

constexpr int kShifts[] = {0, 8, 2};  // bytes off a 16-byte boundary
void* at(int shift) { return reinterpret_cast<void*>(std::uintptr_t(0x10000 + shift)); }
TensorView apart(TensorView tensor) {  // as a result lies, which overlaps nothing
  tensor.data = static_cast<char*>(tensor.data) + (std::uintptr_t(1) << 60);
  return tensor;
}

// A matrix whose rows, or columns, are contiguous with `pad` elements between them.
TensorView matrix(DType dtype, std::int64_t rows, std::int64_t cols, bool by_rows, int pad,
                  int shift) {
  TensorView view = contiguous_view(at(shift), dtype, 0, rows, cols);
  view.strides[0] = by_rows ? cols + pad : 1;
  view.strides[1] = by_rows ? 1 : rows + pad;
  return view;
}

}  // namespace

TEST_CASE("sweep: whatever the tensors, gemm runs kernels of a set that is known beforehand") {
  const int arch = arch_index({9, 0});
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    GemmOptions options;
    options.allow_tf32 = dtype == DType::f32;
    // Layouts and alignments are all that tensors of one dtype may change.
    std::set<std::size_t> known;
    for (int bits = 0; bits < 4 * 3 * 3; ++bits) {
      GemmTraits traits;
      traits.input = traits.output = dtype;
      traits.major_a = bits & 1 ? Major::mn : Major::k;
      traits.major_b = bits & 2 ? Major::mn : Major::k;
      traits.loads = static_cast<Access>(bits / 4 % 3);
      traits.stores = static_cast<Access>(bits / 12);
      for (const GemmRow row : gemm_rows(traits, arch)) {
        known.insert(gemm_specialization(arch, row, traits).hash());
      }
    }
    std::set<std::size_t> used;
    for (int m = 1; m <= 16384; m += m < 40 ? 1 : m / 3) {
      for (int form = 0; form < 4 * 3 * 3; ++form) {
        const int shift = dtype == DType::f32 ? kShifts[form % 3] & ~3 : kShifts[form % 3];
        const int pad = form / 3 % 3, layout = form / 9, n = 128 + 8 * pad, k = 64 + pad;
        const TensorView a = matrix(dtype, m, k, layout & 1, pad, shift);
        const TensorView b = matrix(dtype, k, n, layout & 2, pad, 0);
        const TensorView out = apart(matrix(dtype, m, n, true, pad, shift));
        GemmProblem problem;
        check_gemm(a, b, out, options, problem);
        for (int sm_count : {132, 114, 78, 16}) {
          const GemmRow row = choose_gemm(problem.traits, arch, {m, n, k, 1}, sm_count, true).row;
          used.insert(gemm_specialization(arch, row, problem.traits).hash());
        }
      }
    }
    CHECK(used.size() > 20);
    CHECK(std::includes(known.begin(), known.end(), used.begin(), used.end()));
  }
}

TEST_CASE("sweep: whatever the tensors, attention runs kernels of a set that is known beforehand") {
  const int arch = arch_index({9, 0});
  for (int dim : {8, 64, 72, 128, 192, 256, 512}) {
    std::set<std::size_t> known, used;
    for (int bits = 0; bits < 6; ++bits) {
      AttentionTraits traits = attention(dim, dim);
      traits.set_dtype(DType::bf16);
      traits.mask = static_cast<Mask>(bits / 2);
      traits.aligned = bits & 1;
      for (int row : attention_rows(traits, arch)) {
        known.insert(Specialization(kFlashAttention, arch, row, traits).hash());
      }
    }
    for (int length = 1; length <= 16384; length += length < 40 ? 1 : length / 3) {
      for (int form = 0; form < 3 * 3 * 2 * 3; ++form) {
        TensorView q =
            contiguous_view(at(kShifts[form % 3]), DType::bf16, 0, 1 + form % 2, length, 4, dim);
        q.strides[1] += form / 3 % 3;  // rows further apart
        q.strides[0] += 3 * length;
        AttentionOptions options;
        options.layout = form / 9 % 2 ? AttentionLayout::bhsd : AttentionLayout::bshd;
        options.causal = form / 18 == 1;
        if (form / 18 == 2) options.window_left = length / 2;
        AttentionProblem problem;
        check_attention(q, q, q, apart(q), {}, options, problem);
        for (int sm_count : {132, 114, 78, 16}) {
          const AttentionExtent extent{problem.batch, problem.heads, problem.heads_kv,
                                       problem.len_q, problem.keys};
          const int row = choose_attention(problem.traits, arch, extent, sm_count, true).row;
          used.insert(Specialization(kFlashAttention, arch, row, problem.traits).hash());
        }
      }
    }
    CHECK(used.size() >= 6);
    CHECK(std::includes(known.begin(), known.end(), used.begin(), used.end()));
  }
}

TEST_CASE("every row fits the shared memory of every arch that lists it") {
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    const auto specs = all_samples(arch);
    CHECK(specs.size() > 100);
    for (const Specialization& spec : specs) {
      const Arch& limits = arch_table()[static_cast<std::size_t>(arch)];
      const Footprint footprint = spec.kernel().footprint(spec);
      REQUIRE(footprint.dynamic_shared_bytes <= static_cast<unsigned>(limits.shared_bytes));
    }
  }
}

TEST_CASE("every row of the tables is used somewhere") {
  std::map<const Template*, std::set<int>> seen;
  for (int arch = 0; arch < static_cast<int>(arch_table().size()); ++arch) {
    for (const Specialization& spec : all_samples(arch)) seen[&spec.kernel()].insert(spec.row());
    for (int dim = 8; dim <= 512; dim += dim < 256 ? 8 : 256) {
      for (int row : attention_rows(with_variant(dim, dim), arch)) {
        seen[&kFlashAttention].insert(row);
      }
      AttentionTraits ragged = attention(dim, dim);
      ragged.storage = Storage::ragged;
      for (const DType stored : {ragged.q, DType::f8_e4m3}) {
        ragged.k = ragged.v = stored;
        for (int row : varlen_rows(ragged, arch)) seen[&kFlashAttention].insert(row);
      }
    }
  }
  CHECK(seen[&kFlashAttention].size() == attention_configs().size());
  CHECK(seen[&kGemmPortable].size() == gemm_configs().size());
  CHECK(seen[&kGemmSm90].size() == gemm_sm90_configs().size());
}

TEST_CASE("specializations compare and hash by everything that is baked") {
  const AttentionTraits base = attention(64, 64);
  AttentionTraits other = base;
  other.softcap = true;
  const auto of = [](int arch, int row, const AttentionTraits& traits) {
    return Specialization(kFlashAttention, arch, row, traits);
  };
  const Specialization a = of(3, 1, base), b = of(3, 1, base), c = of(3, 1, other);
  CHECK(a == b);
  CHECK(a.hash() == b.hash());
  for (const Specialization& x :
       {c, of(2, 1, base), of(3, 0, base), Specialization(kGemmPortable, 3, 1, base)}) {
    CHECK_FALSE(a == x);
    CHECK(a.hash() != x.hash());
  }
  CHECK(c.traits_as<AttentionTraits>() == other);
}
