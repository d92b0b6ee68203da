/* SMs and green contexts of the stand-in: what an H200 answers, 132 SMs in steps of 8. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

enum { SMS = 132, UNIT = 8, FINE_UNIT = 2, SM_TYPE = 1, QUEUES_TYPE = 1000, INVALID_CONFIGURATION = 915 };

/* As cuda.h lays it out. The padding is the driver's own: here it says where the SMs come from. */
typedef struct Resource {
  int type;
  int device;
  int split;     /* number of the split that made it, 0 for what can be split */
  int from_call; /* the driver filled it in */
  char padding[80];
  union {
    struct {
      unsigned count, min_partition, alignment, flags, domain;
    } sm;
    struct {
      int device;
      unsigned limit;
      int scope;
    } queues;
    char size[40];
  } as;
  struct Resource* next;
} Resource;
typedef struct Description {
  int device;
  int sms;
  unsigned limit;
  int scope;
} Description;
typedef struct Green {
  int alive;
  int sms;
  Context context; /* not the first member: a handle of the one kind is none of the other */
} Green;

static int splits;

static Resource sm_resource(int device, unsigned count) {
  Resource made;
  memset(&made, 0, sizeof made);
  if (count == 0) return made; /* of no valid type */
  made.type = SM_TYPE;
  made.device = device;
  made.from_call = 1;
  made.as.sm.count = count;
  return made;
}
static Resource divisible(int device, unsigned count) {
  Resource made = sm_resource(device, count);
  if (number("FAKE_VERSION", 13000) >= 13000) made.as.sm.min_partition = made.as.sm.alignment = UNIT;
  return made;
}
static Resource group(int device, unsigned count, int split) {
  Resource made = sm_resource(device, count);
  made.split = split;
  return made;
}
static int is_divisible(const Resource* input) {
  return input->type == SM_TYPE && input->from_call && input->split == 0;
}

static Result device_resource(int device, Resource* out, int type) {
  ENTER("cuDeviceGetDevResource");
  if (type == SM_TYPE) {
    *out = divisible(device, SMS);
    return OK;
  }
  if (type != QUEUES_TYPE || number("FAKE_VERSION", 13000) < 13010) return 914;
  memset(out, 0, sizeof *out);
  out->type = QUEUES_TYPE;
  out->device = out->as.queues.device = device;
  out->from_call = 1;
  out->as.queues.limit = 4;
  return OK;
}
static Result context_resource(Context* context, Resource* out, int type) {
  ENTER("cuCtxGetDevResource");
  if (type != SM_TYPE) return 914;
  *out = divisible(context->device, context->green != NULL ? (unsigned)context->green->sms : SMS);
  return OK;
}

static Result split_by_count(Resource* result, unsigned* groups, const Resource* input, Resource* rest,
                             unsigned flags, unsigned least) {
  ENTER("cuDevSmResourceSplitByCount");
  if (flags > 1 || groups == NULL) return INVALID_VALUE;
  if (!is_divisible(input) || least > input->as.sm.count) return INVALID_CONFIGURATION;
  unsigned unit = flags == 1 ? FINE_UNIT : UNIT;
  unsigned size = least < unit ? unit : (least + unit - 1) / unit * unit;
  if (size > input->as.sm.count) size = input->as.sm.count; /* the whole, as one group */
  unsigned fit = input->as.sm.count / size;
  if (size == UNIT && input->as.sm.count == SMS) fit = 15; /* one cluster's hardware is not whole */
  if (result == NULL) {
    *groups = fit;
    return OK;
  }
  if (*groups > fit) *groups = fit;
  int split = ++splits;
  for (unsigned i = 0; i < *groups; ++i) result[i] = group(input->device, size, split);
  if (rest != NULL) *rest = group(input->device, input->as.sm.count - *groups * size, split);
  return OK;
}

typedef struct Wish {
  unsigned count, coscheduled, preferred, flags, reserved[12];
} Wish;
static Result split_unequally(Resource* result, unsigned groups, const Resource* input, Resource* rest,
                              unsigned flags, Wish* wishes) {
  ENTER("cuDevSmResourceSplit");
  if (flags != 0 || groups == 0) return INVALID_VALUE;
  if (!is_divisible(input)) return INVALID_CONFIGURATION;
  unsigned left = input->as.sm.count;
  int split = ++splits;
  for (unsigned i = 0; i < groups; ++i) {
    Wish* wish = &wishes[i];
    unsigned unit = wish->coscheduled != 0 ? wish->coscheduled : UNIT;
    if (wish->preferred != 0 || wish->flags != 0 || wish->reserved[11] != 0) return INVALID_VALUE;
    if (wish->count == 0) wish->count = left / unit * unit; /* as many as there are */
    if (wish->count == 0 || wish->count % unit != 0 || wish->count > left) return INVALID_CONFIGURATION;
    result[i] = group(input->device, wish->count, split);
    left -= wish->count;
  }
  if (rest != NULL) *rest = group(input->device, left, split);
  return OK;
}

static Result generate(Description** out, Resource* resources, unsigned count) {
  ENTER("cuDevResourceGenerateDesc");
  Description made = {resources[0].device, 0, 0, 0};
  for (unsigned i = 0; i < count; ++i) {
    Resource* given = &resources[i];
    if (!given->from_call) return 914;
    if (given->device != made.device) return INVALID_CONFIGURATION;
    if (given->type == QUEUES_TYPE) {
      made.limit = given->as.queues.limit;
      made.scope = given->as.queues.scope;
    } else if (given->split != resources[0].split) {
      return INVALID_CONFIGURATION;
    } else {
      made.sms += (int)given->as.sm.count;
    }
  }
  if (made.sms == 0) return INVALID_CONFIGURATION;
  *out = (Description*)malloc(sizeof(Description)); /* for ever, as in the real one */
  **out = made;
  return OK;
}
static Result green_create(Green** out, Description* description, int device, unsigned flags) {
  char text[80];
  ENTER("cuGreenCtxCreate");
  if (flags != 1 || description->device != device) return INVALID_VALUE;
  if (primary_of(device)->retained == 0) return INVALID_CONTEXT; /* slow in the real one */
  snprintf(text, sizeof text, "green context of %d SMs, limit %u, scope %d", description->sms,
           description->limit, description->scope);
  log_line("!%s\n", text, 0);
  Green* made = (Green*)calloc(1, sizeof(Green));
  made->alive = 1;
  made->sms = description->sms;
  made->context.device = device;
  made->context.green = made;
  *out = made;
  return OK;
}
static Result green_destroy(Green* green) {
  ENTER("cuGreenCtxDestroy");
  if (!green->alive) return INVALID_CONTEXT;
  green->alive = 0; /* kept, so that streams and events of it can say what is wrong with them */
  return OK;
}
static Result green_context(Context** out, Green* green) {
  ENTER("cuCtxFromGreenCtx");
  *out = &green->context;
  return green->alive ? OK : INVALID_CONTEXT;
}
static Result green_stream(Stream** out, Green* green, unsigned flags, int priority) {
  char text[80];
  ENTER("cuGreenCtxStreamCreate");
  if (!green->alive) return INVALID_CONTEXT;
  if (flags != 1 || priority > 0 || priority < -5) return INVALID_VALUE;
  snprintf(text, sizeof text, "green stream of %d SMs, priority %d", green->sms, priority);
  log_line("!%s\n", text, 0);
  *out = new_stream(&green->context);
  return OK;
}
int is_destroyed(const Context* context) { return context->green != NULL && !context->green->alive; }

const Entry green_entries[] = {
    {"cuDeviceGetDevResource", 12040, (void*)device_resource},
    {"cuCtxGetDevResource", 12040, (void*)context_resource},
    {"cuDevSmResourceSplitByCount", 12040, (void*)split_by_count},
    {"cuDevSmResourceSplit", 13010, (void*)split_unequally},
    {"cuDevResourceGenerateDesc", 12040, (void*)generate},
    {"cuGreenCtxCreate", 12040, (void*)green_create},
    {"cuGreenCtxDestroy", 12040, (void*)green_destroy},
    {"cuCtxFromGreenCtx", 12040, (void*)green_context},
    {"cuGreenCtxStreamCreate", 12050, (void*)green_stream},
    {NULL, 0, NULL},
};
