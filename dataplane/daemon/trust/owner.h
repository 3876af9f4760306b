// SPDX-License-Identifier: BSD-3-Clause
// Says who may do all: the user who runs hostnicd, and root, as the kernel says who they are
// (SO_PEERCRED).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hostnic {

// Whether a user id names one user. In a user namespace all users that have no number there have
// the overflow uid, which some user may have, too. `uid_map` is the text of /proc/self/uid_map:
// only where that has all users nobody is without a number.
bool names_one_user(uint32_t uid, uint32_t overflow_uid, std::string_view uid_map);
// The same, by the files in /proc as they were when hostnicd began. [any thread]
bool names_one_user(uint32_t uid);

// Whether a user may do all. [any thread]
bool is_owner(uint32_t uid);

// The user whose programs' shares are limited; nothing: he may do all. [any thread]
inline std::optional<uint32_t> limited_user(uint32_t uid) {
  return is_owner(uid) ? std::nullopt : std::optional(uid);
}

}  // namespace hostnic
