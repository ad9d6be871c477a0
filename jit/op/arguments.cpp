#include "jit/op/arguments.h"

#include <stdexcept>
#include <string>

namespace kiln {

void CallArguments::refuse_overflow(const char* what) {
  throw std::length_error(std::string("the arguments of a launch take more ") + what +
                          " than its block holds; this is a fault of Kiln: please report the call");
}

}  // namespace kiln
