// SPDX-License-Identifier: BSD-3-Clause
// Descriptors that strangers send. Looking at such a file, and closing it, asks its file system,
// which may take for ever (FUSE, a network that is gone): nothing but a thread that can be spared
// does that.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// Whether the descriptor is a socket, which is known without asking the file. Any thread.
bool is_socket(int fd);
// Closes the descriptors in a thread of their own. Any thread; does not wait.
void close_apart(std::vector<UniqueFd> fds);
// Whether all files are memory (tmpfs, hugetlbfs), which answers at once. May block: for session
// threads that hold no lock. An error is one line.
Expected<void, std::string> check_files_are_memory(std::span<const UniqueFd> fds);

}  // namespace hostnic
