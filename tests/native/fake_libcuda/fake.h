/* What the files of the stand-in share. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

typedef int Result;
enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  CONTEXT_IS_DESTROYED = 709,
};

typedef struct Context {
  int device;
  int retained;
  struct Green* green; /* that it stands for, or null for a primary context */
} Context;
/* Of a graph; see fake_graphs.c. */
typedef struct Capture Capture;
typedef struct NodeList {
  struct Node** nodes;
  size_t count;
} NodeList;
typedef struct Stream {
  Context* context;
  int alive;
  Capture* capture;      /* the last in which it took part, over or not */
  NodeList next;         /* what its next node comes after */
  struct Stream* member; /* the one that joined the capture before it */
} Stream;
typedef struct Event {
  Context* context;
  unsigned flags;
  int recorded;
  Capture* capture; /* in which it was last recorded, or null */
  NodeList stands_for;
} Event;

/* What a stream does, at once or as the node of a graph. */
typedef struct Operation {
  enum { NOTHING, COPY, FILL, CALL, KERNEL } kind;
  char* to;
  const char* from;
  size_t nbytes;                     /* of a copy */
  size_t size, width, height, pitch; /* of a fill: bytes of an element, elements of a row, rows */
  uint32_t value;
  void (*function)(void*);
  void* argument;
} Operation;

/* What a handle points to; tests make some. */
typedef struct Kernel {
  void (*body)(const unsigned* dims, const char* parameters);
  uint64_t count;
  const uint64_t* sizes; /* bytes of each parameter */
} Kernel;

typedef struct Entry {
  const char* name;
  int since; /* the version whose signature the function has */
  void* function;
} Entry;
extern const Entry memory_entries[]; /* up to the one without a name */
extern const Entry green_entries[];
extern const Entry page_entries[];
extern const Entry graph_entries[];
extern const Entry kernel_entries[];
extern const Entry loop_entries[];

static const size_t device_memory = (size_t)1 << 30;

/* The settings of the environment; see fake_libcuda.c. */
int number(const char* variable, int otherwise);
int listed(const char* variable, const char* name, int* value);
void log_line(const char* format, const char* name, int version);

int captured(Stream* stream);
int in_pages(const char* address); /* in a reserved range */
Context* current(void);            /* of this thread, or null */
Context* primary_of(int device);
Result check_stream(Stream* stream);
Stream* new_stream(Context* context);
int is_destroyed(const Context* context);
int device_of(Stream* stream);

void perform(const Operation* operation);
/* The operation of a kernel with these dimensions: of the grid, of a block, bytes of shared memory. */
Result kernel_operation(const void* kernel, const unsigned* dims, void** parameters, void** extra,
                        Operation* out);
Result submit(Stream* stream, const Operation* operation);
Result not_captured(Stream* stream);   /* else the capture is void */
Result no_stream_captured(int device); /* likewise */
int capture_state(Stream* stream);
Result record_captured(Event* event, Stream* stream);
Result wait_captured(Stream* stream, Event* event);
int is_captured(const Event* event);

size_t used_memory(int device); /* of all kinds */
size_t used_by_pages(int device);
int has_pages(int device);
/* OK unless some of the bytes are page-mapped and out of the device's reach. */
Result check_pages(const void* address, size_t nbytes, int device);

#define ENTER(name)                                    \
  do {                                                 \
    int code = 0;                                      \
    log_line("!%s\n", name, 0);                        \
    if (listed("FAKE_FAIL", name, &code)) return code; \
  } while (0)
#define NEEDS_CONTEXT \
  if (current() == NULL) return INVALID_CONTEXT
#define NEEDS_PAGES(address, nbytes, device)               \
  do {                                                     \
    Result reached = check_pages(address, nbytes, device); \
    if (reached != OK) return reached;                     \
  } while (0)
#define NEEDS_NO_CAPTURE(stream)        \
  do {                                  \
    Result open = not_captured(stream); \
    if (open != OK) return open;        \
  } while (0)
#define NEEDS_STREAM(stream)               \
  do {                                     \
    Result checked = check_stream(stream); \
    if (checked != OK) return checked;     \
  } while (0)
