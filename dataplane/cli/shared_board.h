// SPDX-License-Identifier: BSD-3-Clause
// Memory that hostnic shares with the programs that it starts, by a file that it removes again. A
// file with a name, so that programs of other namespaces find it, and in memory where there is such
// a directory: the kernel stops whoever writes to a mapped file while it writes that to a disk.
#pragma once

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <string>
#include <utility>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {

// A new file for so many bytes, whose name has `name` in it. Those of the same name are removed
// that somebody has left who was killed. An error is one line.
Expected<UniqueFd, std::string> make_board_file(const std::string& name, size_t bytes,
                                                bool open_to_others, std::string& path);

// `Board` is a structure that can be where zeros are.
template <typename Board>
class SharedBoard {
 public:
  SharedBoard() = default;
  ~SharedBoard() {
    if (board_ != nullptr) munmap(board_, sizeof(Board));
    remove_file();
  }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  // An error is one line. `name` is a part of the file's name; others may write to it where their
  // programs are to count as well.
  Expected<void, std::string> make(const std::string& name, bool open_to_others) {
    auto file = make_board_file(name, sizeof(Board), open_to_others, path_);
    if (!file) return Unexpected(file.error());
    void* mapped = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
    if (mapped == MAP_FAILED) return Unexpected(fmt::format("mmap: {}", strerror(errno)));
    board_ = new (mapped) Board;
    return {};
  }
  // What has been mapped stays. Also for another process that outlives this one.
  void remove_file() const {
    if (!path_.empty()) unlink(path_.c_str());
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
