/* A stand-in for libcuda.so.1 that needs no GPU: a synchronous "device" in host memory.
 *
 * It lets tests see what CudaDriver does on drivers that nobody has at hand: older ones without some entry
 * points, ones without devices, ones whose calls fail. Every operation is done when it is submitted. It is as
 * strict as the real one about the current context, and it asks for nothing but a C compiler.
 *
 *   FAKE_DEVICES=2                     how many devices there are
 *   FAKE_VERSION=12040                 what cuDriverGetVersion says; newer signatures are not given out
 *   FAKE_WITHOUT=cuMemPoolCreate,...   entry points that this driver does not have
 *   FAKE_FAIL=cuStreamQuery=700,...    calls that fail with this code
 *   FAKE_NO_PEERS=1                    no device reaches another
 *   FAKE_NO_PAGES=0,1                  devices without virtual memory management
 *   FAKE_LAST_FIRST=1                  graphs run their nodes in the latest order that their edges allow
 *   FAKE_LOG=path                      a line "name version" for each entry point asked for,
 *                                      "!name" for each call, "!green ..." for what becomes of green contexts
 */
#include <stdio.h>
#include <string.h>

#include "fake.h"

enum { MAX_DEVICES = 8 };

static Context contexts[MAX_DEVICES];
static __thread Context* stack[16];
static __thread int depth; /* stack[depth - 1] is current */

int number(const char* variable, int otherwise) {
  const char* text = getenv(variable);
  return text != NULL && *text != 0 ? atoi(text) : otherwise;
}

/* Finds "name" or "name=123" in a comma-separated list; returns 1 and the number. */
int listed(const char* variable, const char* name, int* value) {
  const char* at = getenv(variable);
  size_t length = strlen(name);
  while (at != NULL && *at != 0) {
    if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '=' || at[length] == 0)) {
      if (value != NULL && at[length] == '=') *value = atoi(at + length + 1);
      return 1;
    }
    at = strchr(at, ',');
    if (at != NULL) ++at;
  }
  return 0;
}

void log_line(const char* format, const char* name, int version) {
  const char* path = getenv("FAKE_LOG");
  if (path == NULL) return;
  FILE* file = fopen(path, "a");
  if (file == NULL) return;
  fprintf(file, format, name, version);
  fclose(file);
}

Context* current(void) { return depth > 0 ? stack[depth - 1] : NULL; }
Context* primary_of(int device) { return &contexts[device]; }

static Result init(unsigned flags) {
  ENTER("cuInit");
  return flags == 0 ? OK : INVALID_VALUE;
}
static Result driver_version(int* out) {
  ENTER("cuDriverGetVersion");
  *out = number("FAKE_VERSION", 13000);
  return OK;
}
static Result error_name(int code, const char** out) {
  static const struct {
    int code;
    const char* name;
  } names[] = {{1, "CUDA_ERROR_INVALID_VALUE"},
               {2, "CUDA_ERROR_OUT_OF_MEMORY"},
               {100, "CUDA_ERROR_NO_DEVICE"},
               {201, "CUDA_ERROR_INVALID_CONTEXT"},
               {400, "CUDA_ERROR_INVALID_HANDLE"},
               {401, "CUDA_ERROR_ILLEGAL_STATE"},
               {600, "CUDA_ERROR_NOT_READY"},
               {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
               {801, "CUDA_ERROR_NOT_SUPPORTED"},
               {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
               {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
               {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
               {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
               {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
               {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
               {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
               {907, "CUDA_ERROR_CAPTURED_EVENT"},
               {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"},
               {914, "CUDA_ERROR_INVALID_RESOURCE_TYPE"},
               {915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"}};
  *out = NULL;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
    if (names[i].code == code) *out = names[i].name;
  return *out != NULL ? OK : INVALID_VALUE;
}

/* Devices and contexts. */
static Result device_count(int* out) {
  ENTER("cuDeviceGetCount");
  *out = number("FAKE_DEVICES", 2);
  return OK;
}
static Result device_get(int* out, int ordinal) {
  ENTER("cuDeviceGet");
  *out = ordinal;
  return OK;
}
static Result device_name(char* out, int length, int device) {
  ENTER("cuDeviceGetName");
  snprintf(out, length, "Fake %d", device);
  return OK;
}
static Result device_attribute(int* out, int which, int device) {
  ENTER("cuDeviceGetAttribute");
  switch (which) {
    case 16:
      *out = 132;
      return OK; /* MULTIPROCESSOR_COUNT */
    case 36:
      *out = 1000000;
      return OK; /* MEMORY_CLOCK_RATE, kHz */
    case 37:
      *out = 1024;
      return OK; /* GLOBAL_MEMORY_BUS_WIDTH, bits */
    case 40:
      *out = 3;
      return OK; /* ASYNC_ENGINE_COUNT */
    case 75:
      *out = 9;
      return OK; /* COMPUTE_CAPABILITY_MAJOR */
    case 76:
      *out = 0;
      return OK; /* COMPUTE_CAPABILITY_MINOR */
    case 83:
      *out = 1;
      return OK; /* MANAGED_MEMORY */
    case 102:
      *out = has_pages(device);
      return OK; /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
    case 115:
      *out = 1;
      return OK; /* MEMORY_POOLS_SUPPORTED */
    default:
      return INVALID_VALUE;
  }
}
static Result device_memory_size(size_t* out, int device) {
  ENTER("cuDeviceTotalMem");
  (void)device;
  *out = device_memory;
  return OK;
}
static Result device_uuid(unsigned char* out, int device) {
  ENTER("cuDeviceGetUuid");
  for (int i = 0; i < 16; ++i) out[i] = (unsigned char)(16 * device + i);
  return OK;
}
static Result can_access_peer(int* out, int device, int peer) {
  ENTER("cuDeviceCanAccessPeer");
  *out = device != peer && !number("FAKE_NO_PEERS", 0);
  return OK;
}
static Result primary_retain(Context** out, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  contexts[device].device = device;
  ++contexts[device].retained;
  *out = &contexts[device];
  return OK;
}
static Result primary_release(int device) {
  ENTER("cuDevicePrimaryCtxRelease");
  --contexts[device].retained;
  return OK;
}
static Result ctx_current(Context** out) {
  *out = current();
  return OK;
}
static Result ctx_set(Context* context) {
  ENTER("cuCtxSetCurrent");
  if (depth == 0) ++depth;
  stack[depth - 1] = context;
  if (context == NULL) --depth;
  return OK;
}
static Result ctx_push(Context* context) {
  ENTER("cuCtxPushCurrent");
  if (context->green != NULL) log_line("!%s\n", "green context made current", 0);
  stack[depth++] = context;
  return OK;
}
static Result ctx_pop(Context** out) {
  ENTER("cuCtxPopCurrent");
  NEEDS_CONTEXT;
  *out = stack[--depth];
  return OK;
}
static Result ctx_device(int* out) {
  ENTER("cuCtxGetDevice");
  NEEDS_CONTEXT;
  *out = current()->device;
  return OK;
}
static Result ctx_synchronize(void) {
  ENTER("cuCtxSynchronize");
  NEEDS_CONTEXT;
  return no_stream_captured(current()->device);
}
static Result ctx_priorities(int* least, int* greatest) {
  ENTER("cuCtxGetStreamPriorityRange");
  NEEDS_CONTEXT;
  *least = 0;
  *greatest = -5;
  return OK;
}
static Result ctx_enable_peer(Context* peer, unsigned flags) {
  static char enabled[MAX_DEVICES][MAX_DEVICES];
  ENTER("cuCtxEnablePeerAccess");
  (void)flags;
  NEEDS_CONTEXT;
  if (enabled[current()->device][peer->device]) return 704;
  enabled[current()->device][peer->device] = 1;
  return OK;
}

/* Streams and events: all work is done when it is submitted. */
static int is_default(Stream* stream) { return (uintptr_t)stream <= 2; }
Result check_stream(Stream* stream) {
  if (current() == NULL) return INVALID_CONTEXT;
  if (is_default(stream)) return OK;
  if (is_destroyed(stream->context)) return CONTEXT_IS_DESTROYED;
  return stream->alive ? OK : INVALID_HANDLE;
}
int device_of(Stream* stream) { return is_default(stream) ? current()->device : stream->context->device; }
Stream* new_stream(Context* context) {
  Stream* made = (Stream*)calloc(1, sizeof(Stream));
  made->context = context;
  made->alive = 1;
  return made;
}
static Result stream_create(Stream** out, unsigned flags, int priority) {
  ENTER("cuStreamCreateWithPriority");
  NEEDS_CONTEXT;
  if (flags != 1 || priority > 0 || priority < -5) return INVALID_VALUE;
  *out = new_stream(current());
  return OK;
}
static Result stream_destroy(Stream* stream) {
  ENTER("cuStreamDestroy");
  NEEDS_NO_CAPTURE(stream);
  stream->alive = 0;
  return OK;
}
static Result stream_query(Stream* stream) {
  ENTER("cuStreamQuery");
  NEEDS_STREAM(stream);
  NEEDS_NO_CAPTURE(stream);
  return OK;
}
static Result stream_context(Stream* stream, Context** out) {
  ENTER("cuStreamGetCtx");
  if (is_default(stream) && current() == NULL) return INVALID_CONTEXT;
  *out = is_default(stream) ? current() : stream->context;
  return OK;
}
static Result stream_capturing(Stream* stream, int* out) {
  ENTER("cuStreamIsCapturing");
  NEEDS_STREAM(stream);
  *out = capture_state(stream);
  return OK;
}
static Result stream_wait(Stream* stream, Event* event, unsigned flags) {
  ENTER("cuStreamWaitEvent");
  (void)flags;
  NEEDS_STREAM(stream);
  return wait_captured(stream, event);
}
static Result event_create(Event** out, unsigned flags) {
  ENTER("cuEventCreate");
  NEEDS_CONTEXT;
  *out = (Event*)calloc(1, sizeof(Event));
  (*out)->flags = flags;
  (*out)->context = current();
  return OK;
}
static Result event_destroy(Event* event) {
  ENTER("cuEventDestroy");
  free(event->stands_for.nodes);
  free(event);
  return OK;
}
static Result event_record(Event* event, Stream* stream) {
  ENTER("cuEventRecord");
  NEEDS_STREAM(stream);
  if (is_destroyed(event->context)) return CONTEXT_IS_DESTROYED;
  if (event->context->device != device_of(stream)) return INVALID_HANDLE;
  event->recorded = 1;
  return record_captured(event, stream);
}
static Result event_query(Event* event) {
  ENTER("cuEventQuery");
  if (is_captured(event)) return 907;
  return is_destroyed(event->context) ? CONTEXT_IS_DESTROYED : OK;
}
static Result event_elapsed(float* out, Event* from, Event* to) {
  ENTER("cuEventElapsedTime");
  if (((from->flags | to->flags) & 2) != 0 || !from->recorded || !to->recorded) return INVALID_HANDLE;
  *out = 0.25f;
  return OK;
}

static const Entry entries[] = {
    {"cuInit", 2000, (void*)init},
    {"cuDriverGetVersion", 2020, (void*)driver_version},
    {"cuGetErrorName", 6000, (void*)error_name},
    {"cuDeviceGetCount", 2000, (void*)device_count},
    {"cuDeviceGet", 2000, (void*)device_get},
    {"cuDeviceGetName", 2000, (void*)device_name},
    {"cuDeviceGetAttribute", 2000, (void*)device_attribute},
    {"cuDeviceTotalMem", 3020, (void*)device_memory_size},
    {"cuDeviceGetUuid", 11040, (void*)device_uuid},
    {"cuDeviceCanAccessPeer", 4000, (void*)can_access_peer},
    {"cuDevicePrimaryCtxRetain", 7000, (void*)primary_retain},
    {"cuDevicePrimaryCtxRelease", 11000, (void*)primary_release},
    {"cuCtxGetCurrent", 4000, (void*)ctx_current},
    {"cuCtxSetCurrent", 4000, (void*)ctx_set},
    {"cuCtxPushCurrent", 4000, (void*)ctx_push},
    {"cuCtxPopCurrent", 4000, (void*)ctx_pop},
    {"cuCtxGetDevice", 2000, (void*)ctx_device},
    {"cuCtxSynchronize", 2000, (void*)ctx_synchronize},
    {"cuCtxGetStreamPriorityRange", 5050, (void*)ctx_priorities},
    {"cuCtxEnablePeerAccess", 4000, (void*)ctx_enable_peer},
    {"cuStreamCreateWithPriority", 5050, (void*)stream_create},
    {"cuStreamDestroy", 4000, (void*)stream_destroy},
    {"cuStreamQuery", 2000, (void*)stream_query},
    {"cuStreamGetCtx", 9020, (void*)stream_context},
    {"cuStreamIsCapturing", 10000, (void*)stream_capturing},
    {"cuStreamWaitEvent", 3020, (void*)stream_wait},
    {"cuEventCreate", 2000, (void*)event_create},
    {"cuEventDestroy", 4000, (void*)event_destroy},
    {"cuEventRecord", 2000, (void*)event_record},
    {"cuEventQuery", 2000, (void*)event_query},
    {"cuEventElapsedTime", 2000, (void*)event_elapsed},
    {NULL, 0, NULL},
};

static const Entry* find(const Entry* table, const char* name) {
  for (; table->name != NULL; ++table)
    if (strcmp(table->name, name) == 0) return table;
  return NULL;
}

/* The signature that `version` had must be the one implemented here, so the versions have to be equal. */
Result cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* found) {
  log_line("%s %d\n", name, version);
  *out = NULL;
  *found = 1;
  if (flags != 0) return INVALID_VALUE;
  const Entry* entry = find(entries, name);
  if (entry == NULL) entry = find(memory_entries, name);
  if (entry == NULL) entry = find(green_entries, name);
  if (entry == NULL) entry = find(page_entries, name);
  if (entry == NULL) entry = find(graph_entries, name);
  if (entry == NULL) entry = find(kernel_entries, name);
  if (entry == NULL) entry = find(loop_entries, name);
  if (entry == NULL || listed("FAKE_WITHOUT", name, NULL)) return OK;
  *found = version == entry->since && version <= number("FAKE_VERSION", 13000) ? 0 : 2;
  if (*found == 0) *out = entry->function;
  return OK;
}
