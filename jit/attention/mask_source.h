// A user's mask over intervals: the functions that tell what it shows of a whole tile, written from
// its text. templates/attention/mask_box.cuh has what they are made of.
#pragma once

#include <string>
#include <vector>

#include "kiln/variant.h"

namespace kiln {

struct MaskSource {
  std::string members;       // of struct UserVariant; empty where nothing is known of any tile
  bool skips = false;        // some tiles may be skipped
  bool fills = false;        // some tiles may be known to be shown whole
  bool bounds_rows = false;  // each query sees one run of keys, which is applied so
  std::vector<std::string> unread;  // in words: parts of the mask of which nothing is known
};

// Requires: a variant with a mask.
MaskSource mask_source(const VariantDefinition& definition);

// Returns a sentence for explanations of the variant; "" without a mask.
std::string mask_note(const VariantDefinition& definition);

}  // namespace kiln
