// SPDX-License-Identifier: BSD-3-Clause
// The requests to other nodes that have not been answered (docs/mrc.md, "Planes and ports"): an
// update of ports goes again until it is, a probe of a path goes once. Pure: times come in. One
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "protocol/types.h"
#include "protocol/wire/mrc/control_headers.h"

namespace hostnic::mrc {

struct EndpointRequest {
  wire::mrc::EndpointOperation operation = wire::mrc::EndpointOperation::kPortStatus;
  Ipv4Address own{}, peer{};
  uint16_t source_port = 0;  // by which path it goes
  uint32_t port_mask = 0;    // kPortStatus
};

// What has become of a probe of a path.
struct ProbeOutcome {
  enum class State : uint8_t { kNone, kWaiting, kAnswered, kLost } state = State::kNone;
  uint64_t rtt_ns = 0;  // kAnswered
};

class EndpointRequests {
 public:
  static constexpr uint32_t kMost = 64;
  // An update goes so often, each time after twice as long.
  static constexpr uint64_t kFirstWaitNs = 1'000'000;
  static constexpr uint32_t kMostTries = 8;
  // A probe without an answer is lost after that; its outcome is forgotten some time later.
  static constexpr uint64_t kProbeNs = 1'000'000'000;
  static constexpr uint64_t kKeptNs = 5'000'000'000;

  // Takes a request, which is due at once. An update takes the place of an older one to the same
  // peer, or of the same probe. Returns its id; 0: there are too many.
  uint16_t add(const EndpointRequest& request, TimeNs now_ns) {
    Entry* free = nullptr;
    for (Entry& each : entries_) {
      const bool is_older = each.id != 0 && each.request.operation == request.operation &&
                            each.request.peer == request.peer && each.request.own == request.own &&
                            (!is_probe(request) || each.request.source_port == request.source_port);
      if (is_older || each.id == 0) free = &each;
      if (is_older) break;
    }
    if (free == nullptr) return 0;
    if (++last_id_ == 0) ++last_id_;
    *free = {.request = request, .id = last_id_, .due_ns = now_ns};
    next_due_ns_ = std::min(next_due_ns_, now_ns);
    return last_id_;
  }

  // Calls send(request, id) for what is due, and forgets what has been sent often enough. send()
  // returns false if there is no room: then it is due again. Returns how many were sent.
  template <class Send>
  uint32_t for_each_due(TimeNs now_ns, Send&& send) {
    if (now_ns < next_due_ns_) return 0;
    uint32_t sent = 0;
    next_due_ns_ = UINT64_MAX;
    for (Entry& each : entries_) {
      if (each.id == 0) continue;
      if (each.due_ns <= now_ns) {
        if (is_over(each)) {
          each = {};
          continue;
        }
        if (is_probe(each) && each.tries != 0) {
          each.outcome.state = ProbeOutcome::State::kLost;
          each.due_ns = now_ns + kKeptNs;
        } else if (send(each.request, each.id)) {
          ++sent;
          each.sent_ns = now_ns;
          each.due_ns = now_ns + (is_probe(each) ? kProbeNs : kFirstWaitNs << each.tries);
          ++each.tries;
        } else {
          each.due_ns = now_ns + kFirstWaitNs;
        }
      }
      next_due_ns_ = std::min(next_due_ns_, each.due_ns);
    }
    return sent;
  }
  // When something is due; UINT64_MAX: nothing is.
  TimeNs next_due_ns() const { return next_due_ns_; }

  // The peer has answered. Returns false if nothing of that id waits for it.
  bool answer(uint16_t id, Ipv4Address peer, wire::mrc::EndpointOperation operation,
              TimeNs now_ns) {
    Entry* const entry = find(id);
    if (entry == nullptr || entry->request.peer != peer || entry->tries == 0 ||
        entry->request.operation != operation ||
        entry->outcome.state != ProbeOutcome::State::kWaiting)
      return false;
    if (!is_probe(*entry)) {
      *entry = {};
      return true;
    }
    entry->outcome = {ProbeOutcome::State::kAnswered, now_ns - entry->sent_ns};
    entry->due_ns = now_ns + kKeptNs;
    return true;
  }
  // What has become of the newest probe of a path.
  ProbeOutcome outcome(Ipv4Address peer, uint16_t source_port) const {
    for (const Entry& each : entries_)
      if (is_probe_of(each, peer) && each.request.source_port == source_port) return each.outcome;
    return {};
  }
  // Forgets the probes of a peer's paths.
  void forget_probes(Ipv4Address peer) {
    for (Entry& each : entries_)
      if (is_probe_of(each, peer)) each = {};
  }

 private:
  struct Entry {
    EndpointRequest request;
    uint16_t id = 0;  // 0: free
    uint32_t tries = 0;
    TimeNs due_ns = 0, sent_ns = 0;
    ProbeOutcome outcome{.state = ProbeOutcome::State::kWaiting};
  };
  static bool is_probe(const EndpointRequest& request) {
    return request.operation == wire::mrc::EndpointOperation::kPathProbe;
  }
  static bool is_probe(const Entry& entry) { return is_probe(entry.request); }
  static bool is_probe_of(const Entry& entry, Ipv4Address peer) {
    return entry.id != 0 && is_probe(entry) && entry.request.peer == peer;
  }
  static bool is_over(const Entry& entry) {
    return is_probe(entry) ? entry.outcome.state != ProbeOutcome::State::kWaiting
                           : entry.tries == kMostTries;
  }
  Entry* find(uint16_t id) {
    for (Entry& each : entries_)
      if (id != 0 && each.id == id) return &each;
    return nullptr;
  }

  std::array<Entry, kMost> entries_{};
  uint16_t last_id_ = 0;
  TimeNs next_due_ns_ = UINT64_MAX;
};

}  // namespace hostnic::mrc
