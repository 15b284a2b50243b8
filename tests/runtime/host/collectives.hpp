// CUB, of the target: blocks' reductions and scans, and a scan of an array.
#pragma once

#if defined(__CUDACC__)
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_scan.cuh>
#else
#include "dagc/host_cub.hpp"
#endif
