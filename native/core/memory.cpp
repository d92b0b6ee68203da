#include "core/memory.hpp"

#include <algorithm>

#include "core/coherence.hpp"
#include "core/context.hpp"
#include "core/page_maps.hpp"
#include "core/page_ranges.hpp"
#include "core/planted.hpp"
#include "core/scope.hpp"

namespace stf_places {

namespace {
constexpr std::size_t granularity = 256;  // bytes; what every driver aligns to anyway
constexpr std::size_t scan_limit = 8;     // freed blocks looked at for one that this stream freed

std::size_t rounded(std::size_t nbytes) {
  return std::max<std::size_t>(1, (nbytes + granularity - 1) / granularity) * granularity;
}

// The bytes that data takes on `tight`, its place or a device of it.
std::size_t needed(const Data& data, const DataPlace& place, const DataPlace& tight) {
  return place.pages != nullptr ? place.pages->bytes_on(tight.device) : rounded(data.nbytes());
}

bool takes_room_on(const Instance& instance, const DataPlace& place) {
  if (!instance.has_memory() || instance.is_source) return false;
  return instance.place == place ||
         (place.kind == DataPlace::Kind::device && instance.place.lies_on(place.device));
}
}  // namespace

bool Memory::take_cached(const DataPlace& place, std::size_t nbytes, Stream& stream, Instance& instance) {
  auto found = cached_.find({{place.kind, place.device}, nbytes});
  if (found == cached_.end() || found->second.empty()) return false;
  std::vector<Block>& blocks = found->second;
  // A block that only this stream used needs no wait; else the one that was freed first.
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < std::min(blocks.size(), scan_limit); ++i) {
    const std::size_t at = blocks.size() - 1 - i;
    const auto& points = blocks[at].points;
    if (std::all_of(points.begin(), points.end(), [&](const PointRef& p) { return p->stream == &stream; })) {
      chosen = at;
      break;
    }
  }
  instance.address = blocks[chosen].address;
  instance.readers = std::move(blocks[chosen].points);
  blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(chosen));
  ++context_.statistics_.reused_blocks;
  return true;
}

bool Memory::take_range(const PageMap& map, Instance& instance) {
  auto found =
      std::find_if(ranges_.rbegin(), ranges_.rend(), [&](const Range& range) { return range.map == &map; });
  if (found == ranges_.rend()) return false;
  instance.address = found->block.address;
  instance.readers = std::move(found->block.points);
  ranges_.erase(std::next(found).base());
  ++context_.statistics_.reused_blocks;
  return true;
}

Status Memory::ask_driver(const DataPlace& place, std::size_t nbytes, Stream& stream, Address* out) {
  Driver& driver = context_.runtime().driver();
  switch (place.kind) {
    case DataPlace::Kind::device:
      return driver.allocate_device(place.device, nbytes, stream.handle(), out);
    case DataPlace::Kind::managed:
      return driver.allocate_managed(nbytes, std::max(place.device, 0), out);
    case DataPlace::Kind::composite:
      return context_.runtime().page_ranges().take(*place.pages, out);
    default:
      return driver.allocate_host(nbytes, out);
  }
}

void Memory::allocate(Data& data, Instance& instance, Stream& task_stream) {
  const std::size_t nbytes = rounded(data.nbytes());
  // Stream-ordered memory of a device is asked for on one of its own streams.
  const DataPlace& place = instance.place;
  const bool on_device = place.kind == DataPlace::Kind::device;
  const bool elsewhere = on_device && (task_stream.recording() || task_stream.device() != place.device);
  Stream& stream = elsewhere ? *context_.ordering_stream(place.device) : task_stream;
  if (place.pages != nullptr ? take_range(*place.pages, instance)
                             : take_cached(place, nbytes, stream, instance)) {
    return;
  }
  Address address = 0;
  if (on_device) stream.before_operation();
  Status status = ask_driver(place, nbytes, stream, &address);
  if (status.is(Code::out_of_memory)) {
    address = make_room(data, place, stream, status.failure());
  } else {
    status.check();
  }
  ++context_.statistics_.allocations;
  instance.address = address;
  instance.readers.clear();
  instance.writer = on_device ? stream.advance() : PointRef();
}

void Memory::recycle(Data& data, Instance& instance) {
  if (!instance.has_memory() || instance.is_source) return;
  Block block{instance.address, rounded(data.nbytes()), std::move(instance.readers)};
  if (instance.writer) block.points.push_back(std::move(instance.writer));
  if (planted(Mistake::early_free)) block.points.clear();
  if (const PageMap* map = instance.place.pages)
    ranges_.push_back({map, std::move(block)});
  else
    cached_[{{instance.place.kind, instance.place.device}, block.nbytes}].push_back(std::move(block));
  instance.address = 0;
  instance.readers.clear();
  instance.writer.reset();
  instance.state = InstanceState::invalid;
}

void Memory::free_block(const DataPlace& place, Block& block, Stream& stream) {
  WaitList waits(stream);
  for (PointRef& point : block.points) waits.take(point);
  try {
    waits.enqueue();
  } catch (const Error&) {
    waits.settle();
  }
  Driver& driver = context_.runtime().driver();
  driver.free_device(place.device, block.address, stream.handle()).check();
  stream.advance();
}

// Ranges of this context go to the machine's, which then unmaps all that lie on the device.
std::size_t Memory::free_ranges(int device) {
  for (std::size_t i = ranges_.size(); i-- > 0;) {
    if (ranges_[i].map->bytes_on(device) == 0) continue;
    Range range = std::move(ranges_[i]);
    ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(i));
    wait_for_users(range.block);
    context_.runtime().page_ranges().give(*range.map, range.block.address);
  }
  context_.runtime().reclaim(device);
  return context_.runtime().page_ranges().release(device);
}

std::size_t Memory::free_cached(const DataPlace& place, Stream& stream) {
  std::size_t freed = place.kind == DataPlace::Kind::device ? free_ranges(place.device) : 0;
  for (auto& [key, blocks] : cached_) {
    if (key.first != std::pair{place.kind, place.device}) continue;
    while (!blocks.empty()) {
      Block block = std::move(blocks.back());
      blocks.pop_back();
      freed += block.nbytes;
      if (place.kind == DataPlace::Kind::device)
        free_block(place, block, stream);
      else
        free_waited(place, block);
    }
  }
  return freed;
}

void Memory::wait_for_users(const Block& block) {
  context_.wait_for_launch({});  // points of a graph are gone once it is launched
  for (const PointRef& point : block.points) {
    try {
      Stream::synchronize(context_.runtime().driver(), point, {});
    } catch (const Error&) {
      point->stream->settle();
    }
  }
}

// Memory that is not freed in stream order: the host waits for its users.
void Memory::free_waited(const DataPlace& place, Block& block) {
  wait_for_users(block);
  Driver& driver = context_.runtime().driver();
  (place.kind == DataPlace::Kind::managed ? driver.free_managed(block.address)
                                          : driver.free_host(block.address))
      .check();
}

bool Memory::evict_one(const DataPlace& place, Stream& stream, InstanceState state) {
  Data* victim = nullptr;
  Instance* chosen = nullptr;
  for (Data* data : context_.data_) {
    for (const auto& one : data->instances_) {
      Instance* instance = one.get();
      if (!takes_room_on(*instance, place)) continue;
      if (instance->pins != 0 || instance->open_readers != 0 || instance->open_writer) continue;
      // A copy that no longer holds the value goes with the shared ones.
      const bool droppable = instance->state != InstanceState::modified;
      if (droppable != (state == InstanceState::shared)) continue;
      if (chosen == nullptr || instance->last_use < chosen->last_use) {
        victim = data;
        chosen = instance;
      }
    }
  }
  if (chosen == nullptr) return false;
  if (chosen->state == InstanceState::modified) {
    if (place.kind == DataPlace::Kind::host) return false;  // nowhere to go
    Coherence coherence(context_);
    Instance& host = coherence.instance(*victim, DataPlace::host());
    coherence.make_valid(*victim, host, stream);  // keeps its source, the chosen one, in place meanwhile
  }
  recycle(*victim, *chosen);
  // Where one valid copy is left, it is the only one now.
  Instance* survivor = nullptr;
  int valid = 0;
  for (const auto& one : victim->instances_) {
    if (!one->valid()) continue;
    survivor = one.get();
    ++valid;
  }
  if (valid == 1) survivor->state = InstanceState::modified;
  ++context_.statistics_.evictions;
  return true;
}

Memory::Outcome Memory::make_room_on(const DataPlace& tight, const Data& wanted, const DataPlace& place,
                                     Stream& stream, Address* out, Failure* failure) {
  const bool on_device = tight.kind == DataPlace::Kind::device;
  Driver& driver = context_.runtime().driver();
  const std::size_t need = needed(wanted, place, tight);
  context_.flush(context_.interrupt_);
  std::size_t freed = free_cached(tight, stream);
  // What others left free counts as well; what was freed just now may be counted twice.
  std::size_t left = need;
  std::size_t total = 0;
  if (on_device) driver.memory_info(tight.device, &left, &total).check();
  // Whether it fits now is found out by trying: only the driver knows.
  auto attempt = [&](bool first) {
    if (!first && left + freed < need) return Outcome::short_here;
    if (place.kind == DataPlace::Kind::device) stream.before_operation();
    // A pool takes its own free blocks anyway; pages come from what it gives back.
    if (place.pages != nullptr) trim(tight.device);
    Status status = ask_driver(place, rounded(wanted.nbytes()), stream, out);
    if (status.ok()) return Outcome::fits;
    if (!status.is(Code::out_of_memory)) status.check();
    *failure = status.failure();
    return place.pages == nullptr || failure->device == tight.device ? Outcome::short_here
                                                                     : Outcome::short_elsewhere;
  };
  if (Outcome outcome = attempt(true); outcome != Outcome::short_here) return outcome;
  for (InstanceState state : {InstanceState::shared, InstanceState::modified}) {
    while (evict_one(tight, stream, state)) {
      context_.flush(context_.interrupt_);
      freed += free_cached(tight, stream);
      if (Outcome outcome = attempt(false); outcome != Outcome::short_here) return outcome;
    }
  }
  return Outcome::short_here;
}

// What the context has on the device is waited for first: unlike the driver's wait, that one can be
// interrupted.
void Memory::trim(int device) {
  Driver& driver = context_.runtime().driver();
  for (const auto& stream : context_.streams_) {
    if (stream->device() == device) driver.synchronize_stream(stream->handle(), context_.interrupt_).check();
  }
  driver.trim_device(device).check();
}

// A composite place can be short of room on one of its devices after the other.
// A scope gives nothing up, but the contexts around it may, and scopes that are over.
Address Memory::make_room_around(const Data& wanted, const DataPlace& place, const Failure& failure) {
  Context& outer = *context_.scope_->outermost();
  Stream& stream = *outer.ordering_stream(place.on_devices() ? place.home() : 0);
  const Address address = outer.memory_.make_room(wanted, place, stream, failure);
  // What the scope records does not come behind that stream.
  context_.runtime().driver().synchronize_stream(stream.handle(), context_.interrupt_).check();
  return address;
}

Address Memory::make_room(const Data& wanted, const DataPlace& place, Stream& stream, Failure failure) {
  if (context_.scope_ != nullptr) return make_room_around(wanted, place, failure);
  Scope::reap(context_.spent_, true, context_.interrupt_);
  Address address = 0;
  for (;;) {
    // The driver itself is short, of no device's memory in particular.
    if (place.pages != nullptr && failure.device < 0) refuse(wanted, place, place, std::move(failure));
    const bool spread = place.pages != nullptr;
    if (context_.recording() && context_.open_tasks_ != 0) {
      failure.detail += failure.detail.empty() ? "" : "; ";
      failure.detail += "a graph context can give nothing up while a task is open, so end that first";
      refuse(wanted, place, spread ? DataPlace::on(failure.device) : place, std::move(failure));
    }
    const DataPlace tight = spread ? DataPlace::on(failure.device) : place;
    Stream& own = spread ? *context_.ordering_stream(failure.device) : stream;
    switch (make_room_on(tight, wanted, place, own, &address, &failure)) {
      case Outcome::fits:
        return address;
      case Outcome::short_here:
        refuse(wanted, place, tight, std::move(failure));
      case Outcome::short_elsewhere:
        break;
    }
  }
}

void Memory::refuse(const Data& wanted, const DataPlace& place, const DataPlace& tight,
                    Failure failure) const {
  std::vector<std::pair<std::size_t, std::string>> holders;
  std::size_t held = 0;
  for (const Data* data : context_.data_) {
    for (const auto& instance : data->instances_) {
      if (!takes_room_on(*instance, tight)) continue;
      const std::size_t nbytes =
          instance->place == tight ? data->nbytes() : needed(*data, instance->place, tight);
      held += nbytes;
      const char* use = instance->open_writer || instance->open_readers || instance->pins ? ", in use" : "";
      holders.emplace_back(nbytes, data->label() + " (" + std::to_string(nbytes) + " bytes" + use + ")");
    }
  }
  std::sort(holders.begin(), holders.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = "no memory for " + wanted.label() + ": " + std::to_string(wanted.nbytes()) +
                     " bytes on " + to_string(place) +
                     (tight == place ? ", where" : ", on whose " + to_string(tight)) +
                     " this context holds " + std::to_string(held) + " bytes";
  for (std::size_t i = 0; i < std::min<std::size_t>(holders.size(), 5); ++i) {
    text += (i == 0 ? ": " : ", ") + holders[i].second;
  }
  if (holders.size() > 5) text += " and " + std::to_string(holders.size() - 5) + " more";
  if (!failure.detail.empty()) text += " (" + failure.detail + ")";
  text += "; use smaller pieces, other places, or drop data that is no longer needed";
  throw Error(ErrorKind::out_of_memory, text, std::move(failure));
}

void Memory::release_all() {
  for (auto& [key, blocks] : cached_) {
    const DataPlace place{key.first.first, key.first.second};
    if (place.kind == DataPlace::Kind::host) continue;
    while (!blocks.empty()) {
      const bool in_order = place.kind == DataPlace::Kind::device;
      Stream* stream = in_order ? context_.ordering_stream(place.device) : nullptr;
      Block block = std::move(blocks.back());
      blocks.pop_back();
      if (in_order)
        free_block(place, block, *stream);
      else
        free_waited(place, block);
    }
  }
}

Runtime::Retired Memory::take_unordered() {
  Runtime::Retired taken;
  for (auto& [key, blocks] : cached_) {
    if (key.first.first != DataPlace::Kind::host) continue;
    for (const Block& block : blocks) taken.host_blocks.push_back(block.address);
    blocks.clear();
  }
  for (const Range& range : ranges_) taken.ranges.emplace_back(range.map, range.block.address);
  ranges_.clear();
  return taken;
}

void Memory::forget_points() {
  for (auto& [key, blocks] : cached_) {
    for (Block& block : blocks) block.points.clear();
  }
  for (Range& range : ranges_) range.block.points.clear();
}

void Memory::forget_all() {
  cached_.clear();
  ranges_.clear();
}

}  // namespace stf_places
