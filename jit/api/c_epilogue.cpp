// The functions of kiln/c_epilogue.h.
#include "kiln/c_epilogue.h"

#include <span>
#include <vector>

#include "jit/api/c_call.h"

struct kiln_epilogue {
  kiln::Epilogue epilogue;
};

extern "C" {

kiln_status kiln_epilogue_create(const kiln_epilogue_definition* definition,
                                 kiln_epilogue** epilogue) {
  return kiln::create("kiln_epilogue_create", "epilogue", epilogue,
                      [&] { return kiln::Epilogue(kiln::definition_of(definition)); });
}

kiln_status kiln_epilogue_bind(const kiln_epilogue* epilogue, const double* values,
                               size_t value_count, const kiln_tensor* tensors, size_t tensor_count,
                               kiln_bound_epilogue** bound) {
  const char* const function = "kiln_epilogue_bind";
  return kiln::create(function, "bound", bound, [&] {
    kiln::check_not_null(function, "epilogue", epilogue);
    if (value_count != 0) kiln::check_not_null(function, "values", values);
    const std::span<const double> numbers(values, value_count);
    return epilogue->epilogue.bind({numbers.begin(), numbers.end()},
                                   kiln::bound_views(function, tensors, tensor_count));
  });
}

void kiln_epilogue_destroy(kiln_epilogue* epilogue) { delete epilogue; }

void kiln_bound_epilogue_destroy(kiln_bound_epilogue* bound) { delete bound; }

}  // extern "C"
