// SPDX-License-Identifier: BSD-3-Clause
// Memory that hostnic shares with the programs that it starts, by a file that it removes again. A
// file with a name, so that programs of other namespaces find it.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <string>
#include <utility>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {

// `Board` is a structure that can be where zeros are.
template <typename Board>
class SharedBoard {
 public:
  SharedBoard() = default;
  ~SharedBoard() {
    if (board_ != nullptr) munmap(board_, sizeof(Board));
    if (!path_.empty()) unlink(path_.c_str());
  }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  // An error is one line. `name` is a part of the file's name; others may write to it where their
  // programs are to count as well.
  Expected<void, std::string> make(const std::string& name, bool open_to_others) {
    const char* directory = getenv("TMPDIR");
    std::string path =
        fmt::format("{}/hostnic-{}-XXXXXX",
                    directory != nullptr && *directory == '/' ? directory : "/tmp", name);
    const UniqueFd file(mkostemp(path.data(), O_CLOEXEC));
    const auto failed = [&] { return Unexpected(fmt::format("{}: {}", path, strerror(errno))); };
    if (!file) return failed();
    path_ = path;
    if (ftruncate(file.get(), sizeof(Board)) != 0) return failed();
    if (open_to_others && fchmod(file.get(), 0666) != 0) return failed();
    void* mapped = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) return failed();
    board_ = new (mapped) Board;
    return {};
  }
  const std::string& path() const { return path_; }
  Board* operator->() const { return board_; }
  Board& operator*() const { return *board_; }
  explicit operator bool() const { return board_ != nullptr; }

 private:
  std::string path_;
  Board* board_ = nullptr;
};

}  // namespace hostnic::cli
