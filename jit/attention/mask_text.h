// Pieces of device code.
#pragma once

#include <string>

namespace kiln {

// A call of a function of interval.cuh or mask_box.cuh.
inline std::string call(const std::string& function, const std::string& a) {
  return "kiln::" + function + "(" + a + ")";
}
inline std::string call(const std::string& function, const std::string& a, const std::string& b) {
  return "kiln::" + function + "(" + a + ", " + b + ")";
}

inline std::string in_brackets(const std::string& sign, const std::string& a,
                               const std::string& b) {
  return "(" + a + sign + b + ")";
}

}  // namespace kiln
