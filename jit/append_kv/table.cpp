// The closed table of the kernels that append to a cache.
#include "jit/append_kv/config.h"

namespace kiln {
namespace {

constexpr AppendConfig kAppendConfigs[] = {
    {.rows = 1, .reason = "few heads of tokens: as many threads as there can be"},
    {.rows = 2, .reason = "many: 64 bytes of each thread are in flight"},
};

}  // namespace

std::span<const AppendConfig> append_configs() { return kAppendConfigs; }

}  // namespace kiln
