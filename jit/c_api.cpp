// kiln/c.h: each function turns its structs into those of the C++ API and exceptions into a status.
#include "jit/c_structs.h"
#include "jit/status.h"
#include "kiln/control.h"

struct kiln_plan {
  kiln::Plan plan;
};
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

template <class Call>
kiln_status run(Call&& call) noexcept {
  Status status = status_of(std::forward<Call>(call));
  if (!status.ok()) t_last_error = std::move(status.message);
  return static_cast<kiln_status>(status.code);
}

void check_not_null(const char* function, const char* name, const void* pointer) {
  if (pointer == nullptr) {
    throw std::invalid_argument(std::string(function) + ": " + name + " must not be NULL");
  }
}

// Makes a handle of what `make` returns; null if it throws.
template <class Handle, class Make>
kiln_status create(const char* function, const char* name, Handle** handle, Make&& make) noexcept {
  if (handle != nullptr) *handle = nullptr;
  return run([&] {
    check_not_null(function, name, handle);
    *handle = new Handle{make()};
  });
}

struct AttentionViews {
  TensorView q, k, v, out, lse;
};
AttentionViews views_of(const kiln_tensor* q, const kiln_tensor* k, const kiln_tensor* v,
                        const kiln_tensor* out, const kiln_tensor* lse) {
  const char* const op = "flash_attention";
  return {view_of(op, "q", q), view_of(op, "k", k), view_of(op, "v", v), view_of(op, "out", out),
          view_of(op, "lse", lse)};
}

struct GemmViews {
  TensorView a, b, out;
};
GemmViews views_of(const kiln_tensor* a, const kiln_tensor* b, const kiln_tensor* out) {
  return {view_of("gemm", "a", a), view_of("gemm", "b", b), view_of("gemm", "out", out)};
}

}  // namespace
}  // namespace kiln

extern "C" {

int kiln_abi_version(void) { return KILN_ABI_VERSION; }

const char* kiln_version(void) { return KILN_VERSION; }

const char* kiln_last_error(void) { return kiln::t_last_error.c_str(); }

kiln_status kiln_set_device(const char* choice) {
  return kiln::run([&] {
    kiln::check_not_null("kiln_set_device", "choice", choice);
    kiln::set_device(choice);
  });
}

const char* kiln_device(void) {
  thread_local std::string text;
  return kiln::run([] { text = kiln::device(); }) == KILN_OK ? text.c_str() : nullptr;
}

kiln_status kiln_flash_attention(const kiln_tensor* q, const kiln_tensor* k, const kiln_tensor* v,
                                 const kiln_tensor* out, const kiln_tensor* lse,
                                 const kiln_attention_options* options, void* stream) {
  return kiln::run([&] {
    const auto views = kiln::views_of(q, k, v, out, lse);
    kiln::flash_attention(views.q, views.k, views.v, views.out, views.lse,
                          kiln::options_of(options), stream);
  });
}

kiln_status kiln_scaled_dot_product_attention(const kiln_tensor* query, const kiln_tensor* key,
                                              const kiln_tensor* value,
                                              const kiln_tensor* attn_mask, const kiln_tensor* out,
                                              const kiln_sdpa_options* options, void* stream) {
  return kiln::run([&] {
    const auto view = [](const char* name, const kiln_tensor* tensor) {
      return kiln::view_of("scaled_dot_product_attention", name, tensor);
    };
    kiln::scaled_dot_product_attention(view("query", query), view("key", key), view("value", value),
                                       view("attn_mask", attn_mask), view("out", out),
                                       kiln::options_of(options), stream);
  });
}

kiln_status kiln_gemm(const kiln_tensor* a, const kiln_tensor* b, const kiln_tensor* out,
                      const kiln_gemm_options* options, void* stream) {
  return kiln::run([&] {
    const auto views = kiln::views_of(a, b, out);
    kiln::gemm(views.a, views.b, views.out, kiln::options_of(options), stream);
  });
}

kiln_status kiln_plan_flash_attention(const kiln_tensor* q, const kiln_tensor* k,
                                      const kiln_tensor* v, const kiln_tensor* out,
                                      const kiln_tensor* lse, const kiln_attention_options* options,
                                      kiln_plan** plan) {
  return kiln::create("kiln_plan_flash_attention", "plan", plan, [&] {
    const auto views = kiln::views_of(q, k, v, out, lse);
    return kiln::plan_flash_attention(views.q, views.k, views.v, views.out, views.lse,
                                      kiln::options_of(options));
  });
}

kiln_status kiln_plan_gemm(const kiln_tensor* a, const kiln_tensor* b, const kiln_tensor* out,
                           const kiln_gemm_options* options, kiln_plan** plan) {
  return kiln::create("kiln_plan_gemm", "plan", plan, [&] {
    const auto views = kiln::views_of(a, b, out);
    return kiln::plan_gemm(views.a, views.b, views.out, kiln::options_of(options));
  });
}

size_t kiln_plan_workspace_bytes(const kiln_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}

kiln_status kiln_plan_launch(const kiln_plan* plan, void* const* pointers, size_t count,
                             void* stream, void* workspace) {
  return kiln::run([&] {
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
    if (tensor_count != 0) kiln::check_not_null(function, "tensors", tensors);
    std::vector<kiln::TensorView> views;
    for (const kiln_tensor& tensor : std::span(tensors, tensor_count)) {
      views.push_back(kiln::view_of(function, "tensor", &tensor));
    }
    const std::span<const double> numbers(values, value_count);
    return variant->variant.bind({numbers.begin(), numbers.end()}, std::move(views));
  });
}

void kiln_variant_destroy(kiln_variant* variant) { delete variant; }

void kiln_bound_variant_destroy(kiln_bound_variant* bound) { delete bound; }

}  // extern "C"
