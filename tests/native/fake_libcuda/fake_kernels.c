/* Kernels of the stand-in: host functions that get what a launch was given. */
#include <string.h>

#include "fake.h"

typedef struct Launch {
  const Kernel* kernel;
  unsigned dims[7]; /* grid, block, bytes of shared memory */
  char parameters[4096];
} Launch;

static void run(void* argument) {
  Launch* launch = (Launch*)argument; /* kept: a graph can run it again */
  launch->kernel->body(launch->dims, launch->parameters);
}
Result kernel_operation(const void* handle, const unsigned* dims, void** parameters, void** extra,
                        Operation* out) {
  const Kernel* kernel = (const Kernel*)handle;
  const unsigned blocks = dims[0] * dims[1] * dims[2], threads = dims[3] * dims[4] * dims[5];
  if (extra != NULL || blocks == 0 || threads == 0 || threads > 1024) return INVALID_VALUE;
  Launch* made = (Launch*)malloc(sizeof(Launch));
  made->kernel = kernel;
  memcpy(made->dims, dims, sizeof made->dims);
  size_t at = 0;
  for (uint64_t i = 0; i < kernel->count; at += kernel->sizes[i++])
    memcpy(made->parameters + at, parameters[i], kernel->sizes[i]);
  *out = (Operation){.kind = KERNEL, .function = run, .argument = made};
  return OK;
}
static Result launch(const Kernel* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                     unsigned bz, unsigned shared, Stream* stream, void** parameters, void** extra) {
  ENTER("cuLaunchKernel");
  NEEDS_STREAM(stream);
  const unsigned dims[7] = {gx, gy, gz, bx, by, bz, shared};
  Operation operation;
  Result made = kernel_operation(kernel, dims, parameters, extra, &operation);
  return made == OK ? submit(stream, &operation) : made;
}

const Entry kernel_entries[] = {
    {"cuLaunchKernel", 4000, (void*)launch},
    {NULL, 0, NULL},
};
