#include "races.hpp"

#include <algorithm>

namespace stf_places::sim {

namespace {

constexpr std::size_t shadow_check = 64;    // touches between two clean-ups of one shadow
constexpr std::size_t report_limit = 1000;  // more reports say nothing new

std::string describe(const Touch& touch) {
  std::string text;
  switch (touch.kind) {
    case OperationKind::copy:
      text = "copy";
      break;
    case OperationKind::fill:
      text = "fill";
      break;
    case OperationKind::allocation:
      text = "allocation";
      break;
    case OperationKind::release:
      text = "free";
      break;
    default:
      text = touch.symbol.empty() ? "unnamed task" : "task '" + touch.symbol + "'";
      break;
  }
  return text + (touch.write ? " (write, stream " : " (read, stream ") + std::to_string(touch.stream) + ")";
}

std::string range(Address begin, Address end, Address base) {
  return "bytes [" + std::to_string(begin - base) + ", " + std::to_string(end - base) + ")";
}

}  // namespace

unsigned Races::take_slot() {
  for (auto slot = free_slots_.begin(); slot != free_slots_.end(); ++slot) {
    if (host_.at(*slot) < epochs_[*slot]) continue;
    const unsigned taken = *slot;
    free_slots_.erase(slot);
    return taken;
  }
  epochs_.push_back(0);
  return static_cast<unsigned>(epochs_.size() - 1);
}

void Races::join_host(Stream* stream) {
  if (stream->host_version == host_version_) return;
  stream->clock.join(host_);
  stream->host_version = host_version_;
}

std::uint64_t Races::begin_operation(Stream* stream) {
  join_host(stream);
  const std::uint64_t epoch = ++epochs_[stream->slot];
  stream->clock.set(stream->slot, epoch);
  return epoch;
}

void Races::host_waited(const VectorClock& clock) {
  if (host_.join(clock)) ++host_version_;
}

const std::vector<const Touch*>& Races::conflicting(const Shadow& shadow, const Touch& now,
                                                    const VectorClock& clock) {
  found_.clear();
  for (const Touch& old : shadow) {
    if (!old.write && !now.write) continue;
    if (old.begin >= now.end || now.begin >= old.end) continue;
    if (now.excuses(old)) continue;
    if (clock.at(old.slot) < old.epoch) found_.push_back(&old);
  }
  return found_;
}

bool Races::replaces(const Touch& now, Touch& old, const VectorClock& clock) {
  if (old.begin < now.begin || old.end > now.end) return false;
  if (old.write && !now.write) return false;
  const bool ordered = clock.at(old.slot) >= old.epoch;
  if (now.whole == 0) return now.write || ordered;
  if (!ordered) return false;
  if (now.whole == old.whole) return old.partial || !now.partial;
  if (old.covered != 0 && old.covered != now.whole) return true;
  old.covered = now.whole;
  return false;
}

void Races::remember(Shadow& shadow, const Touch& now, const VectorClock& clock) {
  auto kept = shadow.begin();
  for (auto old = shadow.begin(); old != shadow.end(); ++old) {
    if (replaces(now, *old, clock)) continue;
    if (kept != old) *kept = std::move(*old);
    ++kept;
  }
  shadow.erase(kept, shadow.end());
  shadow.push_back(now);
  if (shadow.size() % shadow_check == 0) forget_seen_by_host(shadow);
}

void Races::forget_seen_by_host(Shadow& shadow) const {
  std::erase_if(shadow, [&](const Touch& old) { return host_.at(old.slot) >= old.epoch; });
}

void Races::host_free(const Shadow& shadow, Address base, const std::string& owner, const char* verb) {
  for (const Touch& old : shadow) {
    if (host_.at(old.slot) >= old.epoch) continue;
    add(std::string("race: the host ") + verb + " " + owner + " without having waited for " + describe(old) +
        ", which touches " + range(old.begin, old.end, base) + " of it");
  }
}

Shadow& Races::host_range(Address begin, Address end) {
  auto first = host_ranges_.upper_bound(begin);
  if (first != host_ranges_.begin() && std::prev(first)->second.end > begin) --first;
  if (first != host_ranges_.end() && first->first <= begin && first->second.end >= end) {
    return first->second.shadow;
  }
  HostRange merged{end, {}};
  Address from = begin;
  while (first != host_ranges_.end() && first->first < end) {
    from = std::min(from, first->first);
    merged.end = std::max(merged.end, first->second.end);
    merged.shadow.insert(merged.shadow.end(), first->second.shadow.begin(), first->second.shadow.end());
    first = host_ranges_.erase(first);
  }
  if (host_ranges_.size() >= host_range_limit_) forget_host_ranges();
  return host_ranges_.insert_or_assign(from, std::move(merged)).first->second.shadow;
}

void Races::forget_host_ranges() {
  for (auto at = host_ranges_.begin(); at != host_ranges_.end();) {
    forget_seen_by_host(at->second.shadow);
    at = at->second.shadow.empty() ? host_ranges_.erase(at) : std::next(at);
  }
  // Twice what is left, so that clean-ups stay rare when the host never waits.
  host_range_limit_ = std::max<std::size_t>(1024, 2 * host_ranges_.size());
}

void Races::report(const Touch& now, const Touch& other, Address base, const std::string& owner) {
  add("race: " + describe(now) + " and " + describe(other) + " touch " +
      range(std::max(now.begin, other.begin), std::min(now.end, other.end), base) + " of " + owner +
      " without an order between them");
}

void Races::add(std::string text) {
  if (reports_.size() >= report_limit || !known_.insert(text).second) return;
  reports_.push_back(std::move(text));
}

std::string Races::take_unreported() {
  if (reported_ == reports_.size()) return "";
  std::string text = reports_[reported_];
  for (std::size_t i = reported_ + 1; i < reports_.size(); ++i) text += "; " + reports_[i];
  reported_ = reports_.size();
  return text;
}

}  // namespace stf_places::sim
