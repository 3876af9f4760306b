// SPDX-License-Identifier: BSD-3-Clause
// Users whose programs took memory away that the NIC was using. Each time an lcore may have slept
// until the kernel was done with that, so there is a pause until the user's next device: a second,
// doubling to a minute while it goes on.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>

namespace hostnic {

class Penalties {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  static constexpr std::chrono::seconds kFirst{1}, kLongest{60}, kForgotten{600};

  // A program of the user's did it.
  void note(uint32_t uid, TimePoint now) {
    std::erase_if(users_, [now](const auto& each) { return now - each.second.until > kForgotten; });
    const auto [user, is_new] = users_.try_emplace(uid);
    // Several devices that go together are one.
    if (!is_new && now < user->second.until) return;
    user->second.length = is_new ? kFirst : std::min(2 * user->second.length, kLongest);
    user->second.until = now + user->second.length;
  }
  // How long the user has to wait yet; 0: not at all.
  Duration left(uint32_t uid, TimePoint now) const {
    const auto user = users_.find(uid);
    return user == users_.end() ? Duration(0) : std::max(user->second.until - now, Duration(0));
  }

 private:
  struct Penalty {
    std::chrono::seconds length{0};
    TimePoint until{};
  };
  std::map<uint32_t, Penalty> users_;
};

}  // namespace hostnic
