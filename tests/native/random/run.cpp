#include "random/run.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/allocation.hpp"
#include "core/context.hpp"
#include "driver/sim/sim_driver.hpp"
#include "random/reference.hpp"
#include "random/scopes.hpp"

namespace random_programs {

namespace {

using stf_places::Address;
using stf_places::Context;
using stf_places::Data;
using stf_places::Error;
using stf_places::Task;

struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A body on its own, for work that runs later.
struct Call {
  Step step;
  std::vector<Word*> values;
  std::vector<std::size_t> words;
  static void run(void* argument) {
    const auto* call = static_cast<Call*>(argument);
    compute(call->step, call->values, call->words);
  }
  static void release(void* argument) { delete static_cast<Call*>(argument); }
  static void keep(void*) {}
  static void run_and_release(void* argument) {
    run(argument);
    release(argument);
  }
};

class Runner {
 public:
  Runner(const Program& program, const stf_places::sim::Options& options, const Fault& fault, Mode mode)
      : program_(program), reference_(program), fault_(fault), graphs_(mode == Mode::graphs) {
    if (mode == Mode::scopes) scopes_ = std::make_unique<Scopes>(program.seed, reference_);
    stf_places::sim::MachineSpec old = program.machine;
    for (auto& device : old.devices) {
      if (scopes_) device.memory *= 16;  // what a scope works on stays where it is
    }
    stf_places::sim::make_sim_driver(old, options, &driver_).check();
    runtime_ = std::make_shared<stf_places::Runtime>(
        driver_, stf_places::RuntimeSettings{program.sync_each_task, program.check_streams});
    pool_ = std::make_shared<stf_places::StreamPool>(runtime_);
    for (std::size_t i = 0; i < program.caller_stream.size(); ++i) {
      stf_places::ContextOptions how;
      how.trace = program.trace && mode == Mode::streams;
      how.graph = graphs_;
      if (program.caller_stream[i] && !scopes_) {
        how.has_stream = true;
        driver_->create_stream(runtime_->primary(0), 0, &how.stream).check();
      }
      caller_.push_back(how.stream);
      contexts_.push_back(std::make_shared<Context>(runtime_, pool_, how));
    }
    data_.resize(program.data.size(), nullptr);
    buffers_.resize(program.data.size());
    addresses_.resize(program.data.size(), 0);
    for (std::size_t i = 0; i < data_.size(); ++i) make_buffer(i);
  }

  void run() {
    if (fault_.ordered) driver_->order_fault(fault_.kind, fault_.nth, stf_places::Code::failed);
    for (const Step& step : program_.steps) run_in_spite_of_fault(step);
    finish();
    check_sources();
    release();
  }

 private:
  Context& context(const Step& step) { return *contexts_[static_cast<std::size_t>(step.context)]; }
  Data& data(int index) { return *data_[static_cast<std::size_t>(index)]; }
  const DataSpec& spec(int index) const { return program_.data[static_cast<std::size_t>(index)]; }

  void run_in_spite_of_fault(const Step& step) {
    try {
      if (step.refused && struck_) return;  // a step before it that did not happen may make it legal
      run(step);
    } catch (const Error& error) {
      // The fault itself, or a value that is missing because of it.
      const bool follows = error.kind == ErrorKind::poisoned ||
                           std::string(error.what()).find("before anything wrote it") != std::string::npos;
      if (!fault_.ordered || (struck_ && !follows)) throw;
      struck_ = true;
    }
  }

  // Runs what, when it fails, leaves it open whether the values are old or new.
  template <class Action>
  void commit(Action action) {
    const bool compared = std::exchange(compares_, false);
    action();
    compares_ = compared;
  }

  // The context to record a step into, or its own.
  std::shared_ptr<Context> target(const Step& step) {
    const auto& own = contexts_[static_cast<std::size_t>(step.context)];
    if (!scopes_) return own;
    const bool on_host = step.exec.kind == stf_places::ExecPlace::Kind::host;
    const bool task =
        step.kind == Step::Kind::task && !step.refused && !step.fails && !on_host && step.nested.empty();
    const bool fill = step.kind == Step::Kind::fill && !step.refused && !on_host && step.where.on_devices();
    if (open_ == 0 && (task || fill || (step.kind == Step::Kind::callback && !step.refused)))
      return scopes_->enter(own);
    return own;
  }

  static bool poisons(const Step& step) {
    return step.fails || std::any_of(step.nested.begin(), step.nested.end(), poisons);
  }

  // What has to find its values, or is not for scopes, comes outside of them.
  void make_way(const Step& step) {
    if (!scopes_ || open_ != 0 || step.kind == Step::Kind::create || step.kind == Step::Kind::set_current)
      return;
    if (step.kind == Step::Kind::drop || poisons(step))
      scopes_->forget();  // what would work on data that are gone, or half-written
    else if (target_ == contexts_[static_cast<std::size_t>(step.context)])
      scopes_->close_all();
  }

  void run(const Step& step) {
    target_ = target(step);
    make_way(step);
    switch (step.kind) {
      case Step::Kind::create:
        create(step.data);
        break;
      case Step::Kind::task:
        task(step);
        break;
      case Step::Kind::callback:
        callback(step);
        break;
      case Step::Kind::fill:
        fill(step);
        break;
      case Step::Kind::read_back:
        read_back(step);
        break;
      case Step::Kind::synchronize:
        context(step).synchronize(data(step.data), {});
        break;
      case Step::Kind::drop:
        drop(step.data);
        break;
      case Step::Kind::fence:
        context(step).fence();
        break;
      case Step::Kind::set_current:
        driver_->set_current_context(runtime_->primary(step.exec.device)).check();
        break;
    }
    if (step.nested.empty()) reference_.run(step);
    if (scopes_ && target_ != contexts_[static_cast<std::size_t>(step.context)]) scopes_->note(step);
  }

  // The caller's own memory is there from the beginning, since a context leaves no room on purpose.
  void make_buffer(std::size_t at) {
    const DataSpec& made = program_.data[at];
    buffers_[at] = initial_value(made, static_cast<int>(at));
    buffers_[at].reserve(1);  // so that an array without elements has an address
    if (!made.has_source() || made.source_place.kind == DataPlace::Kind::host) return;
    const std::size_t nbytes = made.words * sizeof(Word);
    addresses_[at] = stf_places::allocate_at(*runtime_, made.source_place, nbytes, 0);
    std::memcpy(reinterpret_cast<void*>(addresses_[at]), buffers_[at].data(), nbytes);
  }

  void create(int index) {
    const auto at = static_cast<std::size_t>(index);
    const DataSpec& made = spec(index);
    stf_places::DataOptions how;
    how.name = "d" + std::to_string(index);
    how.nbytes = made.words * sizeof(Word);
    how.token = made.kind == DataSpec::Kind::token;
    how.read_only = made.kind == DataSpec::Kind::read_only;
    if (made.has_source()) {
      how.source_place = made.source_place;
      how.source = addresses_[at] != 0 ? addresses_[at] : reinterpret_cast<Address>(buffers_[at].data());
    }
    data_[at] = contexts_[static_cast<std::size_t>(made.context)]->create(how);
  }

  Call call_of(const Step& step, const Task& task) {
    Call call{step, {}, {}};
    call.step.nested.clear();
    for (std::size_t i = 0; i < step.uses.size(); ++i) {
      const auto index = static_cast<std::size_t>(step.uses[i].data);
      const bool token = program_.data[index].kind == DataSpec::Kind::token;
      // What a token orders is memory that the core knows nothing about.
      call.values.push_back(token ? buffers_[index].data() : reinterpret_cast<Word*>(task.address(i)));
      call.words.push_back(token ? 1 : program_.data[index].words);
    }
    return call;
  }

  Task task_of(const Step& step) {
    Task task;
    task.place = step.exec;
    task.priority = step.priority;
    task.symbol = "step " + std::to_string(++steps_);
    for (const Use& use : step.uses) {
      stf_places::Dependency dependency;
      dependency.data = &data(use.data);
      dependency.mode = use.mode;
      dependency.place = use.place;
      task.dependencies.push_back(dependency);
    }
    return task;
  }

  void refuse(const Step& step, Task& task) {
    try {
      context(step).start(task, {});
    } catch (const Error& error) {
      if (error.kind != step.error) throw;  // a fault, if one was ordered
      if (task.state() != Task::State::ended) throw Mismatch("a refused task is not ended");
      return;
    }
    throw Mismatch(task.label() + " should have been refused");
  }

  void task(const Step& step) {
    Task task = task_of(step);
    if (step.refused) {
      refuse(step, task);
      return;
    }
    const std::shared_ptr<Context> where = target_;
    if (graphs_) run_before(step);
    const bool records = where->recording();
    where->start(task, {});
    ++open_;
    if (!graphs_) {
      for (const Step& inner : step.nested) run_in_spite_of_fault(inner);
    }
    --open_;
    target_ = where;
    Call call = call_of(step, task);
    commit([&] {
      const bool on_host = step.exec.kind == stf_places::ExecPlace::Kind::host;
      if (step.enqueued || (records && !on_host && !step.fails)) {
        where->run_in(task, 0, Call::run, Call::release, new Call(call));
      } else if (!records || on_host) {
        (step.fails ? spoil : compute)(step, call.values, call.words);
      }
      where->end(task, step.fails, {});
    });
    if (!step.nested.empty()) reference_.run(call.step);
  }

  void run_before(const Step& step) {
    for (const Step& inner : step.nested) {
      if (!inner.refused) run_in_spite_of_fault(inner);  // it is refused because the task is open
    }
  }

  void callback(const Step& step) {
    Task task = task_of(step);
    target_->open_callback(task, {});
    auto* call = new Call(call_of(step, task));
    const bool repeats = scopes_ && target_->recording();
    if (repeats) calls_.emplace_back(call);
    commit([&] {
      target_->enqueue_callback(task, repeats ? Call::run : Call::run_and_release,
                                repeats ? Call::keep : Call::release, call, {});
    });
  }

  void fill(const Step& step) {
    commit([&] { target_->fill(data(step.data), step.exec, step.where, &step.constant, step.width); });
  }

  void read_back(const Step& step) {
    const std::vector<Word>& expected = reference_.value(step.data);
    std::vector<Word> seen(expected.size());
    context(step).read_back(data(step.data), seen.data(), {});
    if (compares_ && seen != expected)
      throw Mismatch("read_back of d" + std::to_string(step.data) + " gave another value");
  }

  void drop(int index) {
    const auto at = static_cast<std::size_t>(index);
    if (data_[at] == nullptr) return;
    Context::drop(contexts_[static_cast<std::size_t>(spec(index).context)], data_[at]);
    data_[at] = nullptr;
  }

  void drop_all(int context_index) {
    for (int i = 0; i < static_cast<int>(data_.size()); ++i) {
      if (spec(i).context == context_index) drop(i);
    }
  }

  void finish() {
    if (scopes_) scopes_->forget();
    target_.reset();
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
      const int index = static_cast<int>(i);
      if (program_.drop_first) drop_all(index);
      if (!program_.abandoned[i]) finalize(*contexts_[i]);
      drop_all(index);
      contexts_[i].reset();
      if (caller_[i] == 0) continue;
      driver_->synchronize_stream(caller_[i], {}).check();
      driver_->destroy_stream(caller_[i]).check();
    }
  }

  void finalize(Context& context) {
    try {
      context.finalize({});
    } catch (const Error&) {
      if (!fault_.ordered || struck_) throw;
      struck_ = true;
      context.finalize({});  // where it stopped, it goes on
    }
  }

  void check_sources() {
    if (!compares_) return;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const int index = static_cast<int>(i);
      const DataSpec& made = spec(index);
      if (!made.has_source() || reference_.poisoned(index)) continue;
      if (program_.abandoned[static_cast<std::size_t>(made.context)]) continue;
      if (addresses_[i] != 0) {
        std::memcpy(buffers_[i].data(), reinterpret_cast<void*>(addresses_[i]), made.words * sizeof(Word));
      }
      if (buffers_[i] != reference_.value(index)) {
        throw Mismatch("the source of d" + std::to_string(index) + " holds another value after finalize()");
      }
    }
  }

  void release() {
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      if (addresses_[i] != 0) stf_places::free_at(*runtime_, program_.data[i].source_place, addresses_[i], 0);
    }
    scopes_.reset();
    pool_.reset();
    runtime_.reset();
    driver_->drain().check();
    for (const std::string& conflict : driver_->conflicts()) throw Mismatch(conflict);
    if (driver_->live_allocations() != 0) {
      throw Mismatch(std::to_string(driver_->live_allocations()) + " allocations are left");
    }
  }

  const Program& program_;
  Reference reference_;
  Fault fault_;
  bool graphs_;
  int open_ = 0;  // tasks around the step
  bool struck_ = false;
  bool compares_ = true;  // whether the reference knows what the values are
  // Host memory must outlive what is still enqueued on the machine, so it comes before the driver.
  std::vector<std::vector<Word>> buffers_;
  std::vector<Address> addresses_;  // of sources that are not on the host
  std::shared_ptr<stf_places::sim::SimDriver> driver_;
  std::shared_ptr<stf_places::Runtime> runtime_;
  std::shared_ptr<stf_places::StreamPool> pool_;
  std::vector<std::shared_ptr<Context>> contexts_;
  std::shared_ptr<Context> target_;
  std::vector<std::unique_ptr<Call>> calls_;  // of scopes
  std::unique_ptr<Scopes> scopes_;
  std::vector<stf_places::StreamHandle> caller_;
  std::vector<Data*> data_;
  int steps_ = 0;
};

}  // namespace

std::string run(const Program& program, const stf_places::sim::Options& options, const Fault& fault,
                Mode mode) {
  try {
    Runner(program, options, fault, mode).run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace random_programs
