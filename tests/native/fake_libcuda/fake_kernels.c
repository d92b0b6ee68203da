/* Kernels of the stand-in: host functions that get what a launch was given. */
#include <string.h>

#include "fake.h"

/* What a handle points to; tests make it. */
typedef struct Kernel {
  void (*body)(const unsigned* dims, const char* parameters);
  uint64_t count;
  const uint64_t* sizes; /* bytes of each parameter */
} Kernel;
typedef struct Launch {
  const Kernel* kernel;
  unsigned dims[7]; /* grid, block, bytes of shared memory */
  char parameters[4096];
} Launch;

static void run(void* argument) {
  Launch* launch = (Launch*)argument; /* kept: a graph can run it again */
  launch->kernel->body(launch->dims, launch->parameters);
}
static Result launch(const Kernel* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                     unsigned bz, unsigned shared, Stream* stream, void** parameters, void** extra) {
  ENTER("cuLaunchKernel");
  NEEDS_STREAM(stream);
  const unsigned dims[7] = {gx, gy, gz, bx, by, bz, shared};
  if (extra != NULL || gx * gy * gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024) return INVALID_VALUE;
  Launch* made = (Launch*)malloc(sizeof(Launch));
  made->kernel = kernel;
  memcpy(made->dims, dims, sizeof dims);
  size_t at = 0;
  for (uint64_t i = 0; i < kernel->count; at += kernel->sizes[i++])
    memcpy(made->parameters + at, parameters[i], kernel->sizes[i]);
  Operation operation = {.kind = CALL, .function = run, .argument = made};
  return submit(stream, &operation);
}

const Entry kernel_entries[] = {
    {"cuLaunchKernel", 4000, (void*)launch},
    {NULL, 0, NULL},
};
