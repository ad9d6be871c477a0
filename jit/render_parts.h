// The two families behind render() and describe().
#pragma once

#include "jit/config.h"
#include "jit/render.h"

namespace kiln {

inline const char* boolean(bool value) { return value ? "true" : "false"; }

// Text put together piece by piece. Not a std::ostringstream: a process may hold a second libstdc++
// (inside PyTorch, or linked statically by a vendor's compiler), and a stream's locale then
// crashes.
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

std::string render_attention(const AttentionTraits& traits, const AttentionConfig& config,
                             const UserTexts& texts);
std::string describe_attention(const AttentionTraits& traits, const AttentionConfig& config,
                               const UserTexts& texts);
std::string render_gemm(const GemmTraits& traits, const GemmConfig& config, const UserTexts& texts);
std::string render_gemm_sm90(const GemmTraits& traits, const GemmConfig& config,
                             const UserTexts& texts);
std::string gemm_epilogue(const GemmTraits& traits, const UserTexts& texts);  // struct Epilogue
std::string type_or(DType dtype, DType otherwise);  // device_type() of the first that is given

// struct Products: one K-tile of 128 bytes times an n-column tile by a warpgroup.
struct WgmmaShape {
  DType a, b;
  int n;
  Major major_rows, major_columns;
};
std::string render_wgmma(const WgmmaShape& shape);
std::string describe_gemm(const GemmTraits& traits, const GemmConfig& config,
                          const UserTexts& texts);

const char* name(Activation activation);  // "none", "relu", "gelu", .. as in kiln.h
const char* name(Gate gate);              // "none", "halves", "interleaved"
const char* name(Access access);          // "elements", "boxes", "vectors"
const char* name(Scale scale);            // "none", "tensor", "vector"
std::string epilogue_constants(const GemmTraits& traits);  // kScaleA, kScaleB, kGate of a Config
std::string layout_name(const GemmTraits& traits);         // "nt"

}  // namespace kiln
