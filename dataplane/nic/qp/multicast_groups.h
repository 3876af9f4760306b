// SPDX-License-Identifier: BSD-3-Clause
// Which queue pairs of a NIC are members of which multicast groups. Bounded; owned by the NIC's
// lcore alone.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/hostif/descriptors.h"
#include "protocol/types.h"

namespace hostnic {

struct QpContext;

class MulticastGroups {
 public:
  // Adds a member: returns 0, also when it is a member already, or ENOMEM if there is no room for
  // another group, or member of this one.
  int add(Ipv4Address ip, QpContext& qp) {
    auto group = find(ip);
    if (group == groups_.end() || group->ip != ip) {
      if (groups_.size() == kMaxGroups) return ENOMEM;
      group = groups_.insert(group, Group{ip, {}});
    }
    if (std::ranges::find(group->members, &qp) != group->members.end()) return 0;
    if (group->members.size() == kMaxGroupMembers) return ENOMEM;
    group->members.push_back(&qp);
    return 0;
  }

  // Removes a member; returns false if it is none.
  bool remove(Ipv4Address ip, QpContext& qp) {
    const auto group = find(ip);
    if (group == groups_.end() || group->ip != ip || std::erase(group->members, &qp) == 0)
      return false;
    if (group->members.empty()) groups_.erase(group);
    return true;
  }

  // Removes the queue pair from all groups. Calls left(group) for each that has no members now.
  template <class Left>
  void forget(QpContext& qp, Left&& left) {
    for (Group& group : groups_) std::erase(group.members, &qp);
    std::erase_if(groups_, [&](const Group& group) {
      if (!group.members.empty()) return false;
      left(group.ip);
      return true;
    });
  }

  // How many groups have a member that `is_one` finds.
  template <class IsOne>
  size_t count_with(IsOne&& is_one) const {
    return static_cast<size_t>(std::ranges::count_if(
        groups_, [&](const Group& group) { return std::ranges::any_of(group.members, is_one); }));
  }

  // The members of a group; empty for an address that is no group, or one without members here.
  std::span<QpContext* const> members(Ipv4Address ip) const {
    const auto group = std::ranges::lower_bound(groups_, ip, {}, &Group::ip);
    if (group == groups_.end() || group->ip != ip) return {};
    return group->members;
  }

 private:
  struct Group {
    Ipv4Address ip;
    std::vector<QpContext*> members;  // never empty
  };

  std::vector<Group>::iterator find(Ipv4Address ip) {
    return std::ranges::lower_bound(groups_, ip, {}, &Group::ip);
  }

  std::vector<Group> groups_;  // sorted by address
};

}  // namespace hostnic
