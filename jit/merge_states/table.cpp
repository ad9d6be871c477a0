// The closed table of the kernels that merge partial results.
#include "jit/merge_states/config.h"

namespace kiln {
namespace {

// clang-format off: a row a line

// In the order of the accesses that a row of columns may have: the first that is wide enough serves.
// A thread has up to four accesses of 16 bytes in flight, so half of the threads that a
// multiprocessor of an H200 can hold keep its share of the memory busy.
constexpr MergeConfig kMergeConfigs[] = {
    {.lanes = 8, .vectors = 1, .parts = 4, .reason = "128 bytes: head dim 64"},
    {.lanes = 16, .vectors = 1, .parts = 4, .reason = "256 bytes: head dim 128"},
    {.lanes = 16, .vectors = 2, .parts = 2, .reason = "512 bytes: head dim 256, or 128 in fp32"},
    {.lanes = 32, .vectors = 2, .parts = 2, .reason = "1 KB: head dim 512"},
    {.lanes = 32, .vectors = 4, .parts = 2, .reason = "2 KB, and wider rows by turns; single elements of head dim 128"},
};
// clang-format on

}  // namespace

std::span<const MergeConfig> merge_configs() { return kMergeConfigs; }

}  // namespace kiln
