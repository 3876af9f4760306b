// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/shared_board.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>

namespace hostnic::cli {
namespace {

std::string directory_of_boards() {
  if (access("/dev/shm", W_OK) == 0) return "/dev/shm";
  const char* temporary = getenv("TMPDIR");
  return temporary != nullptr && *temporary == '/' ? temporary : "/tmp";
}

// The process that has made a file of this name; 0: it is no such name.
pid_t maker_of(const std::string& file, const std::string& prefix) {
  return file.starts_with(prefix) ? atoi(file.c_str() + prefix.size()) : 0;
}

void remove_left(const std::string& directory, const std::string& prefix) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const pid_t maker = maker_of(entry.path().filename().string(), prefix);
    // Others' can not be removed, nor does anybody know whether they are in use.
    if (maker > 0 && kill(maker, 0) != 0 && errno == ESRCH) unlink(entry.path().c_str());
  }
}

}  // namespace

Expected<UniqueFd, std::string> make_board_file(const std::string& name, size_t bytes,
                                                bool open_to_others, std::string& path) {
  const std::string directory = directory_of_boards(), prefix = fmt::format("hostnic-{}-", name);
  remove_left(directory, prefix);
  std::string made = fmt::format("{}/{}{}-XXXXXX", directory, prefix, getpid());
  UniqueFd file(mkostemp(made.data(), O_CLOEXEC));
  const auto failed = [&] { return Unexpected(fmt::format("{}: {}", made, strerror(errno))); };
  if (!file) return failed();
  path = made;
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return failed();
  if (open_to_others && fchmod(file.get(), 0666) != 0) return failed();
  return file;
}

}  // namespace hostnic::cli
