/* The memory of a device is that of the host here, so that every MPI takes pointers to it. */
#if __has_include_next(<mpi-ext.h>)
#include_next <mpi-ext.h>
#endif
#undef MPIX_CUDA_AWARE_SUPPORT
#define MPIX_CUDA_AWARE_SUPPORT 1
#undef MPIX_Query_cuda_support
#define MPIX_Query_cuda_support() 1
