#include "random/generate.hpp"

#include <algorithm>
#include <memory>
#include <random>

namespace random_programs {

namespace {

constexpr std::size_t block = 256;  // what the core rounds sizes to

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) { program_.seed = seed; }

  Program make() {
    program_.contexts = chance(25) ? 2 : 1;
    for (int i = 0; i < program_.contexts; ++i) {
      program_.caller_stream.push_back(chance(25));
      program_.abandoned.push_back(chance(4));
    }
    program_.trace = chance(6);
    program_.sync_each_task = chance(6);
    program_.check_streams = chance(6);
    program_.drop_first = chance(50);
    max_uses_ = 1 + below(4);
    largest_ = block << below(3);
    tight_ = program_.contexts == 1 && chance(50);
    make_machine();
    const int data_count = 1 + below(chance(30) ? 24 : 8);
    for (int i = 0; i < data_count; ++i) create();
    const int count = 5 + below(60);
    for (int i = 0; i < count; ++i) program_.steps.push_back(step(0));
    for (auto& device : program_.machine.devices) device.memory += device_sources_;
    return std::move(program_);
  }

 private:
  struct State {
    bool alive = true;
    bool value = false;
    bool poisoned = false;
    int open_readers = 0;
    bool open_writer = false;
  };

  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  int device_count() const { return static_cast<int>(program_.machine.devices.size()); }
  State& state(int data) { return states_[static_cast<std::size_t>(data)]; }
  const DataSpec& spec(int data) const { return program_.data[static_cast<std::size_t>(data)]; }

  void make_machine() {
    auto& machine = program_.machine;
    machine.name = "random";
    const int devices = 1 + below(4);
    const int peers = below(3);  // none, all, some
    for (int i = 0; i < devices; ++i) {
      stf_places::sim::DeviceSpec device;
      device.name = "Small";
      device.sm_count = 8;
      device.min_partition = device.alignment = 2;
      device.memory = tight_ ? static_cast<std::size_t>(max_uses_) * largest_ : std::size_t{1} << 20;
      device.bandwidth = 100;
      machine.devices.push_back(device);
      machine.links.push_back({-1, i, false, 10, 1});
      machine.links.push_back({i, -1, false, 10, 1});
      for (int j = 0; j < devices; ++j) {
        if (i != j) machine.links.push_back({i, j, peers == 1 || (peers == 2 && chance(50)), 40, 1});
      }
    }
    machine.costs.kernel_launch = machine.costs.event_record = 0.5;
  }

  bool peers(int from, int to) const {
    for (const auto& link : program_.machine.links) {
      if (link.from == from && link.to == to) return link.peer;
    }
    return false;
  }

  void create() {
    DataSpec data;
    data.context = below(program_.contexts);
    const int kind = below(100);
    data.kind = kind < 50   ? DataSpec::Kind::source
                : kind < 62 ? DataSpec::Kind::read_only
                : kind < 88 ? DataSpec::Kind::empty
                            : DataSpec::Kind::token;
    const std::size_t words = largest_ / sizeof(Word);
    if (data.kind != DataSpec::Kind::token && !chance(4)) {
      data.words = chance(40) ? words : 1 + static_cast<std::size_t>(below(static_cast<int>(words)));
    }
    if (data.has_source() && data.words != 0 && chance(25)) {
      data.source_place =
          chance(50) ? DataPlace::on(below(device_count())) : DataPlace{DataPlace::Kind::managed, -1};
      device_sources_ += (data.words * sizeof(Word) + block - 1) / block * block;
    }
    program_.data.push_back(data);
    State fresh;
    fresh.value = data.kind != DataSpec::Kind::empty;
    states_.push_back(fresh);
    Step made;
    made.kind = Step::Kind::create;
    made.context = data.context;
    made.data = static_cast<int>(program_.data.size()) - 1;
    program_.steps.push_back(made);
  }

  // A data of the context that satisfies `wanted`; -1 when there is none.
  template <class Wanted>
  int find(int context, Wanted wanted) {
    std::vector<int> found;
    for (int i = 0; i < static_cast<int>(program_.data.size()); ++i) {
      if (state(i).alive && (context < 0 || spec(i).context == context) && wanted(i)) found.push_back(i);
    }
    return found.empty() ? -1 : found[static_cast<std::size_t>(below(static_cast<int>(found.size())))];
  }
  bool readable(int data) { return state(data).value && !state(data).poisoned && !state(data).open_writer; }
  bool writable(int data) {
    return spec(data).kind != DataSpec::Kind::read_only && !state(data).open_writer &&
           state(data).open_readers == 0;
  }

  Step step(int depth) {
    Step made;
    made.context = below(program_.contexts);
    const int kind = below(100);
    if (depth == 0 && kind < 4) {
      create();
      made.kind = Step::Kind::fence;
    } else if (depth == 0 && kind < 8) {
      made.kind = Step::Kind::set_current;
      made.exec.device = below(device_count());
    } else if (depth == 0 && kind < 11) {
      made.data = find(made.context, [](int) { return true; });
      made.kind = made.data < 0 ? Step::Kind::fence : Step::Kind::drop;
      if (made.data >= 0) state(made.data).alive = false;
    } else if (kind < 17) {
      made.data =
          find(made.context, [&](int i) { return readable(i) && spec(i).kind != DataSpec::Kind::token; });
      made.kind = chance(80) ? Step::Kind::read_back : Step::Kind::synchronize;
      if (made.data < 0) task(made, depth);
    } else if (kind < 23) {
      made.data =
          find(made.context, [&](int i) { return writable(i) && spec(i).kind != DataSpec::Kind::token; });
      if (made.data < 0)
        task(made, depth);
      else
        fill(made);
    } else if (depth == 0 && kind < 27) {
      refused(made);
    } else {
      task(made, depth);
    }
    return made;
  }

  void fill(Step& made) {
    made.kind = Step::Kind::fill;
    choose_exec(made, false);
    made.where = choose_place(made);
    made.width = std::size_t{1} << below(3);
    made.constant = static_cast<Word>(random_());
    state(made.data).value = true;
    state(made.data).poisoned = false;
  }

  void choose_exec(Step& made, bool grids) {
    const int kind = below(100);
    if (kind < 55) {
      made.exec.kind = ExecPlace::Kind::device;
      made.exec.device = below(device_count());
    } else if (kind < 70) {
      made.exec.kind = ExecPlace::Kind::current;
    } else if (kind < 85 || !grids) {
      made.exec.kind = ExecPlace::Kind::host;
    } else {
      made.exec.kind = ExecPlace::Kind::grid;
      auto places = std::make_shared<std::vector<ExecPlace>>();
      const int count = 1 + below(4);
      for (int i = 0; i < count; ++i) {
        places->push_back({});
        places->back().kind = ExecPlace::Kind::device;
        places->back().device = below(device_count());
      }
      made.exec.places = places;
    }
  }

  bool reaches(const ExecPlace& exec, int device) const {
    if (exec.kind == ExecPlace::Kind::device) return exec.device == device || peers(exec.device, device);
    if (exec.kind != ExecPlace::Kind::grid) return false;
    return std::all_of(exec.places->begin(), exec.places->end(),
                       [&](const ExecPlace& place) { return reaches(place, device); });
  }

  DataPlace choose_place(const Step& made) {
    const bool grid = made.exec.kind == ExecPlace::Kind::grid;
    if (!grid && chance(70)) return {};
    const int device = below(device_count());
    if (reaches(made.exec, device) && (grid || chance(60))) return DataPlace::on(device);
    if (chance(50)) return DataPlace::host();
    return {DataPlace::Kind::managed, chance(50) ? -1 : below(device_count())};
  }

  void choose_uses(Step& made) {
    const int count = chance(8) ? 0 : 1 + below(max_uses_);
    for (int i = 0; i < count; ++i) {
      const int data = find(made.context, [&](int one) {
        const bool used =
            std::any_of(made.uses.begin(), made.uses.end(), [&](const Use& u) { return u.data == one; });
        return !used && (readable(one) || writable(one));
      });
      if (data < 0) return;
      Use use{data, AccessMode::read, choose_place(made)};
      if (writable(data) && (!readable(data) || chance(60))) {
        use.mode = readable(data) && chance(60) ? AccessMode::rw : AccessMode::write;
      }
      made.uses.push_back(use);
      if (!chance(15)) continue;
      // The same data once more.
      if (stf_places::writes(use.mode)) {
        if (readable(data)) use.mode = static_cast<AccessMode>(1 + below(3));
      } else if (!tight_ && chance(50)) {
        use.place = choose_place(made);  // two readers' places
      }
      made.uses.push_back(use);
    }
  }

  void task(Step& made, int depth) {
    made.kind = Step::Kind::task;
    choose_exec(made, true);
    if (depth > 0 && made.exec.kind == ExecPlace::Kind::grid) {
      made.exec = made.exec.places->front();  // a device has only so many streams for open tasks
    }
    if (made.exec.kind == ExecPlace::Kind::host && chance(40)) made.kind = Step::Kind::callback;
    made.constant = static_cast<Word>(random_());
    if (chance(10)) made.priority = below(5) - 2;
    choose_uses(made);
    made.enqueued = made.exec.kind != ExecPlace::Kind::host && chance(50);
    made.fails = made.kind == Step::Kind::task && !made.enqueued && chance(6);
    const bool nests = made.kind == Step::Kind::task && !tight_ && depth < 2 && chance(12);
    if (nests) {
      open(made);
      const int count = 1 + below(3);
      for (int i = 0; i < count; ++i) made.nested.push_back(step(depth + 1));
      close(made);
    }
    for (const auto& [first, mode] : merged(made.uses)) {
      State& written = state(made.uses[first].data);
      if (!stf_places::writes(mode)) continue;
      written.value = true;
      written.poisoned = made.fails;
    }
  }

  void open(const Step& made) {
    for (const auto& [first, mode] : merged(made.uses)) {
      State& used = state(made.uses[first].data);
      if (stf_places::writes(mode))
        used.open_writer = true;
      else
        ++used.open_readers;
    }
  }
  void close(const Step& made) {
    for (const auto& [first, mode] : merged(made.uses)) {
      State& used = state(made.uses[first].data);
      if (stf_places::writes(mode))
        used.open_writer = false;
      else
        --used.open_readers;
    }
  }

  // A task that cannot start: it must say why and leave nothing behind.
  void refused(Step& made) {
    made.kind = Step::Kind::task;
    made.exec.kind = ExecPlace::Kind::device;
    made.exec.device = below(device_count());
    choose_uses(made);
    if (static_cast<int>(made.uses.size()) >= max_uses_)
      made.uses.resize(static_cast<std::size_t>(max_uses_ - 1));
    auto unused = [&](int data) {
      return std::none_of(made.uses.begin(), made.uses.end(), [&](const Use& u) { return u.data == data; });
    };
    made.refused = true;
    Use bad;
    switch (below(5)) {
      case 0:
        bad = {find(made.context, [&](int i) { return unused(i) && !state(i).value; }), AccessMode::rw, {}};
        made.error = ErrorKind::task_state;
        break;
      case 1:
        bad = {
            find(made.context, [&](int i) { return unused(i) && state(i).poisoned; }), AccessMode::read, {}};
        made.error = ErrorKind::poisoned;
        break;
      case 2:
        bad = {
            find(made.context, [&](int i) { return unused(i) && spec(i).kind == DataSpec::Kind::read_only; }),
            AccessMode::write,
            {}};
        made.error = ErrorKind::read_only;
        break;
      case 3:
        bad = {find(-1, [&](int i) { return spec(i).context != made.context; }), AccessMode::write, {}};
        made.error = ErrorKind::wrong_context;
        break;
      default:
        bad = {find(made.context,
                    [&](int i) { return unused(i) && writable(i) && spec(i).kind != DataSpec::Kind::token; }),
               AccessMode::write, DataPlace::host()};
        if (bad.data >= 0) made.uses.push_back({bad.data, AccessMode::write, {}});
        made.error = ErrorKind::value;
    }
    if (bad.data >= 0) {
      made.uses.push_back(bad);
    } else {
      made = Step{};
      made.kind = Step::Kind::fence;
    }
  }

  std::mt19937_64 random_;
  Program program_;
  std::vector<State> states_;
  int max_uses_ = 1;
  std::size_t largest_ = block;
  std::size_t device_sources_ = 0;
  bool tight_ = false;
};

}  // namespace

Program generate(std::uint64_t seed) { return Generator(seed).make(); }

}  // namespace random_programs
