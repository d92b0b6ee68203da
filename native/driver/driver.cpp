#include "driver.hpp"

namespace stf_places {

Status Driver::host_work(StreamHandle, HostFunction, HostFunction release, void* argument, const Work& work) {
  if (release != nullptr) release(argument);
  return Status(Failure{Code::not_supported, 0, "host_work", "",
                        "host code can stand for device work on a simulated machine only (task '" +
                            std::string(work.symbol) + "')"});
}

Status Driver::begin_body(StreamHandle, const Interrupt&) { return {}; }

Status Driver::end_body(StreamHandle, const Work&) { return {}; }

Status Driver::rest_graph_exec(GraphExecHandle) { return {}; }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace stf_places
