// Half precision and bfloat16 of the target.
#pragma once

#include "dagc/target.hpp"
#if DAGC_TARGET_CUDA
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "dagc/host_half.hpp"
#endif
