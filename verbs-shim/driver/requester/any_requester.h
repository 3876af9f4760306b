// SPDX-License-Identifier: BSD-3-Clause
// A queue pair's requester, of whichever kind. A std::variant says behind its largest member which
// one it holds: one more cache line to wait for with each report and post. Here that comes first.
#pragma once

#include <memory>

#include "protocol/transport_kind.h"
#include "verbs-shim/driver/requester/hostnic.h"
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
    return kind_ == Transport::kRoce ? call(roce_) : call(unreliable_);
  }
  template <class Call>
  [[gnu::always_inline]] decltype(auto) with(Call&& call) const {
    if (kind_ == Transport::kHostnic) [[likely]]
      return call(hostnic_);
    return kind_ == Transport::kRoce ? call(roce_) : call(unreliable_);
  }

  // The ends of what each post and each report touches, for prefetching: of the largest requester,
  // so that nothing has to be read for it.
  const void* end_of_posts() const { return HostnicRequester::end_of_posts(&hostnic_); }
  const void* end_of_reports() const { return HostnicRequester::end_of_reports(&hostnic_); }

 private:
  void make() {
    switch (kind_) {
      case Transport::kHostnic:
        std::construct_at(&hostnic_);
        break;
      case Transport::kRoce:
        std::construct_at(&roce_);
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
    UnreliableRequester unreliable_;
  };
};

}  // namespace hostnic::driver
