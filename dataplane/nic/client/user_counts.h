// SPDX-License-Identifier: BSD-3-Clause
// How much of something that a NIC has a number of its clients' users have. The NIC's lcore.
#pragma once

#include <cstdint>
#include <map>

#include "dataplane/memory/user_shares.h"
#include "dataplane/nic/client/client_channel.h"

namespace hostnic {

class UserCounts {
 public:
  // `all` is how many there are: users without privileges leave a part of these to the others.
  explicit UserCounts(uint64_t all) : of_strangers_limit_(UserShares::shares_of(all).strangers) {}

  // Whether the client may have another one, if its user may have `of_user`.
  bool may_take(const ClientChannel::Settings& client, uint32_t of_user) {
    return of_user_[client.uid] < of_user &&
           (!client.is_strangers || of_strangers_ < of_strangers_limit_);
  }
  void take(const ClientChannel::Settings& client) {
    ++of_user_[client.uid];
    if (client.is_strangers) ++of_strangers_;
  }
  void give_back(const ClientChannel::Settings& client, uint32_t count = 1) {
    of_user_[client.uid] -= count;
    if (client.is_strangers) of_strangers_ -= count;
  }

 private:
  const uint64_t of_strangers_limit_;
  std::map<uint32_t, uint32_t> of_user_;
  uint64_t of_strangers_ = 0;
};

}  // namespace hostnic
