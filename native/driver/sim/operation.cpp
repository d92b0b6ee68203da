#include "operation.hpp"

namespace stf_places::sim {

std::string text_of(OperationKind kind, std::size_t nbytes, const std::string& symbol) {
  switch (kind) {
    case OperationKind::copy:
      return "a copy of " + std::to_string(nbytes) + " bytes";
    case OperationKind::fill:
      return "a fill of " + std::to_string(nbytes) + " bytes";
    case OperationKind::host_function:
      return "a host function";
    case OperationKind::condition:
      return "the condition of a loop";
    default:
      return symbol.empty() ? "an unnamed task" : "task '" + symbol + "'";
  }
}

Operation* OperationPool::take(OperationKind kind, Stream* stream) {
  Operation* operation = nullptr;
  if (free_operations_.empty()) {
    operation = &operations_.emplace_back();
  } else {
    operation = free_operations_.back();
    free_operations_.pop_back();
    operation->effect_done = operation->time_done = operation->has_fault = operation->engine = false;
    operation->function = operation->release = nullptr;
    operation->record = nullptr;
    operation->allocation = nullptr;
    operation->nbytes = 0;
    operation->duration_us = 0;
    operation->sms = 0;
    operation->waves = 1;
    operation->waves_done = 0;
    operation->links[0] = operation->links[1] = -1;
    operation->symbol.clear();
  }
  operation->kind = kind;
  operation->stream = stream;
  return operation;
}

void OperationPool::effect_done(Operation* operation) {
  operation->effect_done = true;
  if (operation->time_done) retire(operation);
}

void OperationPool::time_done(Operation* operation) {
  operation->time_done = true;
  if (operation->effect_done) retire(operation);
}

void OperationPool::retire(Operation* operation) {
  if (operation->record != nullptr) drop(operation->record);
  Stream* stream = operation->stream;
  if (stream->closed && stream->idle()) idle_streams_.push_back(stream);
  free_operations_.push_back(operation);
}

Record* OperationPool::take_record() {
  Record* record = nullptr;
  if (free_records_.empty()) {
    record = &records_.emplace_back();
  } else {
    record = free_records_.back();
    free_records_.pop_back();
    record->effected = record->timed = false;
    record->failure.reset();
  }
  record->references = 1;
  return record;
}

void OperationPool::drop(Record* record) {
  if (--record->references == 0) free_records_.push_back(record);
}

}  // namespace stf_places::sim
