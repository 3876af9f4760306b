// SPDX-License-Identifier: BSD-3-Clause
// A hostnicd that lives as long as a lab.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {

// How a lab's hostnicd is started.
struct LabDaemonPlan {
  std::string program;
  std::string directory;  // for its socket, log and EAL's files
  std::vector<std::string> arguments;
  bool verbose = false;  // its log goes to our stderr
  // Run in the new process before it becomes hostnicd; false: it ends.
  std::function<bool()> enter;

  std::string socket() const { return directory + "/hostnicd.sock"; }
  std::string log() const { return directory + "/hostnicd.log"; }
};

// It is stopped when this is destroyed, and dies with this process.
class LabDaemon {
 public:
  LabDaemon() = default;
  LabDaemon(LabDaemon&& other) noexcept;
  LabDaemon& operator=(LabDaemon&&) = delete;
  ~LabDaemon() { stop(); }

  bool start(const LabDaemonPlan& plan);
  // Waits until hostnicd is ready; then returns nothing. If it ends before, returns its exit code,
  // or 1.
  std::optional<int> wait_ready();
  // Asks it to end; stop() waits for that.
  void request_stop() const;
  // Stops hostnicd; returns its exit code, 0 if there was none left to stop.
  int stop();

  pid_t pid() const { return pid_; }
  // It has ended, and somebody else has its exit code.
  void forget() { pid_ = -1; }

 private:
  pid_t pid_ = -1;
  UniqueFd ready_;
};

// Shows a log on stderr.
void show_log(const std::string& path);

}  // namespace hostnic::cli
