// Runs a program through the core on a simulated machine and compares everything with the reference.
#pragma once

#include <cstdint>
#include <string>

#include "driver/sim/sim_driver.hpp"
#include "random/program.hpp"

namespace random_programs {

// A driver call that fails: steps that meet it raise, and the others must go on as if those had not been
// there.
struct Fault {
  bool ordered = false;
  stf_places::sim::FaultKind kind = stf_places::sim::FaultKind::event;
  std::uint64_t nth = 1;
};

// How a program is run. graphs: in contexts with graphs, where bodies on devices are enqueued and what stands
// within an open task comes before it, since nothing can be run there. scopes: what can be recorded is, in
// scopes that are opened and closed at random.
enum class Mode { streams, graphs, scopes };

// What was wrong, "" when nothing was.
std::string run(const Program& program, const stf_places::sim::Options& options, const Fault& fault = {},
                Mode mode = Mode::streams);

}  // namespace random_programs
