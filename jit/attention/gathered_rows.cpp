#include "jit/attention/gathered_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "templates/attention/params.h"

namespace kiln {
namespace {

// A page and a row are so many places long, and a place so many pieces of 16 bytes.
struct Places {
  long long page, row, pieces;
};

// Strides of what exists once may be anything.
Places places_of(long long pages, long long page, long long rows, long long row) {
  if (pages == 1) page = 0;
  if (rows == 1) row = 0;
  const long long elements = std::gcd(page, row);
  if (elements == 0) return {0, 0, 1};
  return {page / elements, row / elements, elements / 8};
}

// Whether the rows of all pages are equally far apart, so that one tensor map may have them.
bool are_pages_rows(const AttentionVarlenParams& params) {
  const AttentionParams& p = params.call;
  const long long rows = params.rows_k;
  return rows * params.entries_k <= 0x7fffffff &&
         (rows == 1 || (p.k_batch == rows * p.k_row && p.v_batch == rows * p.v_row));
}

}  // namespace

int page_of(const AttentionProblem& problem) {
  if (problem.traits.storage != Storage::paged) return 0;
  if (problem.padded_keys) return 1;
  int page = 0;
  constexpr std::size_t kAt = offsetof(AttentionVarlenParams, page);
  std::memcpy(&page, problem.recipe.first().arguments.bytes().data() + kAt, sizeof page);
  return page;
}

int box_rows_of(int page, int block_kv) {
  if (page == 0) return block_kv;
  const auto both = static_cast<unsigned>(page | block_kv);
  const auto rows = static_cast<int>(both & -both);  // the largest power of two that divides both
  return rows < kLeastBoxRows ? 0 : rows;
}

bool gather_rows(Step& step, int block_kv) {
  AttentionVarlenParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  const AttentionParams& p = params.call;
  const long long pages = params.entries_k, rows = params.rows_k;
  const Places keys = places_of(pages, p.k_batch, rows, p.k_row);
  const Places values = places_of(pages, p.v_batch, rows, p.v_row);
  if (keys.page != values.page || keys.row != values.row) return false;
  const long long last = (pages - 1) * keys.page + (rows - 1) * keys.row;
  if (last > 0xffffffff / std::max(keys.pieces, values.pieces)) return false;
  const auto set = [&](std::size_t offset, long long value) {
    step.arguments.set_value(offset, static_cast<unsigned>(value));
  };
  set(offsetof(AttentionVarlenParams, page_places), keys.page);
  set(offsetof(AttentionVarlenParams, row_places), keys.row);
  set(offsetof(AttentionVarlenParams, key_pieces), keys.pieces);
  set(offsetof(AttentionVarlenParams, value_pieces), values.pieces);
  const int run = are_pages_rows(params) ? block_kv / kAttentionGatheringWarps : 0;
  step.arguments.set_int(offsetof(AttentionVarlenParams, run_rows), run);
  return true;
}

}  // namespace kiln
