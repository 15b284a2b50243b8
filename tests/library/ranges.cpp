// Two ops; with -DPROFILER, the library that a profiler injects, which prints their ranges.
#ifdef PROFILER
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace {

int push(const char* name) {
  std::printf("push:%s\n", name);
  return 0;
}
int pop() {
  std::printf("pop\n");
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

#else
#define DAGC_NVTX 1
#include "dagc/fault.hpp"

int main() {
  dagc::begin_op("a");
  dagc::begin_op("b");
  dagc::end_op();
  dagc::end_op();
}
#endif
