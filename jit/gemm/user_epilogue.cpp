#include "jit/gemm/user_epilogue.h"

#include "jit/gemm/checks.h"
#include "jit/op/checks.h"
#include "jit/op/digest.h"
#include "jit/op/user_text.h"
#include "jit/op/user_values.h"

namespace kiln {
namespace {

const char* const kEpilogueIndices[] = {"m", "n", "batch"};
const char* const kEpilogueReserved[] = {"acc",   "bias", "residual", "row",  "col",
                                         "batch", "m",    "n",        "kiln", "arguments"};

UserDeclarations declarations_of(const EpilogueDefinition& d) {
  return {"Epilogue",        d.name,           d.params,     d.tensors,
          kEpilogueReserved, kEpilogueIndices, "m, n, batch"};
}

void check_expression(std::string_view expression) {
  if (!is_utf8(expression)) throw_value({kGemmOp, "epilogue"}, "must be UTF-8 text");
  if (!is_plain_expression(expression)) {
    throw_value({kGemmOp, "epilogue"}, "must be one line without preprocessor directives");
  }
}

struct RememberedText {
  std::string text;
  Digest128 digest{};
  EpilogueNames names;
};

// The last one of this thread: a serving loop passes the same text on every call.
const RememberedText& remembered(std::string_view expression) {
  thread_local RememberedText last;
  if (expression != last.text) {
    last.digest = epilogue_digest(expression);
    last.names = epilogue_names(expression);
    last.text = expression;
  }
  return last;
}

void check_extents(Subject subject, const VariantTensor& declared, const TensorView& view,
                   const GemmProblem& problem) {
  for (int i = 0; i < view.rank; ++i) {
    const std::string& index = declared.indices[static_cast<std::size_t>(i)];
    if (is_free_index(index)) {
      check_free_dimension(subject, index, view, i);
      continue;
    }
    const int extent = index == "m" ? problem.m : index == "n" ? problem.n : problem.batch;
    if (view.shape[i] != extent && view.shape[i] != 1) {
      throw_value(subject, "must have size " + std::to_string(extent) + " (or 1) in dimension " +
                               std::to_string(i) + " (" + index + "), got " + shape_text(view));
    }
  }
}

}  // namespace

Epilogue::Epilogue(EpilogueDefinition definition) {
  if (!is_utf8(definition.name)) {
    throw std::invalid_argument("Epilogue: its name must be UTF-8 text");
  }
  const UserDeclarations declared = declarations_of(definition);
  check_declarations(declared);
  if (definition.value.empty()) {
    refuse_declaration(declared, "needs value=, the expression of an output");
  }
  check_expression(definition.value);
  // Without declarations it is the expression alone, whoever gives it.
  const std::string signature = signature_of(declared);
  digest_ = signature.empty()
                ? epilogue_digest(definition.value)
                : digest_of({{"signature", signature}, {"epilogue", definition.value}});
  names_bias_ = mentions_name(definition.value, "bias");
  names_residual_ = mentions_name(definition.value, "residual");
  definition_ = std::make_shared<const EpilogueDefinition>(std::move(definition));
}

BoundEpilogue Epilogue::bind(std::vector<double> values, std::vector<TensorView> tensors) const {
  const UserDeclarations declared = declarations_of(*definition_);
  if (values.size() != declared.params.size() || tensors.size() != declared.tensors.size()) {
    refuse_declaration(declared, "takes " + std::to_string(declared.params.size()) +
                                     " parameters and " + std::to_string(declared.tensors.size()) +
                                     " tensors, got " + std::to_string(values.size()) + " and " +
                                     std::to_string(tensors.size()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    check_param_value(declared, declared.params[i], values[i]);
  }
  return BoundEpilogue(*this, std::move(values), std::move(tensors));
}

Digest128 epilogue_digest(std::string_view expression) {
  check_expression(expression);
  return digest_of({{"epilogue", std::string(expression)}});
}

void check_epilogue(const GemmOptions& options, GemmProblem& problem) {
  if (!has_epilogue(options)) {
    problem.traits.activation = options.activation;
    return;
  }
  if (options.activation != Activation::none) {
    throw_value({kGemmOp, "activation"},
                "cannot be combined with epilogue; write it in the expression");
  }
  EpilogueNames names;
  if (const BoundEpilogue* const bound = options.bound_epilogue) {
    if (!options.epilogue.empty()) {
      throw_value({kGemmOp, "epilogue"}, "cannot be given beside bound_epilogue; leave one out");
    }
    const Epilogue& epilogue = bound->epilogue();
    const EpilogueDefinition& definition = epilogue.definition();
    names = {epilogue.names_bias(), epilogue.names_residual()};
    problem.traits.epilogue = epilogue.digest();
    problem.texts.epilogue = definition.value;
    if (!definition.params.empty() || !definition.tensors.empty()) {
      problem.texts.epilogue_values = &definition;
    }
  } else {
    const RememberedText& expression = remembered(options.epilogue);
    names = expression.names;
    problem.traits.epilogue = expression.digest;
    problem.texts.epilogue = options.epilogue;
  }
  check_epilogue_names(names, {options.bias.given(), options.residual.given()});
}

void add_epilogue_arguments(const BoundEpilogue& bound, GemmProblem& problem) {
  const EpilogueDefinition& d = bound.epilogue().definition();
  for (std::size_t i = 0; i < d.params.size(); ++i) {
    add_param(d.params[i], bound.values()[i], problem.arguments());
  }
  for (std::size_t i = 0; i < d.tensors.size(); ++i) {
    const VariantTensor& declared = d.tensors[i];
    const TensorView& view = bound.tensors()[i];
    const Subject subject{"gemm's epilogue", declared.name.c_str()};
    check_bound_tensor(subject, declared, view, problem);
    check_extents(subject, declared, view, problem);
    add_bound_tensor(subject.name, view, /*has_extents=*/true, problem);
  }
}

}  // namespace kiln
