// The one translation of C++ exceptions, as Cython's `except +raise_stf_error` calls it.
//
// The exception is looked at in the module that caught it, and only what it says crosses over to the module
// of the Python exceptions. A `throw;` there would find no exception where the C++ library is linked in
// statically, because each module can then have a copy of its own that knows what it has caught (seen as
// std::terminate).
#pragma once

#include <Python.h>

#include "cython/current_exception.hpp"

namespace stf_places {

using TranslateException = int (*)(const CurrentException*);

static inline TranslateException find_translator() {
  PyObject* module = PyImport_ImportModule("stf_places._native.errors");
  PyObject* capsule = module == nullptr ? nullptr : PyObject_GetAttrString(module, "translator");
  void* found =
      capsule == nullptr ? nullptr : PyCapsule_GetPointer(capsule, "stf_places._native.errors.translator");
  Py_XDECREF(capsule);
  Py_XDECREF(module);
  return reinterpret_cast<TranslateException>(found);
}

// Sets the Python exception that stands for the C++ exception being handled; returns -1. With the GIL.
static inline int raise_stf_error() {
  // An exception that is set already came from a signal handler during a wait: it says more than ours.
  if (PyErr_Occurred() != nullptr) return -1;
  const CurrentException current = current_exception();
  static TranslateException translate = nullptr;
  if (translate == nullptr) translate = find_translator();
  return translate == nullptr ? -1 : translate(&current);
}

}  // namespace stf_places
