/* Reserved addresses and memory mapped into them: pages of 2 MiB, stricter than the real driver where that
 * one lets mistakes pass. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#include "fake.h"

enum { MAX_RANGES = 64, MAX_PIECES = 1024, INVALID_DEVICE = 101, NOT_SUPPORTED = 801 };
static const size_t page = (size_t)2 << 20;

/* As cuda.h lays them out. */
typedef struct Properties {
  int type, handle_types, location_type, device;
  void* windows;
  unsigned char flags[8];
} Properties;
typedef struct Access {
  int location_type, device, flags;
} Access;

typedef struct Piece { /* a piece of memory, and where it is mapped */
  size_t nbytes;       /* 0: not in use */
  int device;
  int held; /* by its handle, which is its place in the table plus 1 */
  char* address;
  unsigned granted; /* a bit for each device */
} Piece;
static Piece pieces[MAX_PIECES];
static struct {
  char* address;
  size_t nbytes;
} ranges[MAX_RANGES];
static char lock;

static void enter(void) {
  while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) continue;
}
static Result leave(Result result) {
  __atomic_clear(&lock, __ATOMIC_RELEASE);
  return result;
}

int has_pages(int device) {
  char text[16];
  snprintf(text, sizeof text, "%d", device);
  return !listed("FAKE_NO_PAGES", text, NULL);
}
size_t used_by_pages(int device) {
  size_t sum = 0;
  enter();
  for (int i = 0; i < MAX_PIECES; ++i)
    if (pieces[i].device == device) sum += pieces[i].nbytes;
  leave(OK);
  return sum;
}

static Piece* mapped_at(const char* address) {
  for (int i = 0; i < MAX_PIECES; ++i) {
    Piece* piece = &pieces[i];
    if (piece->address != NULL && address >= piece->address && address < piece->address + piece->nbytes)
      return piece;
  }
  return NULL;
}
static int range_of(const char* address) {
  for (int i = 0; i < MAX_RANGES; ++i)
    if (ranges[i].address != NULL && address >= ranges[i].address &&
        address < ranges[i].address + ranges[i].nbytes)
      return i;
  return -1;
}
static int is_whole(const char* address, size_t nbytes) {
  const char* at = address;
  while (at < address + nbytes) {
    Piece* piece = mapped_at(at);
    if (piece == NULL || piece->address != at) return 0;
    at += piece->nbytes;
  }
  return nbytes > 0 && at == address + nbytes;
}
static Result check_properties(const Properties* wanted) {
  if (wanted->type != 1 || wanted->handle_types != 0 || wanted->location_type != 1) return INVALID_VALUE;
  if (wanted->device < 0 || wanted->device >= number("FAKE_DEVICES", 2)) return INVALID_DEVICE;
  return has_pages(wanted->device) ? OK : NOT_SUPPORTED;
}

/* A copy that meets pages which its device was not granted is refused when it is submitted, as by the real
 * one (13.0); so are fills here. */
Result check_pages(const void* address, size_t nbytes, int device) {
  const char *at = (const char*)address, *end = at + nbytes;
  Result result = OK;
  enter();
  while (result == OK && at < end && range_of(at) >= 0) {
    Piece* piece = mapped_at(at);
    if (piece == NULL || (piece->granted >> device & 1) == 0)
      result = INVALID_VALUE;
    else
      at = piece->address + piece->nbytes;
  }
  return leave(result);
}

int in_pages(const char* address) {
  enter();
  const int found = range_of(address) >= 0;
  leave(OK);
  return found;
}

static Result granularity(size_t* out, const Properties* wanted, int option) {
  ENTER("cuMemGetAllocationGranularity");
  Result checked = check_properties(wanted);
  if (checked != OK || option != 0) return checked != OK ? checked : INVALID_VALUE;
  *out = page;
  return OK;
}

static Result reserve(char** out, size_t nbytes, size_t alignment, char* wish, unsigned long long flags) {
  ENTER("cuMemAddressReserve");
  if (nbytes == 0 || nbytes % page != 0 || alignment != page || wish != NULL || flags != 0)
    return INVALID_VALUE;
  char* all = (char*)mmap(NULL, nbytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return OUT_OF_MEMORY;
  char* aligned = (char*)(((uintptr_t)all + page - 1) / page * page);
  if (aligned > all) munmap(all, (size_t)(aligned - all));
  if (aligned < all + page) munmap(aligned + nbytes, (size_t)(all + page - aligned));
  enter();
  for (int i = 0; i < MAX_RANGES; ++i) {
    if (ranges[i].address != NULL) continue;
    ranges[i].address = *out = aligned;
    ranges[i].nbytes = nbytes;
    return leave(OK);
  }
  munmap(aligned, nbytes);
  return leave(OUT_OF_MEMORY);
}
static Result release_range(char* address, size_t nbytes) {
  ENTER("cuMemAddressFree");
  enter();
  int range = range_of(address);
  if (range < 0 || ranges[range].address != address || ranges[range].nbytes != nbytes)
    return leave(INVALID_VALUE);
  for (int i = 0; i < MAX_PIECES; ++i)
    if (pieces[i].address >= address && pieces[i].address < address + nbytes) return leave(INVALID_VALUE);
  ranges[range].address = NULL;
  munmap(address, nbytes);
  return leave(OK);
}

static Result create(uint64_t* out, size_t nbytes, const Properties* wanted, unsigned long long flags) {
  ENTER("cuMemCreate");
  Result checked = check_properties(wanted);
  if (checked != OK) return checked;
  if (nbytes == 0 || nbytes % page != 0 || flags != 0) return INVALID_VALUE;
  if (used_memory(wanted->device) + nbytes > device_memory) return OUT_OF_MEMORY;
  enter();
  for (int i = 0; i < MAX_PIECES; ++i) {
    if (pieces[i].nbytes != 0) continue;
    Piece made = {nbytes, wanted->device, 1, NULL, 0};
    pieces[i] = made;
    *out = (uint64_t)i + 1;
    return leave(OK);
  }
  return leave(OUT_OF_MEMORY);
}
static void drop_unused(Piece* piece) {
  if (!piece->held && piece->address == NULL) piece->nbytes = 0;
}
static Result release_handle(uint64_t handle) {
  ENTER("cuMemRelease");
  enter();
  if (handle == 0 || handle > MAX_PIECES || !pieces[handle - 1].held) return leave(INVALID_VALUE);
  pieces[handle - 1].held = 0;
  drop_unused(&pieces[handle - 1]);
  return leave(OK);
}

static Result map(char* address, size_t nbytes, size_t offset, uint64_t handle, unsigned long long flags) {
  ENTER("cuMemMap");
  enter();
  if (handle == 0 || handle > MAX_PIECES || offset != 0 || flags != 0) return leave(INVALID_VALUE);
  Piece* piece = &pieces[handle - 1];
  int range = range_of(address);
  if (!piece->held || piece->address != NULL || piece->nbytes != nbytes) return leave(INVALID_VALUE);
  if (range < 0 || address + nbytes > ranges[range].address + ranges[range].nbytes)
    return leave(INVALID_VALUE);
  if ((uintptr_t)address % page != 0) return leave(INVALID_VALUE);
  for (char* at = address; at < address + nbytes; at += page)
    if (mapped_at(at) != NULL) return leave(INVALID_VALUE);
  if (mprotect(address, nbytes, PROT_READ | PROT_WRITE) != 0) return leave(OUT_OF_MEMORY);
  piece->address = address;
  return leave(OK);
}
static Result unmap(char* address, size_t nbytes) {
  ENTER("cuMemUnmap");
  enter();
  if (!is_whole(address, nbytes)) return leave(INVALID_VALUE);
  for (char* at = address; at < address + nbytes;) {
    Piece* piece = mapped_at(at);
    at += piece->nbytes;
    piece->address = NULL;
    piece->granted = 0;
    drop_unused(piece);
  }
  mmap(address, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return leave(OK);
}

static Result set_access(char* address, size_t nbytes, const Access* access, size_t count) {
  char text[80];
  ENTER("cuMemSetAccess");
  snprintf(text, sizeof text, "access of %d devices to %d pages", (int)count, (int)(nbytes / page));
  log_line("!%s\n", text, 0);
  enter();
  if (!is_whole(address, nbytes) || count == 0) return leave(INVALID_VALUE);
  for (size_t i = 0; i < count; ++i) {
    int device = access[i].device;
    if (access[i].location_type != 1 || access[i].flags != 3) return leave(INVALID_VALUE);
    if (device < 0 || device >= number("FAKE_DEVICES", 2) || !has_pages(device)) return leave(INVALID_DEVICE);
    if (primary_of(device)->retained == 0) return leave(INVALID_CONTEXT);
    for (char* at = address; at < address + nbytes; at += page)
      if (mapped_at(at)->device != device && number("FAKE_NO_PEERS", 0)) return leave(INVALID_DEVICE);
  }
  for (size_t i = 0; i < count; ++i)
    for (char* at = address; at < address + nbytes; at += page)
      mapped_at(at)->granted |= 1u << access[i].device;
  return leave(OK);
}

const Entry page_entries[] = {
    {"cuMemGetAllocationGranularity", 10020, (void*)granularity},
    {"cuMemAddressReserve", 10020, (void*)reserve},
    {"cuMemAddressFree", 10020, (void*)release_range},
    {"cuMemCreate", 10020, (void*)create},
    {"cuMemRelease", 10020, (void*)release_handle},
    {"cuMemMap", 10020, (void*)map},
    {"cuMemUnmap", 10020, (void*)unmap},
    {"cuMemSetAccess", 10020, (void*)set_access},
    {NULL, 0, NULL},
};
