// The source of what users declare.
#include "jit/op/source_text.h"
#include "jit/op/user_values.h"

namespace kiln {

std::string slot_members(const std::vector<VariantParam>& params,
                         const std::vector<VariantTensor>& tensors, const char* every_tensor,
                         bool wide) {
  if (params.empty() && tensors.empty()) return "";
  std::string text = "  struct {\n";
  for (const VariantParam& param : params) {
    text += "    kiln::Slot<" + device_type(param.dtype) + "> " + param.name + ";\n";
  }
  for (const VariantTensor& tensor : tensors) {
    const bool table = is_table(tensor);
    const char* const own = table ? "VariantTable" : "VariantTensor";
    const char* const product = !wide   ? ""
                                : table ? ", kiln::ConstantLoad, kiln::WideProduct"
                                        : ", kiln::WideProduct";
    text += std::string("    kiln::") + (every_tensor != nullptr ? every_tensor : own) + "<" +
            device_type(tensor.dtype) + ", " + std::to_string(tensor.indices.size()) + product +
            "> " + tensor.name + ";\n";
  }
  return text + "  } arguments;\n";
}

std::string param_names(const std::vector<VariantParam>& params) {
  std::string text;
  for (const VariantParam& param : params) {
    text += "    [[maybe_unused]] const " + device_type(param.dtype) + " " + param.name +
            " = arguments." + param.name + ".value;\n";
  }
  return text;
}

std::string table_name(const VariantTensor& tensor) {
  return "    [[maybe_unused]] const auto& " + tensor.name + " = arguments." + tensor.name + ";\n";
}

}  // namespace kiln
