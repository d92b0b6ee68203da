/* Memory, copies, fills and host functions of the stand-in. */
#include <string.h>

#include "fake.h"

enum { MAX_BLOCKS = 4096 };

typedef struct Pool {
  int device;
} Pool;
static struct {
  void* address;
  size_t nbytes;
  int device;
} blocks[MAX_BLOCKS];
static char lock; /* several threads use the driver at once */

static size_t used(int device) {
  size_t sum = 0;
  for (int i = 0; i < MAX_BLOCKS; ++i)
    if (blocks[i].address != NULL && blocks[i].device == device) sum += blocks[i].nbytes;
  return sum;
}
static void enter(void) {
  while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) continue;
}
static void leave(void) { __atomic_clear(&lock, __ATOMIC_RELEASE); }
size_t used_memory(int device) { return used(device) + used_by_pages(device); }
static Result take(void** out, size_t nbytes, int device) {
  Result result = nbytes == 0 ? INVALID_VALUE : OUT_OF_MEMORY;
  enter();
  if (nbytes > 0 && (device < 0 || used(device) + used_by_pages(device) + nbytes <= device_memory)) {
    for (int i = 0; i < MAX_BLOCKS && result != OK; ++i) {
      if (blocks[i].address != NULL) continue;
      blocks[i].address = *out = malloc(nbytes);
      blocks[i].nbytes = nbytes;
      blocks[i].device = device;
      result = OK;
    }
  }
  leave();
  return result;
}
static Result give(void* address) {
  Result result = INVALID_VALUE;
  enter();
  for (int i = 0; i < MAX_BLOCKS && result != OK; ++i) {
    if (address == NULL || blocks[i].address != address) continue;
    free(address);
    blocks[i].address = NULL;
    result = OK;
  }
  leave();
  return result;
}
static Result mem_info(size_t* free_bytes, size_t* total) {
  ENTER("cuMemGetInfo");
  NEEDS_CONTEXT;
  *total = device_memory;
  *free_bytes = device_memory - used_memory(current()->device);
  return OK;
}
static Result pool_create(Pool** out, const int* props) {
  ENTER("cuMemPoolCreate");
  if (props[0] != 1 || props[1] != 0 || props[2] != 1) return INVALID_VALUE; /* pinned, no handles, device */
  *out = (Pool*)calloc(1, sizeof(Pool));
  (*out)->device = props[3];
  return OK;
}
static Result pool_destroy(Pool* pool) {
  ENTER("cuMemPoolDestroy");
  free(pool);
  return OK;
}
static Result pool_attribute(Pool* pool, int which, uint64_t* value) {
  ENTER("cuMemPoolSetAttribute");
  (void)pool;
  return which == 4 && *value == UINT64_MAX ? OK : INVALID_VALUE; /* RELEASE_THRESHOLD */
}
static Result pool_access(Pool* pool, const int* access, size_t count) {
  ENTER("cuMemPoolSetAccess");
  return count == 1 && access[0] == 1 && access[1] != pool->device && access[2] == 3 ? OK : INVALID_VALUE;
}
static Result pool_trim(Pool* pool, size_t keep) {
  ENTER("cuMemPoolTrimTo");
  (void)pool;
  return keep == 0 ? OK : INVALID_VALUE;
}
static Result alloc_from_pool(void** out, size_t nbytes, Pool* pool, Stream* stream) {
  ENTER("cuMemAllocFromPoolAsync");
  NEEDS_STREAM(stream);
  NEEDS_NO_CAPTURE(stream);
  return take(out, nbytes, pool->device);
}
static Result free_async(void* address, Stream* stream) {
  ENTER("cuMemFreeAsync");
  NEEDS_STREAM(stream);
  NEEDS_NO_CAPTURE(stream);
  return give(address);
}
static Result host_alloc(void** out, size_t nbytes, unsigned flags) {
  ENTER("cuMemHostAlloc");
  NEEDS_CONTEXT;
  (void)flags;
  return take(out, nbytes, -1);
}
static Result host_free(void* address) {
  ENTER("cuMemFreeHost");
  NEEDS_CONTEXT;
  return give(address);
}
static Result managed_alloc(void** out, size_t nbytes, unsigned flags) {
  ENTER("cuMemAllocManaged");
  NEEDS_CONTEXT;
  return flags == 1 ? take(out, nbytes, current()->device) : INVALID_VALUE;
}
static Result advise(void* address, size_t nbytes, int advice, int device) {
  ENTER("cuMemAdvise");
  (void)address;
  (void)nbytes;
  (void)device;
  return advice == 3 ? OK : INVALID_VALUE; /* SET_PREFERRED_LOCATION */
}
static Result mem_free(void* address) {
  ENTER("cuMemFree");
  NEEDS_CONTEXT;
  return give(address);
}

/* Transfers and work. */
void perform(const Operation* operation) {
  if (operation->kind == COPY) memmove(operation->to, operation->from, operation->nbytes);
  if (operation->kind == CALL || operation->kind == KERNEL) operation->function(operation->argument);
  if (operation->kind != FILL) return;
  if (operation->size == 1) {
    memset(operation->to, (int)operation->value, operation->width);
    return;
  }
  for (size_t row = 0; row < operation->height; ++row)
    for (size_t i = 0; i < operation->width; ++i)
      memcpy(operation->to + row * operation->pitch + i * operation->size, &operation->value,
             operation->size); /* the lowest bytes: little endian */
}
/* Whether the driver knows the memory: what it does not is pageable. */
static int is_known(const char* address) {
  int found = 0;
  enter();
  for (int i = 0; i < MAX_BLOCKS && !found; ++i) {
    const char* start = blocks[i].address;
    found = start != NULL && address >= start && address < start + blocks[i].nbytes;
  }
  leave();
  return found || in_pages(address);
}
/* Pageable memory is read when a copy is recorded, as seen on an H200. What is read is never given back. */
static Result submit_copy(void* to, const void* from, size_t nbytes, Stream* stream) {
  if (captured(stream) && !is_known(from)) from = memcpy(malloc(nbytes), from, nbytes);
  Operation made = {.kind = COPY, .to = (char*)to, .from = (const char*)from, .nbytes = nbytes};
  return submit(stream, &made);
}
static Result copy(void* to, const void* from, size_t nbytes, Stream* stream) {
  ENTER("cuMemcpyAsync");
  NEEDS_STREAM(stream);
  NEEDS_PAGES(to, nbytes, device_of(stream));
  NEEDS_PAGES(from, nbytes, device_of(stream));
  return submit_copy(to, from, nbytes, stream);
}
static Result copy_peer(void* to, Context* target, const void* from, Context* source, size_t nbytes,
                        Stream* stream) {
  ENTER("cuMemcpyPeerAsync");
  NEEDS_STREAM(stream);
  if (target == source) return INVALID_VALUE;
  NEEDS_PAGES(to, nbytes, target->device);
  NEEDS_PAGES(from, nbytes, source->device);
  return submit_copy(to, from, nbytes, stream);
}
static Result fill(void* to, uint32_t value, size_t size, size_t count, Stream* stream) {
  NEEDS_STREAM(stream);
  NEEDS_PAGES(to, size * count, device_of(stream));
  Operation made = {.kind = FILL, .to = (char*)to, .size = size, .width = count, .height = 1, .value = value};
  return submit(stream, &made);
}
static Result fill8(void* to, unsigned char value, size_t count, Stream* stream) {
  ENTER("cuMemsetD8Async");
  return fill(to, value, 1, count, stream);
}
static Result fill16(void* to, uint16_t value, size_t count, Stream* stream) {
  ENTER("cuMemsetD16Async");
  return fill(to, value, 2, count, stream);
}
static Result fill32(void* to, uint32_t value, size_t count, Stream* stream) {
  ENTER("cuMemsetD32Async");
  return fill(to, value, 4, count, stream);
}
static Result fill2d32(char* to, size_t pitch, uint32_t value, size_t width, size_t height, Stream* stream) {
  ENTER("cuMemsetD2D32Async");
  NEEDS_STREAM(stream);
  if (height > 65535) return INVALID_VALUE; /* stricter than any driver is known to be */
  NEEDS_PAGES(to, (height - 1) * pitch + 4 * width, device_of(stream));
  Operation made = {.kind = FILL, .to = to, .size = 4, .width = width, .height = height, .pitch = pitch};
  made.value = value;
  return submit(stream, &made);
}
static Result host_function(Stream* stream, void (*function)(void*), void* argument) {
  ENTER("cuLaunchHostFunc");
  NEEDS_STREAM(stream);
  Operation made = {.kind = CALL, .function = function, .argument = argument};
  return submit(stream, &made);
}

const Entry memory_entries[] = {
    {"cuMemGetInfo", 3020, (void*)mem_info},
    {"cuMemPoolCreate", 11020, (void*)pool_create},
    {"cuMemPoolDestroy", 11020, (void*)pool_destroy},
    {"cuMemPoolSetAttribute", 11020, (void*)pool_attribute},
    {"cuMemPoolSetAccess", 11020, (void*)pool_access},
    {"cuMemPoolTrimTo", 11020, (void*)pool_trim},
    {"cuMemAllocFromPoolAsync", 11020, (void*)alloc_from_pool},
    {"cuMemFreeAsync", 11020, (void*)free_async},
    {"cuMemHostAlloc", 2020, (void*)host_alloc},
    {"cuMemFreeHost", 2000, (void*)host_free},
    {"cuMemAllocManaged", 6000, (void*)managed_alloc},
    {"cuMemAdvise", 8000, (void*)advise},
    {"cuMemFree", 3020, (void*)mem_free},
    {"cuMemcpyAsync", 4000, (void*)copy},
    {"cuMemcpyPeerAsync", 4000, (void*)copy_peer},
    {"cuMemsetD8Async", 3020, (void*)fill8},
    {"cuMemsetD16Async", 3020, (void*)fill16},
    {"cuMemsetD32Async", 3020, (void*)fill32},
    {"cuMemsetD2D32Async", 3020, (void*)fill2d32},
    {"cuLaunchHostFunc", 10000, (void*)host_function},
    {NULL, 0, NULL},
};
