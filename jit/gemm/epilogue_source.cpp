// The source of a user's epilogue.
#include "jit/gemm/user_epilogue.h"
#include "jit/op/source_text.h"
#include "jit/op/user_text.h"
#include "jit/op/user_values.h"

namespace kiln {

bool is_bound_epilogue(const UserTexts& texts) {
  return texts.epilogue_values != nullptr || mentions_name(texts.epilogue, "m") ||
         mentions_name(texts.epilogue, "n");
}

std::string epilogue_source(const GemmTraits& traits, const UserTexts& texts) {
  const bool is_bound = is_bound_epilogue(texts);
  SourceText text;
  text << "struct Epilogue " << (is_bound ? ": kiln::BoundEpilogue " : "") << "{\n"
       << "  static constexpr bool kBias = " << boolean(traits.bias != DType::none)
       << ", kResidual = " << boolean(traits.residual != DType::none) << ";\n";
  std::vector<std::string> tensors;
  std::string values;
  if (const EpilogueDefinition* const d = texts.epilogue_values) {
    text << slot_members(d->params, d->tensors, "EpilogueTable");
    values = param_names(d->params);
    for (const VariantTensor& tensor : d->tensors) {
      values += table_name(tensor);
      tensors.push_back(tensor.name);
    }
  }
  text << "  __device__ __forceinline__ float operator()(float acc, float bias, float residual,\n"
       << "                                              int row, int col, int batch"
       << (is_bound ? ",\n                                              int m, int n" : "")
       << ") const {\n"
       << values << user_return("gemm epilogue", with_calls(texts.epilogue, tensors))
       << "  }\n};\n";
  return text.str();
}

}  // namespace kiln
