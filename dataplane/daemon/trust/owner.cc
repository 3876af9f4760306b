// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/trust/owner.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace hostnic {
namespace {

constexpr uint64_t kAllUsers = UINT32_MAX;  // of 2^32 ids the last one is nobody's
constexpr uint32_t kUsualOverflow = 65534;

struct UserNamespace {
  uint32_t overflow_uid = kUsualOverflow;
  std::string uid_map;
};

UserNamespace own_namespace() {
  UserNamespace own;
  std::ifstream("/proc/sys/kernel/overflowuid") >> own.overflow_uid;
  std::ifstream map("/proc/self/uid_map");
  own.uid_map.assign(std::istreambuf_iterator<char>(map), {});
  return own;
}

}  // namespace

bool names_one_user(uint32_t uid, uint32_t overflow_uid, std::string_view uid_map) {
  if (uid != overflow_uid) return true;
  std::istringstream lines{std::string(uid_map)};
  uint64_t inside = 0, outside = 0, count = 0, all = 0;
  while (lines >> inside >> outside >> count) all += count;
  return all >= kAllUsers;
}

bool names_one_user(uint32_t uid) {
  static const UserNamespace kOwn = own_namespace();
  return names_one_user(uid, kOwn.overflow_uid, kOwn.uid_map);
}

bool is_owner(uint32_t uid) { return (uid == 0 || uid == geteuid()) && names_one_user(uid); }

}  // namespace hostnic
