// What users write into kernels may read no file but Kiln's own: the cache key covers nothing else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

// Text that a spec, which is JSON, can hold. RFC 3629: no overlong forms, no surrogates.
bool is_utf8(std::string_view text);

// One line on which no preprocessor directive can begin, however it is spelled.
bool is_plain_expression(std::string_view text);

// The expression with an f behind each floating-point literal that has no suffix: `0.3` is a double
// in C++, and one double makes a whole expression double, at a small part of the speed.
std::string with_float_literals(std::string_view expression);

// The expression with parentheses for brackets with commas behind these names, `d(row, col)` for
// `d[row, col]`: C++17 has no subscripts of several indices. It keeps its length.
std::string with_calls(std::string_view expression, const std::vector<std::string>& names);

// Whether the expression has this name, outside of strings and comments.
bool mentions_name(std::string_view expression, std::string_view name);

// Whether a template file asks for, or about, a file other than by #include "/kiln/…" of a file of
// Kiln's. Looks into comments and strings too: it refuses too much there rather than too little.
bool reads_foreign_files(std::string_view text);

}  // namespace kiln
