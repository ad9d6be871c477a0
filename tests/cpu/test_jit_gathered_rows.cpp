// How the sm_90a kernel counts the rows of pages that its warps gather.
#include <cstring>

#include "jit/attention/gathered_rows.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

struct Cache {
  int pages, rows;
  long long k_page, k_row, v_page, v_row;  // strides in elements
};

Step step_of(const Cache& cache) {
  AttentionVarlenParams params{};
  params.entries_k = cache.pages, params.rows_k = cache.rows;
  params.call.k_batch = cache.k_page, params.call.k_row = cache.k_row;
  params.call.v_batch = cache.v_page, params.call.v_row = cache.v_row;
  Step step;
  step.arguments.set_params(params);
  return step;
}

AttentionVarlenParams params_of(const Step& step) {
  AttentionVarlenParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  return params;
}

}  // namespace

TEST_CASE("places lead to the rows of keys and values", "[attention]") {
  const struct {
    Cache cache;
    int run_rows;
  } cases[] = {
      {{1000, 1, 1024, 7, 512, 9}, 40},             // pages of 1: no row's stride counts
      {{1000, 4, 4096, 1024, 4096, 1024}, 40},      // rows before heads
      {{1000, 4, 4096, 128, 2048, 64}, 0},          // heads before rows, narrower values
      {{1000, 4, 4104, 1024, 4104, 1024}, 0},       // 8 elements between pages
      {{1000, 4, 5120, 1024, 2560, 512}, 0},        // a row between pages
      {{1, 4096, 3, 1024, 5, 512}, 0},              // one page: no page's stride counts
      {{2000000, 6, 768, 128, 768, 128}, 40},       // 3 GB
      {{30000000, 1, 1024, 1024, 1024, 1024}, 40},  // 2^35 elements, nearly
  };
  for (const auto& [cache, run_rows] : cases) {
    Step step = step_of(cache);
    REQUIRE(gather_rows(step, 80));
    const AttentionVarlenParams params = params_of(step);
    CHECK(params.run_rows == run_rows);
    const auto reached = [&](unsigned page, unsigned row, unsigned pieces) {
      return 8LL * ((page * params.page_places + row * params.row_places) * pieces);
    };
    for (const int page : {0, cache.pages / 2, cache.pages - 1}) {
      for (const int row : {0, cache.rows - 1}) {
        CHECK(reached(page, row, params.key_pieces) == page * cache.k_page + row * cache.k_row);
        CHECK(reached(page, row, params.value_pieces) == page * cache.v_page + row * cache.v_row);
      }
    }
  }
}

TEST_CASE("caches whose places are none are refused", "[attention]") {
  const Cache cases[] = {
      {1000, 4, 4096, 1024, 4096, 128},        // values have heads before rows
      {1000, 4, 4104, 1024, 4096, 1024},       // only keys have a gap between pages
      {40000000, 1, 1024, 1024, 1024, 1024},   // more than 2^32 pieces of 16 bytes
      {40000000, 1, 8, 8, 1024, 1024},         // of values
      {2000000000, 4, 4104, 1024, 4104, 1024}  // more than 2^32 places
  };
  for (const Cache& cache : cases) {
    Step step = step_of(cache);
    CHECK_FALSE(gather_rows(step, 80));
  }
}

}  // namespace kiln
