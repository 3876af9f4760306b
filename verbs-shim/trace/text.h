// SPDX-License-Identifier: BSD-3-Clause
// A line of bounded length that is put together without allocating.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "protocol/hostif/trace_ring.h"

namespace hostnic::trace {

// Arguments may fill the text but for kResultBytes; what is too long ends in "...".
class Text {
 public:
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    if (cut_) return;
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(bytes_ + size_, limit_ - size_, format, arguments);
    va_end(arguments);
    if (wanted < 0) return;
    if (static_cast<uint32_t>(wanted) < limit_ - size_) {
      size_ += static_cast<uint32_t>(wanted);
      return;
    }
    size_ = limit_ - 1;
    memcpy(bytes_ + size_ - 3, "...", 3);
    cut_ = true;
  }
  // Begins the result, for which there is room in any case.
  void begin_result() {
    limit_ = sizeof(bytes_);
    cut_ = false;
  }
  bool full() const { return cut_; }
  const char* bytes() const { return bytes_; }
  uint32_t size() const { return size_; }

 private:
  static constexpr uint32_t kResultBytes = 160;
  char bytes_[kTraceTextBytes];
  uint32_t size_ = 0;
  uint32_t limit_ = sizeof(bytes_) - kResultBytes;
  bool cut_ = false;
};

}  // namespace hostnic::trace
