// Marks that a thread is inside a Context, and says so when two are.
#pragma once

#include "core/context.hpp"

namespace stf_places {

class Entry {
 public:
  enum class Closed { refuse, allow };

  explicit Entry(Context& context, Closed closed = Closed::refuse) : context_(context) {
    if (context_.busy_.exchange(true, std::memory_order_acquire)) {
      throw Error(ErrorKind::task_state,
                  "this context is in use right now by another thread, or by a call that "
                  "a callback interrupts: use one context a thread");
    }
    if (context_.open_tasks_ > 0 && context_.owner_ != std::this_thread::get_id()) {
      leave();
      throw Error(ErrorKind::task_state,
                  "a task of this context is open in another thread: end it there first, "
                  "or use one context a thread");
    }
    if (closed == Closed::refuse && context_.closed_) {
      leave();
      throw Error(ErrorKind::context_closed,
                  context_.scope_ == nullptr ? "the context was finalized: make a new one"
                                             : "its scope has ended or was discarded: make it in another");
    }
    if (context_.has_dropped_.load(std::memory_order_relaxed)) context_.drain_dropped();
  }
  ~Entry() { leave(); }
  Entry(const Entry&) = delete;

 private:
  void leave() { context_.busy_.store(false, std::memory_order_release); }
  Context& context_;
};

}  // namespace stf_places
