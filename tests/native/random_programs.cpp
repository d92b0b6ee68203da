// Random task programs, each in program order and in two chaos orders, against the sequential reference.
//
//   random_programs [--programs N] [--first SEED] [--program SEED] [--faults 1] [--graphs 1] [--scopes 1]
//
// With --faults each program runs with one failing driver call in it.
//
// Exit status 0: as it should be. That is: no program went wrong, or, where a mistake is planted
// (core/planted.hpp), one of them found it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/planted.hpp"
#include "random/generate.hpp"
#include "random/run.hpp"

using namespace random_programs;

namespace {

constexpr int chaos_orders = 2;

const char* mode_option(Mode mode) {
  if (mode == Mode::streams) return "";
  return mode == Mode::graphs ? " --graphs 1" : " --scopes 1";
}

struct Request {
  std::uint64_t programs = 2000;
  std::uint64_t first = 1;
  bool verbose = false;
  bool faults = false;
  Mode mode = Mode::streams;
};

Fault fault_for(std::uint64_t seed, int order) {
  const std::uint64_t drawn = (seed * 3 + static_cast<std::uint64_t>(order)) * 2654435761u;
  const auto kind =
      (drawn >> 8) % 3 == 0 ? stf_places::sim::FaultKind::allocation : stf_places::sim::FaultKind::event;
  return {true, kind, 1 + (drawn >> 16) % 30};
}

// Prints what went wrong; returns whether all went well.
bool passes(std::uint64_t seed, const Request& request) {
  const Program program = generate(seed);
  if (request.verbose) std::printf("%s", text_of(program).c_str());
  for (int order = 0; order <= chaos_orders; ++order) {
    stf_places::sim::Options options;
    options.chaos = order != 0;
    options.seed = seed + static_cast<std::uint64_t>(order);
    const Fault fault = request.faults ? fault_for(seed, order) : Fault{};
    const std::string wrong = run(program, options, fault, request.mode);
    if (wrong.empty()) continue;
    std::printf("program %llu in %s", static_cast<unsigned long long>(seed),
                order == 0 ? "program order" : ("chaos order " + std::to_string(order)).c_str());
    if (fault.ordered) {
      std::printf(" with a fault in %s %llu",
                  fault.kind == stf_places::sim::FaultKind::event ? "event call" : "allocation",
                  static_cast<unsigned long long>(fault.nth));
    }
    std::printf(": %s\n", wrong.c_str());
    if (!request.verbose) std::printf("%s", text_of(program).c_str());
    return false;
  }
  return true;
}

Request parse(int count, char** arguments) {
  Request request;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::uint64_t value = std::strtoull(arguments[i + 1], nullptr, 10);
    if (std::strcmp(arguments[i], "--programs") == 0) request.programs = value;
    if (std::strcmp(arguments[i], "--first") == 0) request.first = value;
    if (std::strcmp(arguments[i], "--faults") == 0) request.faults = value != 0;
    if (std::strcmp(arguments[i], "--graphs") == 0 && value != 0) request.mode = Mode::graphs;
    if (std::strcmp(arguments[i], "--scopes") == 0 && value != 0) request.mode = Mode::scopes;
    if (std::strcmp(arguments[i], "--program") == 0) {
      request.first = value;
      request.programs = 1;
      request.verbose = true;
    }
  }
  return request;
}

}  // namespace

int main(int count, char** arguments) {
  const Request request = parse(count, arguments);
  const bool expected_to_pass = stf_places::planted(stf_places::Mistake::none);
  for (std::uint64_t seed = request.first; seed < request.first + request.programs; ++seed) {
    if (passes(seed, request)) continue;
    std::printf("repeat with --program %llu%s%s\n", static_cast<unsigned long long>(seed),
                request.faults ? " --faults 1" : "", mode_option(request.mode));
    return expected_to_pass ? 1 : 0;
  }
  std::printf("%llu programs went well\n", static_cast<unsigned long long>(request.programs));
  return expected_to_pass ? 0 : 1;
}
