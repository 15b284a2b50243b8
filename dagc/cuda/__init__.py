"""The one reader of C and CUDA text: names, accesses, launches, and resources of compiled kernels."""
