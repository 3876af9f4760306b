// SPDX-License-Identifier: BSD-3-Clause
// The library's part of traced messages: events into the segment's event ring while hostnicd asks
// for them (protocol/hostif/message_event.h). While it does not, whoever has something to tell
// looks at one word that nobody writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "protocol/hostif/message_event.h"
#include "protocol/hostif/segment.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::driver {

class MessageLog {
 public:
  explicit MessageLog(SegmentMap& map) : map_(map) {}
  MessageLog(const MessageLog&) = delete;
  MessageLog& operator=(const MessageLog&) = delete;

  // The clock of events.
  static uint64_t ticks();
  // Adds an event of `session`, and numbers it; one that finds the ring full is missing in the
  // sequence. May be called by any thread: those that poll have no lock in common with those that
  // post.
  void add(MessageEvent event, uint32_t session);

 private:
  SegmentMap& map_;
  std::mutex mutex_;
  uint32_t sequence_ = 0;
};

// When requests of one send queue were posted. With the driver lock taken.
struct PostStamp {
  uint64_t ticks;
  uint32_t index;    // of the request
  uint32_t session;  // in which it was posted; 0: in none
};

}  // namespace hostnic::driver
