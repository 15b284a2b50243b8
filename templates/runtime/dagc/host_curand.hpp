// What cuRAND's header for kernels expects of CUDA's. It is its own header, of a CUDA toolkit: numbers have the bits that they
// have on a GPU, and states the layout.
#pragma once

enum libraryPropertyType { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL };
#define __NV_SILENCE_DEPRECATION_BEGIN
#define __NV_SILENCE_DEPRECATION_END
