// SPDX-License-Identifier: BSD-3-Clause
// DPDK's trace points for what happens to messages (dataplane/nic/qp/message_tap.h), and the memory
// that they write to. Readers of traces go by the names of points and fields: they are listed in
// docs/operate.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/nic/qp/message_tap.h"
#include "protocol/expected.h"

namespace hostnic {

// Turns all of hostnic's trace points on or off. Control thread.
void enable_message_points(bool on);

// One lcore's moments, as events of DPDK's trace points in memory of ours. DPDK gives each thread
// memory of a size that is fixed when it starts, which it writes below $HOME when it ends.
class MessagePoints final : public MessageSink {
 public:
  MessagePoints() = default;
  ~MessagePoints();
  MessagePoints(const MessagePoints&) = delete;
  MessagePoints& operator=(const MessagePoints&) = delete;

  // Makes the memory, of which each page is used when it is written. Control thread; 0 or an errno
  // value.
  int make_memory(uint32_t bytes, uint32_t lcore);
  // Has the calling lcore's trace points write to it, or to what they did before.
  void begin();
  void end();
  // On the lcore. When the memory is full nothing more is recorded, but counted.
  void take(const MessageMoment& moment) override;

  // What a file of the trace has: a header and the events until now. On the lcore, or when it
  // records nothing; the bytes stay as they are.
  std::span<const std::byte> stream() const;
  uint64_t missed() const { return missed_; }
  uint64_t recorded() const { return recorded_; }

 private:
  void* memory_ = nullptr;
  size_t mapped_bytes_ = 0;
  void* before_ = nullptr;  // what the lcore's trace points wrote to
  bool is_full_ = false;
  uint64_t recorded_ = 0, missed_ = 0;
};

}  // namespace hostnic
