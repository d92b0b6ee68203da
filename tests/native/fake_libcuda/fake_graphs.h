/* What the stand-in's graphs are made of. */
#pragma once

#include "fake.h"

typedef struct Node {
  struct Graph* graph;
  size_t index; /* in its graph */
  Operation operation;
  Context* context;
  NodeList after;
  int marked;
  int awaited;                 /* in the capture, by a stream that waited for an event behind it */
  struct Graph* inner;         /* a graph within, or the body of a loop */
  struct Condition* condition; /* of a loop */
} Node;
typedef struct Graph {
  int alive;
  Capture* capture; /* the last one */
  NodeList all;     /* in the order in which they were added, hence from first to last */
  size_t room;
  struct Condition* loop; /* whose body it is, or null */
} Graph;
typedef struct Condition {
  Graph* graph; /* that the loop is in */
  Context* context;
  unsigned value, at_launch;
  Graph* body;
} Condition;

Node* append_node(Graph* graph, const Operation* operation, Context* context, Node* const* after,
                  size_t count);
int belong_to(const Graph* graph, Node* const* nodes, size_t count);
int is_open(const Graph* graph); /* being recorded */
/* Copies nodes into a graph without any. */
void clone_graph(Graph* into, const Graph* graph);
void run_all(Graph* graph);
/* Does what a node with a graph in it does. */
void run_inner(Node* node);
void reset_conditions(Graph* graph);
void end_bodies(Graph* graph);
