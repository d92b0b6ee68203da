#include "driver.hpp"

#include <cstring>

namespace stf_places {

namespace {

template <class Value>
Value value_at(Address address) {
  Value value;
  std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
  return value;
}

template <class Value>
bool compares(LoopCondition::Compare how, Value value, Value threshold) {
  switch (how) {
    case LoopCondition::Compare::less:
      return value < threshold;
    case LoopCondition::Compare::less_equal:
      return value <= threshold;
    case LoopCondition::Compare::greater:
      return value > threshold;
    case LoopCondition::Compare::greater_equal:
      return value >= threshold;
  }
  return false;
}

bool holds(const LoopCondition::Term& term) {
  bool compared = false;
  switch (term.type) {
    case LoopCondition::Type::float32:
      compared = compares(term.compare, value_at<float>(term.value), static_cast<float>(term.real));
      break;
    case LoopCondition::Type::float64:
      compared = compares(term.compare, value_at<double>(term.value), term.real);
      break;
    case LoopCondition::Type::int32:
      compared =
          compares(term.compare, value_at<std::int32_t>(term.value), static_cast<std::int32_t>(term.whole));
      break;
    case LoopCondition::Type::int64:
      compared = compares(term.compare, value_at<std::int64_t>(term.value), term.whole);
      break;
  }
  return compared != term.negate;
}

// Counts a round, and says whether more follow.
bool counts_on(const LoopCondition& condition) {
  const std::uint64_t rounds = value_at<std::uint64_t>(condition.counter) + 1;
  const bool more = rounds < condition.count;
  const std::uint64_t next = more ? rounds : 0;
  std::memcpy(reinterpret_cast<void*>(condition.counter), &next, sizeof next);
  return more;
}

}  // namespace

bool holds(const LoopCondition& condition) {
  if (condition.counter != 0) return counts_on(condition);
  for (std::uint32_t at = 0; at < condition.size; ++at) {
    if (holds(condition.terms[at]) == condition.any) return condition.any;
  }
  return !condition.any;
}

std::string wrong_with(const LoopCondition& condition) {
  if (condition.size > LoopCondition::most_terms) {
    return "a condition has at most " + std::to_string(LoopCondition::most_terms) + " terms: got " +
           std::to_string(condition.size);
  }
  if (condition.counter == 0) return "";
  if (condition.size != 0) return "a condition either counts or has terms: got both";
  return condition.count == 0 ? "a loop that counts goes round at least once: got count=0" : "";
}

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
