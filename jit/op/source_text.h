// What the operators' renderers share: text put together piece by piece, and names in device code.
#pragma once

#include <string>
#include <string_view>

#include "kiln/tensor.h"

namespace kiln {

inline constexpr const char* kEntryName = "kiln_kernel";
// What the compiler calls a variant's template file: its path must not enter the key.
inline constexpr std::string_view kUserFileLabel = "variant template";

// The compiler's names for the texts of a variant, without the "variant" in front.
inline constexpr const char* kVariantTexts[] = {"template", "logits", "mask"};

// The labels in the source of a variant of a list, such as "variant 0 logits", as a name of the
// user's must not enter the key.
std::string numbered_label(std::size_t number, const char* text);
std::string with_numbered_labels(std::string source, std::size_t number);

inline const char* boolean(bool value) { return value ? "true" : "false"; }

std::string device_type(DType dtype);               // "kiln::bf16", "float"
std::string type_or(DType dtype, DType otherwise);  // device_type() of the first that is given

// The statement that returns a user's expression, which the compiler's messages name by `label`.
// Those about its type are about the bracket, which is on a line of the label's for that reason.
std::string user_return(std::string_view label, std::string_view expression);

// Not a std::ostringstream: a process may hold a second libstdc++ (inside PyTorch, or linked
// statically by a vendor's compiler), and a stream's locale then crashes.
class SourceText {
 public:
  SourceText& operator<<(std::string_view piece) {
    text_ += piece;
    return *this;
  }
  SourceText& operator<<(std::size_t number) { return *this << std::to_string(number); }
  SourceText& operator<<(int number) { return *this << std::to_string(number); }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

}  // namespace kiln
