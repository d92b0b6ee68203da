// Finds two conflicting operations without an order between them.
//
// Each stream has a component (slot) in vector clocks. An operation that touches bytes gets the next number
// (epoch) of its stream; it is ordered before another one if the other's stream had seen that number when it
// was submitted: through an event, through the host, or on the same stream. An order is known at submission,
// so this check needs neither effects nor times.
//
// For each allocation the touches that later ones can still conflict with are kept: a write replaces all that
// it covers, a read replaces earlier reads that it covers and comes after. Whole-allocation accesses
// therefore keep at most one write and one read a stream.
//
// Pieces of one whole (Work::whole) do not conflict where one of the two uses only a part of its range. So a
// touch of a whole replaces an earlier one only where every later touch that it would excuse is excused by
// the earlier one too, or meets a second touch, of another whole, that lies over the earlier one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "operation.hpp"

namespace stf_places::sim {

struct Touch {
  Address begin = 0;
  Address end = 0;
  bool write = false;
  OperationKind kind = OperationKind::work;
  unsigned slot = 0;
  std::uint64_t epoch = 0;
  StreamHandle stream = 0;
  std::string symbol;
  std::uint64_t whole = 0;
  bool partial = false;       // uses only a part of its range
  std::uint64_t covered = 0;  // the whole of a later touch that lies over it

  bool excuses(const Touch& other) const {
    return whole != 0 && whole == other.whole && (partial || other.partial);
  }
};

using Shadow = std::vector<Touch>;

// Who touches: the operation's stream, kind and name.
struct Actor {
  Stream* stream = nullptr;
  OperationKind kind = OperationKind::work;
  std::string_view symbol;
  std::uint64_t epoch = 0;
  std::uint64_t whole = 0;
};

// What it touches of one allocation.
struct Span {
  Address begin = 0;
  Address end = 0;
  bool write = false;
  bool partial = false;
};

class Races {
 public:
  // A component for a new stream. Components of destroyed streams are used again once the host has seen all
  // of their work, since the new stream's operations cannot be confused with the old one's then.
  unsigned take_slot();
  void give_slot(unsigned slot) { free_slots_.push_back(slot); }

  // The next operation of `stream`: it knows what the host knows. Returns its epoch.
  std::uint64_t begin_operation(Stream* stream);
  // Joins what the host knows without a new epoch (records and waits).
  void join_host(Stream* stream);
  // The host has waited for everything in `clock`.
  void host_waited(const VectorClock& clock);

  // Notes a touch and reports what conflicts with it. `base` and `owner` name the
  // allocation in reports ("allocation #3 on device 0"); `owner` is called only for a report.
  template <class Owner>
  void touch(Shadow& shadow, const Actor& actor, const Span& span, Address base, Owner owner) {
    const Touch now{span.begin,         span.end,    span.write,           actor.kind,
                    actor.stream->slot, actor.epoch, actor.stream->handle, std::string(actor.symbol),
                    actor.whole,        span.partial};
    for (const Touch* other : conflicting(shadow, now, actor.stream->clock))
      report(now, *other, base, owner());
    remember(shadow, now, actor.stream->clock);
  }

  // Reports each user of an allocation that the host gives back ("frees", "unmaps") without having waited for
  // it.
  void host_free(const Shadow& shadow, Address base, const std::string& owner, const char* verb = "frees");

  // The shadow of host memory that the machine did not allocate.
  Shadow& host_range(Address begin, Address end);

  const std::vector<std::string>& reports() const { return reports_; }
  // The reports that no blocking call has returned yet, as one text; "" when there are none.
  std::string take_unreported();

 private:
  struct HostRange {
    Address end = 0;
    Shadow shadow;
  };

  const std::vector<const Touch*>& conflicting(const Shadow& shadow, const Touch& now,
                                               const VectorClock& clock);
  static bool replaces(const Touch& now, Touch& old, const VectorClock& clock);
  void remember(Shadow& shadow, const Touch& now, const VectorClock& clock);
  void forget_seen_by_host(Shadow& shadow) const;
  void forget_host_ranges();
  void report(const Touch& now, const Touch& other, Address base, const std::string& owner);
  void add(std::string text);

  VectorClock host_;
  std::uint64_t host_version_ = 1;
  std::vector<std::uint64_t> epochs_;  // by slot
  std::vector<unsigned> free_slots_;
  std::map<Address, HostRange> host_ranges_;
  std::size_t host_range_limit_ = 1024;
  std::vector<const Touch*> found_;
  std::vector<std::string> reports_;
  std::set<std::string> known_;
  std::size_t reported_ = 0;
};

}  // namespace stf_places::sim
