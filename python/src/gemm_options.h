// Options of gemm from plain values, for the C entry and the operators' kernels. Throws TypeError
// and ValueError naming the argument.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kiln/kiln.h"

namespace kiln::python {

void set_precision(GemmOptions& options, std::string_view name);
Accumulator accumulator_of(DType dtype);
Gate gate_of(std::string_view name);
// "off", "on" or "weights": operators have these for False, True and "weights".
Pdl pdl_of(std::string_view name);
// `given` is the caller's value as messages show it.
[[noreturn]] void refuse_pdl(const std::string& given);
// Of the config's numbers; the last two may be missing, which is 0.
inline constexpr std::size_t kNeededTileNumbers = 4, kTileNumbers = 6;
GemmTile tile_of(std::span<const std::int64_t, kTileNumbers> values);
// `given` is the caller's value as messages show it.
[[noreturn]] void refuse_tile(const std::string& given);

}  // namespace kiln::python
