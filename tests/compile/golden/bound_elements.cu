#include "/kiln/bound_elements/bound_elements.cuh"

extern "C" __global__ void __launch_bounds__(kiln::kBoundElementsThreads)
kiln_kernel(const __grid_constant__ kiln::BoundElementsParams args) {
  kiln::bound_elements(args);
}
