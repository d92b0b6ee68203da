// Gives Python objects back on the main thread, whoever is done with them.
//
// A callback record is finished on a thread of the driver's, where nothing of Python may be destroyed: a
// finalizer could call CUDA. `push` needs neither the GIL nor a lock. One pending call of the interpreter
// drains all that has gathered; if the interpreter has no room for it (32 are kept), the next `push` tries
// again, and so does the next call into the library that drains. While the interpreter shuts down nothing is
// given back: leaking is the only safe thing then.
#pragma once

#include <Python.h>

#include <atomic>

namespace stf_places {

struct ReleaseNode {
  ReleaseNode* next = nullptr;
  PyObject* object = nullptr;  // the record that this node is part of; one reference goes along with push
};

inline bool interpreter_is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

class ReleaseQueue {
 public:
  void push(ReleaseNode* node) noexcept {
    node->next = head_.load(std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(node->next, node, std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
    schedule();
  }
  bool pending() const noexcept { return head_.load(std::memory_order_relaxed) != nullptr; }
  // With the GIL, on the main thread.
  void drain() {
    scheduled_.store(false);
    ReleaseNode* node = head_.exchange(nullptr, std::memory_order_acquire);
    while (node != nullptr) {
      ReleaseNode* next = node->next;  // the node lives in the object
      Py_DECREF(node->object);
      node = next;
    }
  }

 private:
  void schedule() noexcept {
    if (scheduled_.exchange(true)) return;
    if (Py_AddPendingCall(&ReleaseQueue::drain_pending, this) != 0) scheduled_.store(false);
  }
  static int drain_pending(void* queue) {
    static_cast<ReleaseQueue*>(queue)->drain();
    return 0;
  }

  std::atomic<ReleaseNode*> head_{nullptr};
  std::atomic<bool> scheduled_{false};
};

}  // namespace stf_places
