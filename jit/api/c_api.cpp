// kiln/c.h but for the operations: errors, devices, plans, variants. Each function turns its
// structs into those of the C++ API and exceptions into a status.
#include "jit/api/c_call.h"
#include "kiln/control.h"

struct kiln_variant {
  kiln::Variant variant;
};

namespace kiln {
namespace {

thread_local std::string t_last_error;

static_assert(KILN_OK == int(StatusCode::ok));
static_assert(KILN_INVALID_ARGUMENT == int(StatusCode::invalid_argument));
static_assert(KILN_TYPE_ERROR == int(StatusCode::type_error));
static_assert(KILN_COMPILE_ERROR == int(StatusCode::compile_error));
static_assert(KILN_CUDA_ERROR == int(StatusCode::cuda_error));
static_assert(KILN_COMPILE_DISABLED == int(StatusCode::compile_disabled));
static_assert(KILN_EMULATOR_ERROR == int(StatusCode::emulator_error));
static_assert(KILN_INTERNAL == int(StatusCode::internal));

}  // namespace

kiln_status status_to_c(Status status) noexcept {
  if (!status.ok()) t_last_error = std::move(status.message);
  return static_cast<kiln_status>(status.code);
}

void check_not_null(const char* function, const char* name, const void* pointer) {
  if (pointer == nullptr) {
    throw std::invalid_argument(std::string(function) + ": " + name + " must not be NULL");
  }
}

}  // namespace kiln

extern "C" {

int kiln_abi_version(void) { return KILN_ABI_VERSION; }

const char* kiln_version(void) { return KILN_VERSION; }

const char* kiln_last_error(void) { return kiln::t_last_error.c_str(); }

kiln_status kiln_set_device(const char* choice) {
  return kiln::run_c([&] {
    kiln::check_not_null("kiln_set_device", "choice", choice);
    kiln::set_device(choice);
  });
}

const char* kiln_device(void) {
  thread_local std::string text;
  return kiln::run_c([] { text = kiln::device(); }) == KILN_OK ? text.c_str() : nullptr;
}

size_t kiln_plan_workspace_bytes(const kiln_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}

kiln_status kiln_plan_launch(const kiln_plan* plan, void* const* pointers, size_t count,
                             void* stream, void* workspace) {
  return kiln::run_c([&] {
    kiln::check_not_null("kiln_plan_launch", "plan", plan);
    if (count != 0) kiln::check_not_null("kiln_plan_launch", "pointers", pointers);
    plan->plan.launch(std::span(pointers, count), stream, workspace);
  });
}

void kiln_plan_destroy(kiln_plan* plan) { delete plan; }

kiln_status kiln_variant_create(const kiln_variant_definition* definition, kiln_variant** variant) {
  return kiln::create("kiln_variant_create", "variant", variant,
                      [&] { return kiln::Variant(kiln::definition_of(definition)); });
}

kiln_status kiln_variant_bind(const kiln_variant* variant, const double* values, size_t value_count,
                              const kiln_tensor* tensors, size_t tensor_count,
                              kiln_bound_variant** bound) {
  const char* const function = "kiln_variant_bind";
  return kiln::create(function, "bound", bound, [&] {
    kiln::check_not_null(function, "variant", variant);
    if (value_count != 0) kiln::check_not_null(function, "values", values);
    const std::span<const double> numbers(values, value_count);
    return variant->variant.bind({numbers.begin(), numbers.end()},
                                 kiln::bound_views(function, tensors, tensor_count));
  });
}

kiln_status kiln_variant_compose(const kiln_bound_variant* const* list, size_t count,
                                 kiln_bound_variant** composed) {
  const char* const function = "kiln_variant_compose";
  return kiln::create(function, "composed", composed, [&] {
    if (count != 0) kiln::check_not_null(function, "list", list);
    std::vector<kiln::BoundVariant> variants;
    for (const kiln_bound_variant* const one : std::span(list, count)) {
      kiln::check_not_null(function, "list's variants", one);
      variants.push_back(one->variant);
    }
    return kiln::compose(variants);
  });
}

void kiln_variant_destroy(kiln_variant* variant) { delete variant; }

void kiln_bound_variant_destroy(kiln_bound_variant* bound) { delete bound; }

}  // extern "C"
