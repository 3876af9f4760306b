// SPDX-License-Identifier: BSD-3-Clause
// Lines that say why something failed or waits, whose cause comes a little later: hostnicd is still
// to be asked, or asks the peer's host meanwhile, and is asked again with the ticket that it gave.
// Nobody waits, and no lock is held while hostnicd is asked, until the device is closed or the
// process ends. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "protocol/types.h"
#include "verbs-shim/driver/driver.h"

namespace hostnic::runtime {

class OwedLines {
 public:
  // hostnicd asks for 1.3 s; a line is said without its cause after this.
  static constexpr uint64_t kLimitNs = 2'000'000'000;
  static constexpr size_t kMost = 16;
  // Asks hostnicd; nothing: it can't be asked now.
  using Ask = std::function<std::optional<driver::Why>(const ExplainRequest&)>;
  using Say = std::function<void(const driver::OwedLine& line, const std::string& cause)>;

  OwedLines(Ask ask, Say say) : ask_(std::move(ask)), say_(std::move(say)) {}
  // Waits for the causes that are being asked for, within the limit.
  ~OwedLines();
  OwedLines(const OwedLines&) = delete;
  OwedLines& operator=(const OwedLines&) = delete;

  // Keeps a line; one too many is said at once.
  void add(const driver::OwedLine& line, TimeNs now_ns);
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  // Says those whose cause is known by now, and those that are overdue; returns whether some are
  // left.
  bool settle(TimeNs now_ns);
  // Called in a forked child: the lines are the parent's.
  void abandon_after_fork() {
    count_.store(0, std::memory_order_relaxed);
    is_known_ = false;
  }

 private:
  struct Kept {
    driver::OwedLine line;
    TimeNs until_ns;
  };
  void finish();
  static void finish_all();

  const Ask ask_;
  const Say say_;
  std::mutex mutex_;
  std::vector<Kept> lines_;
  bool is_known_ = false;         // to finish_all(); under mutex_
  std::atomic<size_t> count_{0};  // those that are being asked about included
};

}  // namespace hostnic::runtime
