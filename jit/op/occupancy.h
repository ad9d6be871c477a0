// How many CTAs a device runs at the same time.
#pragma once

namespace kiln {

inline constexpr int kMostCluster = 8;  // CTAs in a cluster; more are not portable

// Clusters of so many CTAs that run at once, of which `residents`, 1 or 2, fit on a multiprocessor.
int clusters_at_once(int cluster, int residents, int sm_count);

}  // namespace kiln
