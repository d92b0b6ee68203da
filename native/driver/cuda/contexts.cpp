#include "contexts.hpp"

namespace stf_places::cuda {

ContextScope::ContextScope(const Api& api, CUcontext context) : api_(api) { enter(context, nullptr); }

ContextScope::ContextScope(const Api& api, const GreenContexts& greens, CUcontext context) : api_(api) {
  enter(context, &greens);
}

void ContextScope::enter(CUcontext context, const GreenContexts* greens) {
  if (context == nullptr) {
    status_ = Status(Failure{Code::invalid_value, 0, "cuCtxPushCurrent", "", "context 0 is no context"});
    return;
  }
  CUcontext current = nullptr;
  status_ = api_.CtxGetCurrent(&current);
  if (!status_ || current == context) return;
  // Looked up here, because most calls end on the line above.
  if (greens != nullptr) context = greens->stand_in(context);
  if (current == context) return;
  status_ = api_.CtxPushCurrent(context);
  pushed_ = status_.ok();
}

ContextScope::~ContextScope() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  api_.CtxPopCurrent(&popped).ignore();
}

}  // namespace stf_places::cuda
