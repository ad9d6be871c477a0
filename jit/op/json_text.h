// The bounded parser of JSON text, for rooms that know no cache.
#pragma once

#include "cache/json_text.h"

namespace kiln {

using cache::JsonText;
using cache::parse_json;
using cache::string_or_empty;

}  // namespace kiln
