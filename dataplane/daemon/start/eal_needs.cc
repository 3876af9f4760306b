// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/eal_needs.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

namespace hostnic {
namespace {

bool writable_directory(const std::string& path) {
  return !path.empty() && access(path.c_str(), W_OK | X_OK) == 0;
}

bool has_room_for_eal(const char* path) {
  if (path == nullptr || !writable_directory(path)) return false;
  const std::string eals = std::string(path) + "/dpdk";
  return access(eals.c_str(), F_OK) != 0 || writable_directory(eals);
}

}  // namespace

Expected<void, std::string> try_threads(uint32_t count) {
  std::atomic<bool> enough{false};
  std::vector<std::thread> threads;
  Expected<void, std::string> result;
  try {
    while (threads.size() < count) threads.emplace_back([&enough] { enough.wait(false); });
  } catch (const std::system_error& error) {
    result = Unexpected(fmt::format(
        "hostnicd needs {} threads, and gets {}: {} (see ulimit -u, and pids.max of its cgroup)",
        count + 1, threads.size() + 1, error.code().message()));
  }
  enough.store(true);
  enough.notify_all();
  for (std::thread& thread : threads) thread.join();
  return result;
}

Expected<void, std::string> try_descriptors(uint32_t count) {
  std::vector<UniqueFd> opened;
  while (opened.size() < count) {
    UniqueFd fd(open("/", O_PATH | O_CLOEXEC));
    if (!fd)
      return Unexpected(
          fmt::format("hostnicd needs {} descriptors beside those that it has, and gets {}: {} "
                      "(see ulimit -n)",
                      count, opened.size(), strerror(errno)));
    opened.push_back(std::move(fd));
  }
  return {};
}

std::string limit_of_addresses() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(" with {} MB of addresses (see ulimit -v; `ulimit -v unlimited` lifts it)",
                     limit.rlim_cur >> 20);
}

Expected<RuntimeDirectory, std::string> choose_runtime_directory(const char* usual,
                                                                 const char* otherwise) {
  if (has_room_for_eal(usual)) return RuntimeDirectory{usual};
  if (has_room_for_eal(otherwise)) return RuntimeDirectory{otherwise};
  char name[] = "/tmp/hostnic-XXXXXX";
  if (mkdtemp(name) == nullptr)
    return Unexpected(fmt::format("a runtime directory in /tmp: {}", strerror(errno)));
  return RuntimeDirectory{name, true};
}

HugePageTurn::HugePageTurn(std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kLook(10);
  // A file that every process of the machine can open, whoever it is and whatever it sees of the
  // file system.
  file_ = UniqueFd(open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
  for (auto waited = kLook * 0; file_ && !mine_ && waited <= patience; waited += kLook) {
    mine_ = flock(file_.get(), LOCK_EX | LOCK_NB) == 0;
    if (!mine_) std::this_thread::sleep_for(kLook);
  }
}

uint64_t free_huge_megabytes(const std::string& meminfo) {
  std::ifstream file(meminfo);
  uint64_t free = 0, promised = 0, page_kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    sscanf(line.c_str(), "HugePages_Free: %lu", &free);
    sscanf(line.c_str(), "HugePages_Rsvd: %lu", &promised);
    sscanf(line.c_str(), "Hugepagesize: %lu", &page_kilobytes);
  }
  return (free - std::min(free, promised)) * page_kilobytes / 1024;
}

bool can_have_huge_megabytes(uint64_t megabytes) {
  const size_t bytes = megabytes << 20;
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (mapping == MAP_FAILED) return false;
  munmap(mapping, bytes);
  return true;
}

}  // namespace hostnic
