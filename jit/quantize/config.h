// The closed table of the kernels that quantise activations, and the pure function that picks a
// row. A row's reason stands beside it in table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "jit/quantize/problem.h"

namespace kiln {

struct QuantizeConfig {
  int lanes;    // threads that share a group of columns
  int vectors;  // accesses of each of them at a time
  bool turns;   // whether a group may have more accesses than these, and is then read twice
  std::string_view reason;

  int accesses() const { return lanes * vectors; }  // of a group at a time
};

std::span<const QuantizeConfig> quantize_configs();
std::string tile_name(const QuantizeConfig& config);  // "8x2", "512x4 in turns"

// By the columns of a group and the vector alone, so that a row has the same result in every batch.
// The last row of the table serves any number of columns.
int choose_quantize(const QuantizeTraits& traits, std::int64_t group);

}  // namespace kiln
