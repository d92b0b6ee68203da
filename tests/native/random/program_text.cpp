#include "random/program.hpp"

namespace random_programs {

namespace {

const char* name_of(Step::Kind kind) {
  switch (kind) {
    case Step::Kind::create:
      return "create";
    case Step::Kind::task:
      return "task";
    case Step::Kind::callback:
      return "callback";
    case Step::Kind::fill:
      return "fill";
    case Step::Kind::read_back:
      return "read_back";
    case Step::Kind::synchronize:
      return "synchronize";
    case Step::Kind::drop:
      return "drop";
    case Step::Kind::fence:
      return "fence";
    case Step::Kind::set_current:
      return "set_current";
  }
  return "";
}

std::string text_of(const DataSpec& data) {
  static const char* const kinds[] = {"source", "read-only source", "empty", "token"};
  std::string text = kinds[static_cast<int>(data.kind)];
  if (data.kind != DataSpec::Kind::token) text += ", " + std::to_string(data.words) + " words";
  if (data.has_source()) text += " at " + stf_places::to_string(data.source_place);
  return text + ", context " + std::to_string(data.context);
}

void append(std::string& text, const Step& step, int depth) {
  text += std::string(2 + 4 * static_cast<std::size_t>(depth), ' ') + name_of(step.kind) + " c" +
          std::to_string(step.context);
  const bool body = step.kind == Step::Kind::task || step.kind == Step::Kind::callback;
  if (body || step.kind == Step::Kind::fill) text += " on " + stf_places::to_string(step.exec);
  if (step.kind == Step::Kind::set_current) text += " device " + std::to_string(step.exec.device);
  if (!body && step.kind != Step::Kind::fence && step.kind != Step::Kind::set_current) {
    text += " d" + std::to_string(step.data);
  }
  static const char* const modes[] = {"none", "read", "write", "rw"};
  for (const Use& use : step.uses) {
    text += " d" + std::to_string(use.data) + "." + modes[static_cast<int>(use.mode)] + "(" +
            stf_places::to_string(use.place) + ")";
  }
  if (step.priority != 0) text += " priority " + std::to_string(step.priority);
  if (step.enqueued) text += " enqueued";
  if (step.fails) text += " fails";
  if (step.refused) text += " refused";
  text += "\n";
  for (const Step& inner : step.nested) append(text, inner, depth + 1);
}

}  // namespace

std::string text_of(const Program& program) {
  std::string text = "program " + std::to_string(program.seed) + ", " +
                     std::to_string(program.machine.devices.size()) + " devices of " +
                     std::to_string(program.machine.devices.front().memory) + " bytes\n";
  for (const auto& link : program.machine.links) {
    if (link.peer) text += "  peers " + std::to_string(link.from) + " -> " + std::to_string(link.to) + "\n";
  }
  for (int i = 0; i < program.contexts; ++i) {
    const auto at = static_cast<std::size_t>(i);
    text += "  c" + std::to_string(i) + (program.caller_stream[at] ? " on a caller's stream" : "") +
            (program.abandoned[at] ? ", abandoned" : "") + "\n";
  }
  for (std::size_t i = 0; i < program.data.size(); ++i) {
    text += "  d" + std::to_string(i) + " " + text_of(program.data[i]) + "\n";
  }
  for (const Step& step : program.steps) append(text, step, 0);
  return text;
}

}  // namespace random_programs
