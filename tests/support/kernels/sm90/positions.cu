// Where RingPosition is after so many single steps, and after one step of that size; from each
// stage of both sides.
//
// Constants: kStages.
#include "/kiln/sm90/ring.cuh"

using namespace kiln;

extern "C" __global__ void __launch_bounds__(32) kernel(u32* out, int count) {
  const int steps = threadIdx.x;
  if (steps >= count) return;
  for (int start = 0; start < 2 * kStages; ++start) {
    auto walked = start < kStages ? Ring<kStages>::consumer() : Ring<kStages>::producer();
    for (int i = 0; i < start % kStages; ++i) walked.advance();
    auto jumped = walked;
    for (int i = 0; i < steps; ++i) walked.advance();
    jumped.advance_by(steps);
    u32* to = out + (start * count + steps) * 4;
    to[0] = walked.stage, to[1] = walked.parity, to[2] = jumped.stage, to[3] = jumped.parity;
  }
}
