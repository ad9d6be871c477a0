// What users write into kernels may read no file but Kiln's own: the cache key covers nothing else.
#pragma once

#include <string_view>

namespace kiln {

// One line on which no preprocessor directive can begin, however it is spelled.
bool is_plain_expression(std::string_view text);

// Whether a template file asks for, or about, a file other than by #include "/kiln/…" of a file of
// Kiln's. Looks into comments and strings too: it refuses too much there rather than too little.
bool reads_foreign_files(std::string_view text);

}  // namespace kiln
