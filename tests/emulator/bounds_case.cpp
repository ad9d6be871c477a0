// KernelCase's problem for the bounds of a mask's elements: two tensors, one that all entries share
// or whose positions lie apart, of ends within 64 positions.
#include <algorithm>
#include <cstddef>

#include "templates/bound_elements/params.h"
#include "tests/emulator/kernel_case.h"

namespace kiln::testing {

void KernelCase::make_bound_elements(int size) {
  const int lengths[] = {130 + size, size == 1 ? 64 : 7};
  const int entries[] = {3, 1};
  BoundElementsParams params{};
  Step& step = recipe_.first();
  std::vector<double> expected;
  const Tensor* tensors[2];
  for (int i = 0; i < 2; ++i) {
    std::vector<int> values;
    const int step_of = size == 2 ? 2 : 1;  // between positions
    // The first plane is another's, as of a table that is read at a number.
    const int skipped = size == 2 ? lengths[i] * step_of : 0;
    for (int n = 0; n < entries[i] * lengths[i] * step_of + skipped; ++n) {
      values.push_back(n * 7919 % 1000 - 500 + n / 40);
    }
    tensors[i] = &integers({static_cast<int>(values.size())}, values);
    params.tensors[i] = {.elements = tensors[i]->view.data,
                         .first = skipped,
                         .entry_stride = lengths[i] * step_of,
                         .stride = step_of,
                         .length = lengths[i],
                         .first_block = static_cast<int>(expected.size() / 2),
                         .type = BoundedElementType::i32};
    for (int entry = 0; entry < entries[i]; ++entry) {
      for (int first = 0; first < lengths[i]; first += kBoundedPositions) {
        double least = 1e9, greatest = -1e9;
        for (int at = first; at < std::min(first + kBoundedPositions, lengths[i]); ++at) {
          const int value =
              values[static_cast<std::size_t>(skipped + (entry * lengths[i] + at) * step_of)];
          least = std::min<double>(least, value), greatest = std::max<double>(greatest, value);
        }
        expected.push_back(least), expected.push_back(greatest);
      }
    }
  }
  params.count = 2, params.blocks = static_cast<int>(expected.size() / 2);
  Tensor& bounds = tensor(DType::i32, {params.blocks, 2});
  params.bounds = bounds.view.data;
  step.spec = spec_;
  step.blocks = static_cast<unsigned>(bound_elements_ctas(params.blocks));
  step.arguments.set_params(params);
  step.arguments.add_pointer(offsetof(BoundElementsParams, bounds), bounds.view, true);
  for (std::size_t i = 0; i < 2; ++i) {
    step.arguments.add_pointer(offsetof(BoundElementsParams, tensors) +
                                   i * sizeof(BoundedTensorParams) +
                                   offsetof(BoundedTensorParams, elements),
                               tensors[i]->view, false);
  }
  outputs_.push_back({&bounds, std::move(expected), 1e-9});
}

}  // namespace kiln::testing
