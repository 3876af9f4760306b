// SPDX-License-Identifier: BSD-3-Clause
// One file of a file system of our own (FUSE) whose pages never come: who touches one waits until
// the program has ended. A child of its own serves the file, so that its end is not what it waits
// for itself.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::hostile {

class FuseFile {
 public:
  static constexpr size_t kBytes = 1 << 20;
  // Mounts and opens the file, in a mount namespace of the calling thread's own; null where that is
  // not permitted.
  static std::unique_ptr<FuseFile> create(const std::string& directory);
  // Ends the file's process: who waits gets an error.
  ~FuseFile();

  int fd() const { return file_.get(); }
  // How many reads and flushes wait for an answer.
  unsigned waiting() const { return waiting_->load(); }

 private:
  // Serves until `end` has been closed at its other side.
  void serve(int device, int end);

  UniqueFd file_, end_;
  pid_t server_ = -1;
  std::atomic<unsigned>* waiting_ = nullptr;  // shared with the process that serves the file
};

}  // namespace hostnic::hostile
