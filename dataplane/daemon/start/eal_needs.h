// SPDX-License-Identifier: BSD-3-Clause
// What DPDK's environment (EAL) takes for granted, looked at before it starts: where something is
// missing EAL aborts with its own stack, or ends half-way. For the control thread, before any other
// of hostnicd's; errors are one line.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// Makes so many threads, for a moment.
Expected<void, std::string> try_threads(uint32_t count);
// Opens so many descriptors, for a moment.
Expected<void, std::string> try_descriptors(uint32_t count);

// What to say of hostnicd's address space where mapping memory fails: how large it may be, and
// where that is set; nothing where it has no limit.
std::string limit_of_addresses();

// Where EAL keeps its files: a directory, and whether it was made for this process, which then
// removes it.
struct RuntimeDirectory {
  std::string path;
  bool is_ours = false;
};
// Chooses `usual`, EAL's own choice, where files can be made in it and in its directory "dpdk",
// else `otherwise`, else a new directory in /tmp. Root of a user namespace, for one, is not the
// root to whom /var/run belongs. Either may be null.
Expected<RuntimeDirectory, std::string> choose_runtime_directory(const char* usual,
                                                                 const char* otherwise);

// The turn to count free huge pages and to take them: while one hostnicd has it, the others of the
// machine wait, so that no two take the same pages for theirs. It ends with the object. A
// hostnicd that waits in vain, because somebody keeps it, goes on after `patience` without it.
class HugePageTurn {
 public:
  explicit HugePageTurn(std::chrono::milliseconds patience = std::chrono::seconds(10));
  bool is_mine() const { return mine_; }

 private:
  UniqueFd file_;
  bool mine_ = false;
};

// The megabytes of huge pages of the default size that are neither used nor promised.
uint64_t free_huge_megabytes(const std::string& meminfo = "/proc/meminfo");
// Whether so many megabytes of huge pages can be had at this moment. The kernel promises them to a
// mapping, which is then given back.
bool can_have_huge_megabytes(uint64_t megabytes);

}  // namespace hostnic
