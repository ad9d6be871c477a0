#include "merge_states_options.h"

#include "errors.h"
#include "options.h"

namespace kiln::python {

LseBase lse_base(std::string_view name) {
  if (name == "e") return LseBase::e;
  if (name == "2") return LseBase::two;
  throw_value({"merge_states", "base"}, "must be \"e\" or \"2\", got " + quoted(name));
}

LseLayout lse_layout(std::string_view name) {
  if (name == "ht") return LseLayout::heads_tokens;
  if (name == "th") return LseLayout::tokens_heads;
  throw_value({"merge_states", "layout"},
              "must be \"ht\" ([heads, tokens]) or \"th\" ([tokens, heads]), got " + quoted(name));
}

}  // namespace kiln::python
