/* Captures and graphs of the stand-in. A launch really does what was recorded, node by node.
 *
 * Stricter than the real driver is known to be: memory is not allocated or freed in a capture. As seen with
 * the real one (13.0), a capture ends well when of each stream that takes part the last nodes were waited
 * for, or set to none, or come before what its origin is at; and one that does not takes its graph along.
 */
#include "fake_graphs.h"

#include <string.h>

enum {
  STREAM_CAPTURE_UNSUPPORTED = 900,
  STREAM_CAPTURE_INVALIDATED,
  STREAM_CAPTURE_MERGE,
  STREAM_CAPTURE_UNMATCHED,
  STREAM_CAPTURE_UNJOINED,
  STREAM_CAPTURE_ISOLATION,
  GRAPH_EXEC_UPDATE_FAILURE = 910,
  ILLEGAL_STATE = 401,
  RELAXED = 2,
  SET = 1,
  USE_NODE_PRIORITY = 8,
};

struct Capture {
  Graph* graph;
  Stream* origin;
  Stream* members; /* the last one that joined, the origin first of all */
  int open;
  int invalid;
  Capture* earlier; /* of all that were ever begun */
};
static Capture* captures;
/* Nodes of its own, which name those before them by index. */
typedef struct Exec {
  int alive;
  Graph copy;
} Exec;

static NodeList copy_of(Node* const* nodes, size_t count) {
  NodeList made = {NULL, count};
  if (count == 0) return made;
  made.nodes = (Node**)malloc(count * sizeof(Node*));
  memcpy(made.nodes, nodes, count * sizeof(Node*));
  return made;
}
static void replace(NodeList* list, NodeList by) {
  free(list->nodes);
  *list = by;
}
static Capture* capture_of(Stream* stream) {
  if ((uintptr_t)stream <= 2 || stream->capture == NULL || !stream->capture->open) return NULL;
  return stream->capture;
}
int belong_to(const Graph* graph, Node* const* nodes, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (nodes[i] == NULL || nodes[i]->graph != graph) return 0;
  return 1;
}
Node* append_node(Graph* graph, const Operation* operation, Context* context, Node* const* after,
                  size_t count) {
  Node* made = (Node*)calloc(1, sizeof(Node));
  made->graph = graph;
  made->index = graph->all.count;
  made->operation = *operation;
  made->context = context;
  made->after = copy_of(after, count);
  if (graph->all.count == graph->room) {
    graph->room = graph->room == 0 ? 16 : 2 * graph->room;
    graph->all.nodes = (Node**)realloc(graph->all.nodes, graph->room * sizeof(Node*));
  }
  return graph->all.nodes[graph->all.count++] = made;
}

/* What the other files ask. */
Result submit(Stream* stream, const Operation* operation) {
  Capture* capture = capture_of(stream);
  if (capture == NULL) {
    perform(operation);
    return OK;
  }
  if (capture->invalid) return STREAM_CAPTURE_INVALIDATED;
  Node* made =
      append_node(capture->graph, operation, stream->context, stream->next.nodes, stream->next.count);
  replace(&stream->next, copy_of(&made, 1));
  return OK;
}
int captured(Stream* stream) { return capture_of(stream) != NULL; }
Result not_captured(Stream* stream) {
  Capture* capture = capture_of(stream);
  if (capture == NULL) return OK;
  capture->invalid = 1;
  return STREAM_CAPTURE_UNSUPPORTED;
}
Result no_stream_captured(int device) {
  Result result = OK;
  for (Capture* at = __atomic_load_n(&captures, __ATOMIC_ACQUIRE); at != NULL; at = at->earlier) {
    if (!at->open || at->origin->context->device != device) continue;
    at->invalid = 1;
    result = STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}
int capture_state(Stream* stream) {
  Capture* capture = capture_of(stream);
  return capture == NULL ? 0 : capture->invalid ? 2 : 1;
}
Result record_captured(Event* event, Stream* stream) {
  Capture* capture = capture_of(stream);
  event->capture = capture;
  replace(&event->stands_for,
          capture == NULL ? copy_of(NULL, 0) : copy_of(stream->next.nodes, stream->next.count));
  return capture != NULL && capture->invalid ? STREAM_CAPTURE_INVALIDATED : OK;
}
int is_captured(const Event* event) { return event->capture != NULL && event->capture->open; }
Result wait_captured(Stream* stream, Event* event) {
  Capture* own = capture_of(stream);
  if (event->capture != NULL && !event->capture->open) return INVALID_VALUE;
  if (own == NULL && event->capture == NULL) return OK;
  if (own != NULL && own != event->capture) {
    own->invalid = 1;
    if (event->capture == NULL) return STREAM_CAPTURE_ISOLATION;
    event->capture->invalid = 1;
    return STREAM_CAPTURE_MERGE;
  }
  if (event->capture->invalid) return own == NULL ? INVALID_VALUE : STREAM_CAPTURE_INVALIDATED;
  if (own == NULL) {
    replace(&stream->next, copy_of(NULL, 0));
    stream->member = event->capture->members;
    event->capture->members = stream;
  }
  stream->capture = event->capture;
  size_t had = stream->next.count, more = event->stands_for.count;
  NodeList both = {(Node**)malloc((had + more) * sizeof(Node*)), had + more};
  if (had > 0) memcpy(both.nodes, stream->next.nodes, had * sizeof(Node*));
  if (more > 0) memcpy(both.nodes + had, event->stands_for.nodes, more * sizeof(Node*));
  for (size_t i = 0; i < more; ++i) event->stands_for.nodes[i]->awaited = 1;
  replace(&stream->next, both);
  return OK;
}

/* Captures. */
static Result capture_to_graph(Stream* stream, Graph* graph, Node* const* after, const void* data,
                               size_t count, int mode) {
  ENTER("cuStreamBeginCaptureToGraph");
  NEEDS_STREAM(stream);
  if (!graph->alive || mode != RELAXED || data != NULL || !belong_to(graph, after, count))
    return INVALID_VALUE;
  if ((uintptr_t)stream <= 2) return STREAM_CAPTURE_UNSUPPORTED;
  if (capture_of(stream) != NULL || (graph->capture != NULL && graph->capture->open)) return ILLEGAL_STATE;
  Capture* made = (Capture*)calloc(1, sizeof(Capture));
  made->graph = graph;
  made->origin = made->members = stream;
  stream->member = NULL;
  made->open = 1;
  graph->capture = stream->capture = made;
  made->earlier = __atomic_load_n(&captures, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(&captures, &made->earlier, made, 0, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
    continue;
  replace(&stream->next, copy_of(after, count));
  return OK;
}
static Result update_dependencies(Stream* stream, Node** nodes, size_t count, unsigned flags) {
  ENTER("cuStreamUpdateCaptureDependencies");
  NEEDS_STREAM(stream);
  Capture* capture = capture_of(stream);
  if (capture == NULL) return ILLEGAL_STATE;
  if (capture->invalid) return STREAM_CAPTURE_INVALIDATED;
  if (flags != SET || !belong_to(capture->graph, nodes, count)) return INVALID_VALUE;
  replace(&stream->next, copy_of(nodes, count));
  return OK;
}
static Result capture_info(Stream* stream, int* state, uint64_t* id, Graph** graph, Node*** next,
                           const void** data, size_t* count) {
  ENTER("cuStreamGetCaptureInfo");
  NEEDS_STREAM(stream);
  if (id != NULL || data == NULL) return INVALID_VALUE; /* without room for the data it may fail */
  *state = capture_state(stream);
  if (*state != 1) return OK;
  *graph = stream->capture->graph;
  *next = stream->next.nodes;
  *data = NULL;
  *count = stream->next.count;
  return OK;
}
/* Whether what each stream is at was waited for, or comes before what the origin is at. */
static int is_joined(const Capture* capture) {
  const NodeList* all = &capture->graph->all;
  const NodeList* last = &capture->origin->next;
  for (size_t i = 0; i < all->count; ++i) all->nodes[i]->marked = 0;
  for (size_t i = 0; i < last->count; ++i) last->nodes[i]->marked = 1;
  for (size_t i = all->count; i-- > 0;) {
    const Node* node = all->nodes[i];
    for (size_t k = 0; node->marked && k < node->after.count; ++k) node->after.nodes[k]->marked = 1;
  }
  for (const Stream* stream = capture->members; stream != NULL; stream = stream->member)
    for (size_t i = 0; i < stream->next.count; ++i)
      if (!stream->next.nodes[i]->marked && !stream->next.nodes[i]->awaited) return 0;
  return 1;
}
static Result end_capture(Stream* stream, Graph** out) {
  ENTER("cuStreamEndCapture");
  NEEDS_STREAM(stream);
  *out = NULL;
  Capture* capture = capture_of(stream);
  if (capture == NULL) return ILLEGAL_STATE;
  if (capture->origin != stream) return STREAM_CAPTURE_UNMATCHED;
  capture->open = 0;
  Result result = capture->invalid     ? STREAM_CAPTURE_INVALIDATED
                  : is_joined(capture) ? OK
                                       : STREAM_CAPTURE_UNJOINED;
  if (result == OK)
    *out = capture->graph;
  else
    capture->graph->alive = 0;
  return result;
}

/* Graphs. */
static Result graph_create(Graph** out, unsigned flags) {
  ENTER("cuGraphCreate");
  *out = (Graph*)calloc(1, sizeof(Graph));
  (*out)->alive = 1;
  return flags == 0 ? OK : INVALID_VALUE;
}
static Result graph_destroy(Graph* graph) {
  ENTER("cuGraphDestroy");
  if (!graph->alive || graph->loop != NULL) return INVALID_VALUE; /* a crash in the real one, at times */
  graph->alive = 0; /* kept, so that its nodes can say that they are gone */
  end_bodies(graph);
  return OK;
}
static Result add_empty(Node** out, Graph* graph, Node* const* after, size_t count) {
  static const Operation nothing;
  ENTER("cuGraphAddEmptyNode");
  if (!graph->alive || !belong_to(graph, after, count)) return INVALID_VALUE;
  *out = append_node(graph, &nothing, NULL, after, count);
  return OK;
}
static Result graph_nodes(Graph* graph, Node** out, size_t* count) {
  ENTER("cuGraphGetNodes");
  if (!graph->alive) return INVALID_VALUE;
  if (out != NULL) memcpy(out, graph->all.nodes, graph->all.count * sizeof(Node*));
  *count = graph->all.count;
  return OK;
}
static Result graph_edges(Graph* graph, Node** from, Node** to, uint64_t* data, size_t* count) {
  size_t found = 0;
  ENTER("cuGraphGetEdges");
  if (!graph->alive || (from != NULL && data == NULL)) return INVALID_VALUE;
  for (size_t i = 0; i < graph->all.count; ++i) {
    Node* node = graph->all.nodes[i];
    for (size_t k = 0; k < node->after.count; ++k, ++found) {
      if (from == NULL) continue;
      from[found] = node->after.nodes[k];
      to[found] = node;
      data[found] = 0;
    }
  }
  *count = found;
  return OK;
}

/* Executables. */
void clone_graph(Graph* into, const Graph* graph) {
  for (size_t i = 0; i < graph->all.count; ++i) {
    const Node* node = graph->all.nodes[i];
    Node* made = append_node(into, &node->operation, node->context, node->after.nodes, node->after.count);
    for (size_t k = 0; k < made->after.count; ++k)
      made->after.nodes[k] = into->all.nodes[made->after.nodes[k]->index];
    made->condition = node->condition;
    if (node->inner == NULL) continue;
    made->inner = (Graph*)calloc(1, sizeof(Graph));
    clone_graph(made->inner, node->inner);
  }
}
int is_open(const Graph* graph) { return graph->capture != NULL && graph->capture->open; }
static Result instantiate(Exec** out, Graph* graph, unsigned long long flags) {
  ENTER("cuGraphInstantiateWithFlags");
  NEEDS_CONTEXT;
  if (!graph->alive || graph->loop != NULL || is_open(graph) || flags != USE_NODE_PRIORITY)
    return INVALID_VALUE;
  *out = (Exec*)calloc(1, sizeof(Exec));
  (*out)->alive = 1;
  clone_graph(&(*out)->copy, graph);
  return OK;
}
static int node_fits(const Node* node, const Node* other) {
  if (node->operation.kind != other->operation.kind || node->context != other->context) return 0;
  if (node->after.count != other->after.count || node->inner != NULL || other->inner != NULL) return 0;
  for (size_t i = 0; i < node->after.count; ++i)
    if (node->after.nodes[i]->index != other->after.nodes[i]->index) return 0;
  return 1;
}
typedef struct UpdateInfo {
  int result;
  Node *node, *from;
} UpdateInfo;
static Result update(Exec* exec, Graph* graph, UpdateInfo* info) {
  ENTER("cuGraphExecUpdate");
  if (!exec->alive || !graph->alive || is_open(graph)) return INVALID_VALUE;
  info->result = 2; /* TOPOLOGY_CHANGED */
  if (graph->all.count != exec->copy.all.count) return GRAPH_EXEC_UPDATE_FAILURE;
  for (size_t i = 0; i < graph->all.count; ++i)
    if (!node_fits(graph->all.nodes[i], exec->copy.all.nodes[i])) return GRAPH_EXEC_UPDATE_FAILURE;
  for (size_t i = 0; i < graph->all.count; ++i)
    exec->copy.all.nodes[i]->operation = graph->all.nodes[i]->operation;
  info->result = 0;
  return OK;
}
static void run_after_others(Node* node) {
  if (node->marked) return;
  node->marked = 1;
  for (size_t i = 0; i < node->after.count; ++i) run_after_others(node->after.nodes[i]);
  if (node->inner != NULL)
    run_inner(node);
  else
    perform(&node->operation);
}
void run_all(Graph* graph) {
  NodeList* all = &graph->all;
  int last_first = number("FAKE_LAST_FIRST", 0);
  for (size_t i = 0; i < all->count; ++i) all->nodes[i]->marked = 0;
  for (size_t i = 0; i < all->count; ++i) run_after_others(all->nodes[last_first ? all->count - 1 - i : i]);
}
static Result launch(Exec* exec, Stream* stream) {
  ENTER("cuGraphLaunch");
  NEEDS_STREAM(stream);
  if (!exec->alive || capture_of(stream) != NULL) return INVALID_VALUE;
  reset_conditions(&exec->copy);
  run_all(&exec->copy);
  return OK;
}
static Result exec_destroy(Exec* exec) {
  ENTER("cuGraphExecDestroy");
  if (!exec->alive) return INVALID_VALUE;
  exec->alive = 0;
  return OK;
}

const Entry graph_entries[] = {
    {"cuStreamBeginCaptureToGraph", 12030, (void*)capture_to_graph},
    {"cuStreamUpdateCaptureDependencies", 11030, (void*)update_dependencies},
    {"cuStreamGetCaptureInfo", 12030, (void*)capture_info},
    {"cuStreamEndCapture", 10000, (void*)end_capture},
    {"cuGraphCreate", 10000, (void*)graph_create},
    {"cuGraphDestroy", 10000, (void*)graph_destroy},
    {"cuGraphAddEmptyNode", 10000, (void*)add_empty},
    {"cuGraphGetNodes", 10000, (void*)graph_nodes},
    {"cuGraphGetEdges", 12030, (void*)graph_edges},
    {"cuGraphInstantiateWithFlags", 11040, (void*)instantiate},
    {"cuGraphExecUpdate", 12000, (void*)update},
    {"cuGraphLaunch", 10000, (void*)launch},
    {"cuGraphExecDestroy", 10000, (void*)exec_destroy},
    {NULL, 0, NULL},
};
