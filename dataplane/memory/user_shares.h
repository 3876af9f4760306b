// SPDX-License-Identifier: BSD-3-Clause
// How much each user has of something that hostnicd has a number of. One user's programs get no
// more than his share however many they are, and all users together leave a rest to hostnicd's own
// and root.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace hostnic {

class UserShares {
 public:
  struct Limits {
    uint64_t all = UINT64_MAX;        // what there is
    uint64_t strangers = UINT64_MAX;  // what users without privileges may have together
    uint64_t user = UINT64_MAX;       // what each of them may have
  };
  // Half of all for each user, seven eighths for all of them.
  static constexpr Limits shares_of(uint64_t all) { return shares_of(all, all - all / 2); }
  static constexpr Limits shares_of(uint64_t all, uint64_t user) {
    return {all, all - all / 8, user};
  }

  UserShares() = default;
  explicit UserShares(const Limits& limits) : limits_(limits) {}
  UserShares(const UserShares&) = delete;
  UserShares& operator=(const UserShares&) = delete;
  // Called before anything is taken.
  void set_limits(const Limits& limits) { limits_ = limits; }
  const Limits& limits() const { return limits_; }

  // Takes one for a user's program; nothing stands for hostnicd's own user and root, whose only
  // limit is what there is. Returns false if the user may have no more. [any thread]
  bool take(std::optional<uint32_t> stranger) {
    const std::lock_guard lock(mutex_);
    if (taken_ >= limits_.all) return false;
    if (stranger) {
      if (of_strangers_ >= limits_.strangers) return false;
      uint64_t& of_user = of_user_[*stranger];
      if (of_user >= limits_.user) return false;
      ++of_user;
      ++of_strangers_;
    }
    ++taken_;
    return true;
  }
  // Gives one back that was taken. [any thread]
  void give_back(std::optional<uint32_t> stranger) {
    const std::lock_guard lock(mutex_);
    --taken_;
    if (!stranger) return;
    --of_strangers_;
    const auto found = of_user_.find(*stranger);
    if (found != of_user_.end() && --found->second == 0) of_user_.erase(found);
  }
  // What a user's programs have. [any thread]
  uint64_t of(uint32_t stranger) const {
    const std::lock_guard lock(mutex_);
    const auto found = of_user_.find(stranger);
    return found == of_user_.end() ? 0 : found->second;
  }
  uint64_t taken() const {
    const std::lock_guard lock(mutex_);
    return taken_;
  }

 private:
  Limits limits_;
  mutable std::mutex mutex_;
  uint64_t taken_ = 0, of_strangers_ = 0;
  std::map<uint32_t, uint64_t> of_user_;
};

}  // namespace hostnic
