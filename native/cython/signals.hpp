// Lets long waits of the core notice signals, so that Ctrl-C works while Python code waits.
#pragma once

#include <Python.h>

#include "driver/driver.hpp"

// Takes the GIL and runs the handlers of signals that arrived. True when one raised: the exception stays set
// in the calling thread, and the wait ends with Code::interrupted, which lets that exception through.
inline bool stf_check_signals(void*) {
  PyGILState_STATE state = PyGILState_Ensure();
  bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return raised;
}

// The Interrupt to hand to every wait that Python code started.
inline stf_places::Interrupt stf_python_interrupt() { return {stf_check_signals, nullptr}; }
