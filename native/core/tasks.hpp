// The life of a task: checked, given a stream and its data, opened, closed.
#pragma once

#include "core/context.hpp"

namespace stf_places {

// What happens between start and end of a task.
enum class Body {
  work,       // the caller's: enqueues on the task's streams, or on a simulated machine uses the CPU
  operation,  // an operation of the core's own, enqueued on the task's stream
  callback,   // a host function enqueued on the task's stream
  scope,      // what a scope recorded: its own tasks were asked whether they reach their data
};

// Throws Error(wrong_context).
[[noreturn]] void refuse_foreign(const Data& data);

class Tasks {
 public:
  explicit Tasks(Context& context) : context_(context) {}

  void open(Task& task, Body body, const Interrupt& interrupt);
  void close(Task& task, Body body, bool failed, const Interrupt& interrupt);
  // Host code that stands for work of an open task on one of its places; takes `argument` in any case.
  void run(Task& task, std::size_t place, HostFunction function, HostFunction release, void* argument);
  // A kernel as work of an open task on one of its places.
  void launch(Task& task, std::size_t place, const KernelLaunch& kernel);

 private:
  void resolve_place(Task& task, ContextHandle current);
  static void enter_places(const Task& task);
  static void leave_places(const Task& task);
  void merge(Task& task) const;
  void resolve_data_place(const Task& task, Dependency& dependency) const;
  void replicate(Task& task) const;
  void take_over(Dependency& dependency) const;
  static void unite(Task& task, Dependency& dependency);
  void check(const Task& task, const Dependency& access) const;
  void check_reach(const Task& task, std::size_t index) const;
  void choose_streams(Task& task);
  void pick_stream(Task& task, const ExecPlace& place);
  static Stream* shared_stream(const Task& task, const std::vector<Stream*>& streams);
  Stream* predecessor(const Task& task, const void* group) const;
  static void note_imports(const Task& task);
  void prepare(Task& task, Body body);
  void open_pages(const Task& task, const Instance& instance);
  void unpin(Task& task);
  bool order(Task& task, Body body);
  void fork(Task& task);
  void join(Task& task);
  void log(const Task& task);
  void enter_body(Task& task, Body body, bool pending, const Interrupt& interrupt);
  void trace_places(Task& task);
  void make_current(Task& task, ContextHandle current);
  using Accesses = SmallVector<Access, 8>;
  static bool uses(const Task& task, std::size_t place, const Dependency& access);
  // `shared`: of work on one of several streams.
  static Accesses accesses(const Task& task, std::size_t place, bool shared);
  Status describe_body(Task& task);
  void replace_points(Task& task, const PointRef& point);
  Status leave(Task& task);
  void check_default_streams(const Task& task);

  Context& context_;
};

}  // namespace stf_places
