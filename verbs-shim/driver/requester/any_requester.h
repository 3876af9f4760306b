// SPDX-License-Identifier: BSD-3-Clause
// A queue pair's requester, of whichever kind. A std::variant says behind its largest member which
// one it holds: one more cache line to wait for with each report and post. Here that comes first.
#pragma once

#include <memory>

#include "protocol/transport_kind.h"
#include "verbs-shim/driver/requester/hostnic.h"
#include "verbs-shim/driver/requester/mrc.h"
#include "verbs-shim/driver/requester/roce.h"
#include "verbs-shim/driver/requester/unreliable.h"

namespace hostnic::driver {

class AnyRequester {
 public:
  explicit AnyRequester(Transport kind) : kind_(kind) { make(); }
  ~AnyRequester() { destroy(); }
  AnyRequester(const AnyRequester&) = delete;
  AnyRequester& operator=(const AnyRequester&) = delete;

  // Makes it a requester of another kind, which starts anew. This allocates; not for the hot path.
  void become(Transport kind) {
    if (kind == kind_) return;
    destroy();
    kind_ = kind;
    make();
  }

  // Calls `call` with the requester: the one place that tells them apart.
  template <class Call>
  [[gnu::always_inline]] decltype(auto) with(Call&& call) {
    if (kind_ == Transport::kHostnic) [[likely]]
      return call(hostnic_);
    if (kind_ == Transport::kMrc) return call(mrc_);
    return kind_ == Transport::kRoce ? call(roce_) : call(unreliable_);
  }
  template <class Call>
  [[gnu::always_inline]] decltype(auto) with(Call&& call) const {
    if (kind_ == Transport::kHostnic) [[likely]]
      return call(hostnic_);
    if (kind_ == Transport::kMrc) return call(mrc_);
    return kind_ == Transport::kRoce ? call(roce_) : call(unreliable_);
  }

  // Starts requests at `first`: when the queue pair is connected, or goes from SQE to RTS.
  void start(SendQueue& queue, Psn first, TimeNs now_ns) {
    with([&](auto& requester) { requester.start(queue, first, now_ns); });
  }
  // The queue was empty, and is not any more.
  [[gnu::always_inline]] void begin_work(TimeNs now_ns) {
    with([&]<class R>(R& requester) {
      if constexpr (ReliableRequester<R>) requester.begin_work(now_ns);
    });
  }

  // Whether it has WRITEs and nothing else.
  bool writes_only() const { return kind_ == Transport::kMrc; }

  // What all kinds can say.
  uint32_t in_flight() const {
    return with([](const auto& requester) { return requester.in_flight(); });
  }
  uint32_t congestion_window() const {
    return with([](const auto& requester) { return requester.congestion_window(); });
  }
  Psn una() const {
    return with([](const auto& requester) { return requester.una(); });
  }
  Psn next() const {
    return with([](const auto& requester) { return requester.next(); });
  }
  QpGauges gauges(const SendQueue& queue) const {
    return with([&](const auto& requester) { return requester.gauges(queue); });
  }
  // Whether requests may go now: unreliable ones always may. They may not while the peer has no
  // receive, and is asked again later.
  bool may_issue() const {
    return with([]<class R>(const R& requester) {
      if constexpr (ReliableRequester<R>) return requester.may_issue();
      return true;
    });
  }

  // The ends of what each post and each report touches, for prefetching: of the largest requester,
  // so that nothing has to be read for it.
  const void* end_of_posts() const { return HostnicRequester::ends(&hostnic_).of_posts; }
  const void* end_of_reports() const { return HostnicRequester::ends(&hostnic_).of_reports; }

 private:
  void make() {
    switch (kind_) {
      case Transport::kHostnic:
        std::construct_at(&hostnic_);
        break;
      case Transport::kRoce:
        std::construct_at(&roce_);
        break;
      case Transport::kMrc:
        std::construct_at(&mrc_);
        break;
      case Transport::kAuto:  // never a queue pair's
      case Transport::kUnreliable:
        std::construct_at(&unreliable_);
        break;
    }
  }
  void destroy() {
    with([](auto& requester) { std::destroy_at(&requester); });
  }

  Transport kind_;
  union {
    HostnicRequester hostnic_;
    RoceRequester roce_;
    MrcRequester mrc_;
    UnreliableRequester unreliable_;
  };
};

}  // namespace hostnic::driver
