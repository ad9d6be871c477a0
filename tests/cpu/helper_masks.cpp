// Prints what kernels' sources say of variants, without compiling them: of each definition, a JSON
// object in a line of the input, a line with {"source": .., "note": ..}.
#include <iostream>
#include <string>

#include "jit/attention/mask_source.h"
#include "jit/attention/render.h"
#include "jit/op/variant_json.h"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const kiln::Variant variant(kiln::variant_from_json(nlohmann::json::parse(line)));
    kiln::AttentionTraits traits;
    traits.variant = variant.digest();
    const kiln::UserTexts texts{.variant = &variant};
    std::cout << nlohmann::json{{"source", kiln::variant_source(traits, texts)},
                                {"note", kiln::mask_note(variant.definition())}}
              << '\n';
  }
}
