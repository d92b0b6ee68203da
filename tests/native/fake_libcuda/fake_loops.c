/* Graphs within graphs, and loops, of the stand-in. Rounds are run until the condition is 0, on the spot.
 *
 * Conditions get their value at the launch alone, not when the body of an outer loop is run again: what the
 * real one does then is said nowhere.
 */
#include <string.h>

#include "fake_graphs.h"

enum { CONDITIONAL = 13, WHILE = 1, ASSIGN_DEFAULT = 1 };

/* ---- What bodies hold ---- */
static int has_loops(const Graph* graph) {
  for (size_t i = 0; i < graph->all.count; ++i) {
    const Node* node = graph->all.nodes[i];
    if (node->condition != NULL || (node->inner != NULL && has_loops(node->inner))) return 1;
  }
  return 0;
}
static int suits_body(const Graph* graph, const Context* context) {
  for (size_t i = 0; i < graph->all.count; ++i) {
    const Node* node = graph->all.nodes[i];
    if (node->operation.kind == CALL) return 0;
    if (node->context != NULL && node->context != context) return 0;
    if (node->inner != NULL && !suits_body(node->inner, context)) return 0;
  }
  return 1;
}
static int in_place(const Graph* graph, const Context* context) {
  return graph->loop == NULL || graph->loop->context == context;
}

/* ---- Nodes ---- */
static Result add_child(Node** out, Graph* graph, Node* const* after, size_t count, Graph* child) {
  static const Operation nothing;
  ENTER("cuGraphAddChildGraphNode");
  if (!graph->alive || !child->alive || is_open(child) || !belong_to(graph, after, count))
    return INVALID_VALUE;
  if (has_loops(child) || (graph->loop != NULL && !suits_body(child, graph->loop->context)))
    return INVALID_VALUE;
  *out = append_node(graph, &nothing, NULL, after, count);
  (*out)->inner = (Graph*)calloc(1, sizeof(Graph));
  clone_graph((*out)->inner, child);
  return OK;
}
static Result create_condition(Condition** out, Graph* graph, Context* context, unsigned value,
                               unsigned flags) {
  ENTER("cuGraphConditionalHandleCreate");
  if (!graph->alive || context == NULL || flags != ASSIGN_DEFAULT) return INVALID_VALUE;
  *out = (Condition*)calloc(1, sizeof(Condition));
  (*out)->graph = graph;
  (*out)->context = context;
  (*out)->at_launch = value;
  return OK;
}
typedef struct NodeParams {
  int type, reserved[3];
  Condition* condition;
  int loop;
  unsigned size;
  Graph** bodies;
  Context* context;
  uint64_t rest[26];
} NodeParams;
static Result add_node(Node** out, Graph* graph, Node* const* after, const void* data, size_t count,
                       NodeParams* given) {
  static const Operation nothing;
  ENTER("cuGraphAddNode");
  _Static_assert(sizeof(NodeParams) == 256, "as in cuda.h");
  Condition* condition = given->condition;
  if (!graph->alive || !belong_to(graph, after, count) || data != NULL || given->type != CONDITIONAL)
    return INVALID_VALUE;
  if (given->loop != WHILE || given->size != 1 || given->bodies != NULL || condition == NULL)
    return INVALID_VALUE;
  if (condition->graph != graph || condition->context != given->context || condition->body != NULL ||
      !in_place(graph, given->context))
    return INVALID_VALUE;
  *out = append_node(graph, &nothing, given->context, after, count);
  (*out)->inner = condition->body = (Graph*)calloc(1, sizeof(Graph));
  condition->body->alive = 1;
  condition->body->loop = (*out)->condition = condition;
  given->bodies = &(*out)->inner;
  return OK;
}
typedef struct KernelParams {
  const void* function;
  unsigned dims[7];
  void **parameters, **extra;
  const void* kernel;
  Context* context;
} KernelParams;
static Result add_kernel(Node** out, Graph* graph, Node* const* after, size_t count,
                         const KernelParams* given) {
  Operation operation;
  ENTER("cuGraphAddKernelNode");
  if (!graph->alive || !belong_to(graph, after, count) || given->function != NULL) return INVALID_VALUE;
  if (given->kernel == NULL || given->context == NULL || !in_place(graph, given->context))
    return INVALID_VALUE;
  Result made = kernel_operation(given->kernel, given->dims, given->parameters, given->extra, &operation);
  if (made != OK) return made;
  *out = append_node(graph, &operation, given->context, after, count);
  return OK;
}

/* ---- What the other files ask ---- */
void run_inner(Node* node) {
  if (node->condition == NULL) {
    run_all(node->inner);
    return;
  }
  while (node->condition->value != 0) run_all(node->inner);
}
void reset_conditions(Graph* graph) {
  for (size_t i = 0; i < graph->all.count; ++i) {
    Node* node = graph->all.nodes[i];
    if (node->condition != NULL) node->condition->value = node->condition->at_launch;
    if (node->inner != NULL) reset_conditions(node->inner);
  }
}
void end_bodies(Graph* graph) {
  for (size_t i = 0; i < graph->all.count; ++i) {
    Graph* inner = graph->all.nodes[i]->inner;
    if (inner == NULL) continue;
    inner->alive = 0;
    end_bodies(inner);
  }
}

/* ---- The kernel that sets conditions, for tests: a CUkernel with this name is found in the stand-in ---- */
typedef struct Term {
  const void* value;
  unsigned char type, compare, negate;
  double real;
  int64_t whole;
} Term;
typedef struct LoopCondition {
  Term terms[8];
  uint32_t size;
  unsigned char any;
  uint64_t *counter, count;
} LoopCondition;

#define COMPARES(how, a, b) \
  ((how) == 0 ? (a) < (b) : (how) == 1 ? (a) <= (b) : (how) == 2 ? (a) > (b) : (a) >= (b))
static int term_holds(const Term* term) {
  int compared = 0;
  switch (term->type) {
    case 0:
      compared = COMPARES(term->compare, *(const float*)term->value, (float)term->real);
      break;
    case 1:
      compared = COMPARES(term->compare, *(const double*)term->value, term->real);
      break;
    case 2:
      compared = COMPARES(term->compare, *(const int32_t*)term->value, (int32_t)term->whole);
      break;
    default:
      compared = COMPARES(term->compare, *(const int64_t*)term->value, term->whole);
  }
  return compared != term->negate;
}
static int when_holds(const LoopCondition* when) {
  if (when->counter != NULL) {
    *when->counter = *when->counter + 1 < when->count ? *when->counter + 1 : 0;
    return *when->counter != 0;
  }
  for (uint32_t at = 0; at < when->size; ++at)
    if (term_holds(&when->terms[at]) == when->any) return when->any;
  return !when->any;
}
static void set_condition(const unsigned* dims, const char* parameters) {
  Condition* condition;
  LoopCondition when;
  (void)dims;
  _Static_assert(sizeof when == 280, "as in driver.hpp");
  memcpy(&condition, parameters, sizeof condition);
  memcpy(&when, parameters + sizeof condition, sizeof when);
  condition->value = (unsigned)when_holds(&when);
}
static const uint64_t sizes[] = {sizeof(Condition*), sizeof(LoopCondition)};
const Kernel set_condition_kernel = {set_condition, 2, sizes};

const Entry loop_entries[] = {
    {"cuGraphAddChildGraphNode", 10000, (void*)add_child},
    {"cuGraphConditionalHandleCreate", 12030, (void*)create_condition},
    {"cuGraphAddNode", 12030, (void*)add_node},
    {"cuGraphAddKernelNode", 12000, (void*)add_kernel},
    {NULL, 0, NULL},
};
