// The closed table of the kernels that merge partial results.
#include "jit/merge_states/config.h"

namespace kiln {
namespace {

// clang-format off: a row a line

// In the order of the accesses that a row of columns may have: the first that is wide enough, and for
// as many parts, serves.
// A thread has up to four accesses of 16 bytes in flight, so half of the threads that a
// multiprocessor of an H200 can hold keep its share of the memory busy.
constexpr MergeConfig kMergeConfigs[] = {
    {.lanes = 4, .vectors = 2, .parts = 2, .few = true, .reason = "128 bytes of two parts: as many in flight as of four"},
    {.lanes = 8, .vectors = 1, .parts = 4, .few = false, .reason = "128 bytes: head dim 64"},
    {.lanes = 8, .vectors = 2, .parts = 2, .few = true, .reason = "256 bytes of two parts: as many in flight as of four"},
    {.lanes = 16, .vectors = 1, .parts = 4, .few = false, .reason = "256 bytes: head dim 128"},
    {.lanes = 16, .vectors = 2, .parts = 2, .few = false, .reason = "512 bytes: head dim 256, or 128 in fp32"},
    {.lanes = 32, .vectors = 2, .parts = 2, .few = false, .reason = "1 KB: head dim 512"},
    {.lanes = 32, .vectors = 4, .parts = 2, .few = false, .reason = "2 KB, and wider rows by turns; single elements of head dim 128"},
};
// clang-format on

}  // namespace

std::span<const MergeConfig> merge_configs() { return kMergeConfigs; }

}  // namespace kiln
