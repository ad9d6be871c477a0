// Options of both forms of attention.
#include "attention_options.h"

#include "generated/flash_attention.h"
#include "generated/scaled_dot_product_attention.h"
#include "options.h"

namespace kiln::python {

using Attention = FlashAttentionSignature;
using Sdpa = ScaledDotProductAttentionSignature;

void refuse_window(const std::string& given) {
  throw_type(subject_of<Attention>(Attention::kWindow),
             "must be a pair (left, right) of integers, -1 = open, got " + given);
}

AttentionLayout attention_layout(std::string_view name) {
  if (name == "bshd") return AttentionLayout::bshd;
  if (name == "bhsd") return AttentionLayout::bhsd;
  throw_value(subject_of<Attention>(Attention::kLayout),
              "must be \"bshd\" or \"bhsd\", got " + quoted(name));
}

TensorView lse_of(const TensorView& q, AttentionLayout layout) {
  const bool is_bshd = layout == AttentionLayout::bshd;
  TensorView view = contiguous_view(nullptr, DType::f32, q.device_ordinal, q.shape[0],
                                    q.shape[is_bshd ? 2 : 1], q.shape[is_bshd ? 1 : 2]);
  view.device_type = q.device_type;
  return view;
}

void refuse_dropout(const std::string& given) {
  throw_value(subject_of<Sdpa>(Sdpa::kDropoutP),
              "must be 0.0, got " + given +
                  "; Kiln has no dropout (pass dropout_p only while training, elsewhere)");
}

}  // namespace kiln::python
