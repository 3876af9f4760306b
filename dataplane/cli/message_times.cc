// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/message_times.h"

#include <algorithm>

namespace hostnic::cli {
namespace {

using Kind = TracedMoment::Kind;

size_t index_of(Step step) { return static_cast<size_t>(step); }

constexpr uint64_t kNsPerSecond = 1'000'000'000;

}  // namespace

const char* name_of(Step step) {
  constexpr const char* kNames[kSteps] = {"posted",       "sent",     "arrived", "placed",
                                          "acknowledged", "reported", "polled"};
  return kNames[index_of(step)];
}

std::optional<Step> TracedMessage::missing_step(bool peer_is_traced) const {
  const bool needs_peer = is_reliable() && peer_is_traced;
  // A READ's answers are placed here.
  const std::array<bool, kSteps> is_needed = {
      true,          true, needs_peer,    needs_peer || (is_reliable() && is_read()),
      is_reliable(), true, post.signalled};
  for (size_t i = 0; i < kSteps; ++i)
    if (is_needed[i] && !at[i]) return static_cast<Step>(i);
  return std::nullopt;
}

bool TracedMessage::is_in_order() const {
  uint64_t before = 0;
  for (size_t i = 0; i < kSteps; ++i) {
    if (!at[i]) continue;
    // UC and UD report that it has left, whatever becomes of it.
    const bool at_peer = i == index_of(Step::kArrived) || i == index_of(Step::kPlaced);
    if (*at[i] < before) return false;
    if (is_reliable() || !at_peer) before = *at[i];
  }
  const auto arrived = at_step(Step::kArrived), placed = at_step(Step::kPlaced);
  return !arrived || !placed || *arrived <= *placed;
}

uint64_t MessageTimes::ns(uint64_t ticks) const {
  const uint64_t seconds = ticks / frequency_hz_, rest = ticks % frequency_hz_;
  // Below 2^63 for clocks up to 9 GHz.
  return seconds * kNsPerSecond + rest * kNsPerSecond / frequency_hz_;
}

void MessageTimes::post(const TracedMoment& moment) {
  Requester& requester = requesters_[{moment.nic, moment.qpn}];
  if (requester.begin != requester.messages.size()) {
    const TracedMessage& newest = messages_[requester.messages.back()];
    const bool follows = newest.end() == Psn(moment.first_psn) &&
                         serial_distance(newest.post.number, moment.number) > 0;
    if (!follows) {
      for (size_t i = requester.begin; i < requester.messages.size(); ++i) {
        TracedMessage& old = messages_[requester.messages[i]];
        old.is_cut = !old.at_step(Step::kReported) && !old.at_step(Step::kPolled);
      }
      requester.begin = requester.next_answer = requester.messages.size();
      requester.next.fill(requester.begin);
    }
  }
  requester.messages.push_back(messages_.size());
  TracedMessage& message = messages_.emplace_back();
  message.post = moment;
  message.at[index_of(Step::kPosted)] = moment.at;
}

template <class IsSo>
void MessageTimes::pass(Requester& requester, Step step, uint64_t at, const IsSo& is_so) {
  size_t& next = requester.next[index_of(step)];
  for (; next < requester.messages.size(); ++next) {
    TracedMessage& message = messages_[requester.messages[next]];
    if (!is_so(message)) return;
    // A READ has executed by then: its answers are placed later, and elsewhere.
    if (step == Step::kPlaced && message.is_read()) continue;
    auto& said = message.at[index_of(step)];
    if (!said) said = at;
  }
}

TracedMessage* MessageTimes::find_by_psn(Requester& requester, Psn psn) {
  // What has been reported needs nothing more of its peer.
  size_t first = std::max(requester.begin, std::min(requester.next[index_of(Step::kReported)],
                                                    requester.messages.size()));
  // UC and UD report at once.
  constexpr size_t kBehind = 4096;
  first = std::max(requester.begin, first - std::min(first, kBehind));
  const auto from = requester.messages.begin() + static_cast<std::ptrdiff_t>(first);
  const auto found = std::partition_point(from, requester.messages.end(), [&](size_t i) {
    return distance(messages_[i].end(), psn) >= 0;
  });
  if (found == requester.messages.end()) return nullptr;
  TracedMessage& message = messages_[*found];
  return distance(Psn(message.post.first_psn), psn) >= 0 ? &message : nullptr;
}

// The packet with the highest PSN counts, the first time that it comes: before it the message is
// not all there.
void MessageTimes::arrive(Requester& requester, const TracedMoment& moment) {
  requester.peer_is_traced = true;
  const Psn psn(moment.until + Psn::kMask);
  TracedMessage* const message = find_by_psn(requester, psn);
  if (message == nullptr) return;
  auto& arrived = message->at[index_of(Step::kArrived)];
  if (arrived && distance(Psn(message->arrived_psn), psn) <= 0) return;
  arrived = moment.at;
  message->arrived_psn = psn.value();
}

void MessageTimes::poll(Requester& requester, const TracedMoment& moment) {
  const auto from = requester.messages.begin() + static_cast<std::ptrdiff_t>(requester.begin);
  const auto found = std::partition_point(from, requester.messages.end(), [&](size_t i) {
    return serial_distance(messages_[i].post.number, moment.number) > 0;
  });
  if (found == requester.messages.end()) return;
  TracedMessage& message = messages_[*found];
  if (message.post.number != moment.number || message.at_step(Step::kPolled)) return;
  message.at[index_of(Step::kPolled)] = moment.at;
  message.status = moment.status;
  // The library looks by itself now and then, before it has been told.
  for (const Step step : {Step::kAcknowledged, Step::kReported}) {
    auto& said = message.at[index_of(step)];
    const bool is_step = step == Step::kReported || message.is_reliable();
    if (message.status == 0 && is_step && !said) said = moment.at;
  }
}

// A READ's answers by the standard's RC are acknowledgements.
void MessageTimes::acknowledge(Requester& requester, const TracedMoment& moment) {
  const Psn until(moment.until);
  pass(requester, Step::kAcknowledged, moment.at, [&](TracedMessage& message) {
    if (distance(message.end(), until) < 0) return false;
    if (message.is_read() && message.post.answers == 0)
      message.at[index_of(Step::kPlaced)] = moment.at;
    return true;
  });
}

void MessageTimes::apply(const TracedMoment& moment) {
  const auto found = requesters_.find({moment.nic, moment.qpn});
  if (found == requesters_.end()) return;
  Requester& requester = found->second;
  const Psn until(moment.until);
  const auto is_before = [&](const TracedMessage& message) {
    return distance(message.end(), until) >= 0;
  };
  switch (moment.kind) {
    case Kind::kPosted:
      return;
    case Kind::kSent:
      return pass(requester, Step::kSent, moment.at, is_before);
    case Kind::kArrived:
      return arrive(requester, moment);
    case Kind::kPlaced:
      return pass(requester, Step::kPlaced, moment.at, is_before);
    case Kind::kPlacedAlone: {
      TracedMessage* const message = find_by_psn(requester, Psn(moment.until + Psn::kMask));
      if (message != nullptr && !message->at_step(Step::kPlaced))
        message->at[index_of(Step::kPlaced)] = moment.at;
      return;
    }
    case Kind::kAcknowledged:
      return acknowledge(requester, moment);
    case Kind::kAnswered:
      for (; requester.next_answer < requester.messages.size(); ++requester.next_answer) {
        TracedMessage& message = messages_[requester.messages[requester.next_answer]];
        if (message.post.answers == 0) continue;
        // An answer acknowledges all that its request came behind.
        if (distance(Psn(message.post.first_answer), until) > 0)
          pass(requester, Step::kAcknowledged, moment.at, [&](const TracedMessage& earlier) {
            return serial_distance(earlier.post.number, message.post.number) > 0;
          });
        if (distance(message.answers_end(), until) < 0) return;
        message.at[index_of(Step::kPlaced)] = message.at[index_of(Step::kAcknowledged)] = moment.at;
      }
      return;
    case Kind::kReported:
      return pass(requester, Step::kReported, moment.at, [&](const TracedMessage& message) {
        return message.post.answers == 0
                   ? is_before(message)
                   : distance(message.answers_end(), Psn(moment.answered)) >= 0;
      });
    case Kind::kPolled:
      return poll(requester, moment);
  }
}

void MessageTimes::finish(uint64_t missed) {
  std::ranges::stable_sort(moments_, [](const TracedMoment& a, const TracedMoment& b) {
    return a.at != b.at ? a.at < b.at : a.kind < b.kind;
  });
  for (const TracedMoment& moment : moments_) {
    if (moment.kind == Kind::kPosted)
      post(moment);
    else
      apply(moment);
  }
  counts_.events = moments_.size();
  counts_.missed = missed + missing_of_programs();
  count();
  measure();
}

// Programs number what they tell: what is missing in between found their ring full.
uint64_t MessageTimes::missing_of_programs() const {
  struct Range {
    uint32_t first = 0;
    int32_t begin = 0, end = 0;  // beyond `first`
    uint64_t events = 0;
  };
  std::map<uint32_t, Range> programs;
  for (const TracedMoment& moment : moments_) {
    if (moment.kind != Kind::kPosted && moment.kind != Kind::kPolled) continue;
    const auto [entry, is_new] = programs.try_emplace(moment.client);
    Range& range = entry->second;
    if (is_new) range.first = moment.sequence;
    const int32_t beyond = serial_distance(range.first, moment.sequence);
    range.begin = std::min(range.begin, beyond);
    range.end = std::max(range.end, beyond);
    ++range.events;
  }
  uint64_t missing = 0;
  for (const auto& [client, range] : programs) {
    const uint64_t all = static_cast<uint64_t>(int64_t{range.end} - range.begin) + 1;
    missing += all - std::min(all, range.events);
  }
  return missing;
}

bool MessageTimes::is_counted(const TracedMessage& message) const {
  const auto found = requesters_.find({message.post.nic, message.post.qpn});
  return message.status == 0 && !message.is_cut &&
         !message.missing_step(found->second.peer_is_traced);
}

void MessageTimes::count() {
  counts_.messages = messages_.size();
  counts_.queue_pairs = requesters_.size();
  for (const TracedMessage& message : messages_) {
    const Requester& requester = requesters_.at({message.post.nic, message.post.qpn});
    const std::optional<Step> missing = message.missing_step(requester.peer_is_traced);
    if (message.status != 0) {
      ++counts_.failed;
      continue;
    }
    if (message.is_cut) {
      ++counts_.cut;
      continue;
    }
    if (missing) {
      ++counts_.lacking[index_of(*missing)];
      continue;
    }
    ++counts_.complete;
    counts_.in_order += message.is_in_order() ? 1 : 0;
    counts_.unplaced += !message.is_reliable() && !message.at_step(Step::kPlaced) ? 1 : 0;
  }
}

void MessageTimes::measure() {
  using enum Step;
  // The last segments are between steps that its own NIC has seen, where the peer tells nothing.
  constexpr std::pair<Step, Step> kSegments[] = {
      {kPosted, kSent},         {kSent, kArrived},      {kArrived, kPlaced},
      {kPlaced, kAcknowledged}, {kSent, kAcknowledged}, {kAcknowledged, kReported},
      {kSent, kReported},       {kReported, kPolled},   {kPosted, kPolled}};
  std::vector<uint64_t> times;
  for (const auto& [from, to] : kSegments) {
    times.clear();
    for (const TracedMessage& message : messages_) {
      const auto begin = message.at_step(from), end = message.at_step(to);
      if (!begin || !end || *end < *begin || !is_counted(message)) continue;
      // Where the peer is traced its steps are in between; UC and UD have no acknowledgement.
      if (from == kSent && to == kAcknowledged && message.at_step(kArrived)) continue;
      if (from == kSent && to == kReported && message.is_reliable()) continue;
      times.push_back(*end - *begin);
    }
    if (times.empty()) continue;
    std::ranges::sort(times);
    const auto at = [&](uint64_t permille) {
      return ns(times[std::min((times.size() * permille) / 1000, times.size() - 1)]);
    };
    segments_.push_back({from, to, times.size(), at(500), at(990), ns(times.back())});
  }
  for (size_t i = 0; i < messages_.size(); ++i)
    if (is_counted(messages_[i]) && messages_[i].at_step(kReported)) slowest_.push_back(i);
  const auto duration = [this](size_t i) {
    const TracedMessage& message = messages_[i];
    const uint64_t end = message.at_step(kPolled).value_or(*message.at_step(kReported));
    return end - std::min(end, *message.at_step(kPosted));
  };
  const auto kept = std::min(slowest_.size(), kSlowest);
  std::ranges::partial_sort(slowest_, slowest_.begin() + static_cast<std::ptrdiff_t>(kept),
                            [&](size_t a, size_t b) { return duration(a) > duration(b); });
  slowest_.resize(kept);
}

}  // namespace hostnic::cli
