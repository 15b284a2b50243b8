// Headers of CUDA that the host target has, too.
#pragma once

#include "dagc/target.hpp"
#if DAGC_TARGET_CUDA
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuComplex.h>
#else
#include "dagc/host_complex.hpp"
#include "dagc/host_groups.hpp"
#endif
