/* A profiler as small as can be: writes the start and end of each range to the file that RANGES_FILE names. */
#include <nvtx3/nvToolsExt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE* out;
static nvtxRangeId_t last;

static nvtxRangeId_t start(const char* message) {
  fprintf(out, "start %llu %s\n", (unsigned long long)++last, message);
  fflush(out);
  return last;
}

static void end(nvtxRangeId_t range) {
  fprintf(out, "end %llu\n", (unsigned long long)range);
  fflush(out);
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks* callbacks = get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  out = fopen(getenv("RANGES_FILE"), "w");
  if (out == NULL || callbacks == NULL) return 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
  *table[NVTX_CBID_CORE_RangeStartA] = (NvtxFunctionPointer)start;
  *table[NVTX_CBID_CORE_RangeEnd] = (NvtxFunctionPointer)end;
  return 1;
}
