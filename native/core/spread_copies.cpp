// Copies to and from composite places.
#include <algorithm>

#include "core/coherence.hpp"
#include "core/context.hpp"
#include "core/page_maps.hpp"

namespace stf_places {

namespace {

// Bytes up to which one end of a copy stays on the same device, from `offset` on, and where that is.
DataPlace part_at(const DataPlace& place, std::size_t offset, std::size_t* end) {
  if (place.pages == nullptr) return place;
  const PagePiece& piece = place.pages->at(offset);
  *end = std::min(*end, piece.offset + piece.nbytes);
  return DataPlace::on(piece.device);
}

// The streams that take part, one a device, each behind what the copy has to wait for.
class Lanes {
 public:
  Lanes(Instance& from, Instance* to) : from_(from), to_(to) {}

  Stream* find(int device) const {
    auto found = std::find_if(streams_.begin(), streams_.end(),
                              [&](const Stream* stream) { return stream->device() == device; });
    return found == streams_.end() ? nullptr : *found;
  }

  // The instances keep their points until the whole copy has one of its own.
  Stream* open(Stream* stream) {
    streams_.push_back(stream);
    WaitList waits(*stream);
    waits.hold(from_.writer);
    if (to_ != nullptr) {
      waits.hold(to_->writer);
      for (const PointRef& reader : to_->readers) waits.hold(reader);
    }
    waits.enqueue();
    return stream;
  }

  // One point for what all streams have done.
  PointRef join() {
    Stream& first = *streams_.front();
    for (std::size_t i = 1; i < streams_.size(); ++i) first.wait(streams_[i]->advance());
    return first.advance();
  }

  void settle() noexcept {
    for (Stream* stream : streams_) stream->settle();
  }

 private:
  Instance& from_;
  Instance* to_;
  std::vector<Stream*> streams_;
};

}  // namespace

PointRef Coherence::spread(Data& data, Instance& from, Instance* to, const End& target) {
  Lanes lanes(from, to);
  Status status;
  PointRef point;
  try {
    for (std::size_t offset = 0; offset < data.nbytes() && status.ok();) {
      std::size_t end = data.nbytes();
      const DataPlace source_place = part_at(from.place, offset, &end);
      const DataPlace target_place = part_at(target.place, offset, &end);
      const int device = copying_device(from.place, source_place.device, target.place, target_place.device);
      Stream* lane = lanes.find(device);
      if (lane == nullptr) {
        lane =
            lanes.open(to == nullptr ? context_.ordering_stream(device) : context_.transfer_stream(device));
      }
      status = transfer(data, {source_place, from.address + offset}, {target_place, target.address + offset},
                        end - offset, *lane);
      offset = end;
    }
    point = lanes.join();
  } catch (...) {
    lanes.settle();
    throw;
  }
  from.add_reader(point);
  if (to != nullptr) {
    to->writer = point;
    to->readers.clear();
  }
  if (to == nullptr && !status) lanes.settle();  // whose memory it is takes it back at once
  status.check();
  return point;
}

}  // namespace stf_places
