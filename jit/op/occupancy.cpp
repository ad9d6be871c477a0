#include "jit/op/occupancy.h"

#include <algorithm>

namespace kiln {
namespace {

// Clusters of 1, 2, .. 8 CTAs that an H200 holds at once, with one CTA on a multiprocessor and with
// two: its processors come in groups that no cluster crosses (cuOccupancyMaxActiveClusters).
constexpr int kClusters[2][kMostCluster] = {{132, 66, 39, 30, 22, 17, 15, 15},
                                            {264, 132, 79, 62, 47, 39, 32, 30}};

}  // namespace

int clusters_at_once(int cluster, int residents, int sm_count) {
  return std::max(1, kClusters[residents - 1][cluster - 1] * sm_count / 132);
}

}  // namespace kiln
