// SPDX-License-Identifier: BSD-3-Clause
// Traced messages of all NICs: `trace points` at the prompt. A trace begins, ends, and is written
// into a directory as CTF, which `hostnic report`, babeltrace and Trace Compass read. Control
// thread; the lcores' loops run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/daemon/observe/message_points.h"
#include "dataplane/nic/qp/message_tap.h"
#include "protocol/expected.h"

namespace hostnic {

class Daemon;

class MessageTrace {
 public:
  // The memory of each lcore: events of some 200,000 messages.
  static constexpr uint32_t kBytes = 64u << 20;

  explicit MessageTrace(Daemon& daemon) : daemon_(daemon) {}
  ~MessageTrace() { stop(); }
  MessageTrace(const MessageTrace&) = delete;
  MessageTrace& operator=(const MessageTrace&) = delete;

  // Begins a new trace; what was recorded before is forgotten. An error is one line.
  Expected<void, std::string> start(uint32_t bytes = kBytes);
  // Ends it; what is recorded can be saved.
  void stop();
  // Writes what has been recorded into a directory, which it makes: absolute, and not there yet.
  // Returns what to tell. An error is one line.
  Expected<std::string, std::string> save(const std::string& directory);
  bool is_on() const { return is_on_; }
  // One line: whether messages are traced, and how many events there are.
  std::string state_text();

 private:
  struct Count {
    uint64_t recorded = 0, missed = 0;
  };
  struct Lcore {
    MessagePoints points;
    std::vector<std::unique_ptr<MessageTap>> taps;  // of its NICs
  };
  void set_taps(bool on);
  Count take_events();

  Daemon& daemon_;
  std::vector<std::unique_ptr<Lcore>> lcores_;
  bool is_on_ = false;
  uint32_t session_ = 0;
};

}  // namespace hostnic
