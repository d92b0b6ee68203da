// Mistakes that the tests plant at compile time, to prove that they would find them.
#pragma once

#ifndef STF_PLANTED_MISTAKE
#define STF_PLANTED_MISTAKE 0
#endif

namespace stf_places {

enum class Mistake {
  none,
  missed_wait,  // now and then a stream does not wait for another one
  wrong_state,  // a copy on the host counts as valid after a write elsewhere
  early_free,   // a freed block forgets who still uses it
};

constexpr bool planted(Mistake mistake) { return static_cast<int>(mistake) == STF_PLANTED_MISTAKE; }

}  // namespace stf_places
