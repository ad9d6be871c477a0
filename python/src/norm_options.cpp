#include "norm_options.h"

#include <string>

#include "errors.h"
#include "jit/op/names.h"
#include "options.h"

namespace kiln::python {

Activation norm_activation(std::string_view name, Subject subject) {
  const auto value = value_of(kPlainActivationNames, name);
  if (value) return static_cast<Activation>(*value);
  throw_value(subject, "must be " + choices_text(std::span(kPlainActivationNames).subspan(1)) +
                           ", got " + quoted(name));
}

}  // namespace kiln::python
