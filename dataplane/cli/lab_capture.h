// SPDX-License-Identifier: BSD-3-Clause
// The `hostnic capture` that a lab runs beside its command.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "protocol/expected.h"

namespace hostnic::cli {

// It ends when this is destroyed, and dies with this process.
class LabCapture {
 public:
  LabCapture() = default;
  LabCapture(const LabCapture&) = delete;
  LabCapture& operator=(const LabCapture&) = delete;
  ~LabCapture() { stop(); }

  // Captures the packets of all NICs of a hostnicd, or of hosts (NAME=SOCKET), into a file; returns
  // when it does. An error is one line.
  Expected<void, std::string> start(const std::string& socket_path, const std::string& file);
  Expected<void, std::string> start(const std::vector<std::string>& hosts, const std::string& file);
  // Has the file completed. Returns whether that went well.
  bool stop();

  pid_t pid() const { return pid_; }
  // It has ended, and somebody else has its exit code.
  void forget() { pid_ = -1; }

 private:
  Expected<void, std::string> run(const std::vector<std::string>& options, const std::string& file);

  pid_t pid_ = -1;
};

}  // namespace hostnic::cli
