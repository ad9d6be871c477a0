// The closed table of the kernels that append to a cache.
#include "jit/append_kv/config.h"

namespace kiln {
namespace {

constexpr AppendConfig kAppendConfigs[] = {
    {.rows = 1,
     .ahead = 1,
     .reason = "few heads of tokens, or nothing to compute: as many threads as there can be"},
    {.rows = 4,
     .ahead = 2,
     .reason = "many: the next heads are on their way meanwhile, and angles serve all of them"},
};

}  // namespace

std::span<const AppendConfig> append_configs() { return kAppendConfigs; }

}  // namespace kiln
