// Values whose last reference may end a driver, which is not done with the GIL.
#pragma once

#include <utility>

namespace stf_places {

// Lets go of what is behind a value.
template <class Value>
inline void let_go(Value& value) {
  const Value last = std::move(value);
}

}  // namespace stf_places
