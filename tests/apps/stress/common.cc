// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/stress/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace hostnic::stress {

Tally& tally() {
  static Tally& instance = *new Tally;
  return instance;
}

void die(const std::string& why) {
  static std::mutex& first = *new std::mutex;  // never unlocked
  first.lock();
  fmt::print(stderr, "hostnic-stress: {}\n", why);
  fflush(nullptr);
  _exit(1);
}

void must(int error, const char* what) {
  if (error != 0) die(fmt::format("{}: {}", what, strerror(error < 0 ? errno : error)));
}

void die_of_errno(const char* what) { die(fmt::format("{}: {}", what, strerror(errno))); }

}  // namespace hostnic::stress
