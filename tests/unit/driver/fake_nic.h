// SPDX-License-Identifier: BSD-3-Clause
// The NIC's end of a client segment for tests of the driver half: answers commands, takes
// descriptors apart as a NIC would, and says in statuses what the test wants said.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/nic/client/client_channel.h"
#include "verbs-shim/driver/driver.h"
#include "verbs-shim/driver/qp.h"

namespace hostnic::driver {

// One descriptor with its continuation elements unpacked.
struct Chunk {
  SendDescriptor d;
  std::vector<Sge> sges;
  std::vector<std::byte> inline_bytes;
};

class FakeNic final : public NicLink {
 public:
  FakeNic() {
    ClientChannel::Settings settings;
    settings.max_qps = 100;  // enough to fill the send ring
    settings.arena_bytes = 1 << 20;
    auto made = ClientChannel::create(settings);
    if (made) channel_ = std::move(*made);
  }

  ClientChannel& channel() { return *channel_; }
  std::byte* segment() { return reinterpret_cast<std::byte*>(&channel_->header()); }

  void kick() override { serve_commands(); }
  void wait_for_response() override { serve_commands(); }
  void pause(uint32_t pause_ns) override { paused_ns += pause_ns; }
  std::optional<Why> ask_why(const ExplainRequest& request) override {
    asked_with_lock.push_back(request.question);
    return Why{};
  }
  void owe_line(const OwedLine& line) override { questions.push_back(line.request.question); }

  // Everything in a ring. A descriptor whose elements are not all there fails the test.
  std::vector<Chunk> take(RingEnd& ring) {
    std::vector<Chunk> chunks;
    RingElement element;
    while (ring.dequeue_burst(&element, 1) == 1) {
      Chunk chunk;
      std::memcpy(&chunk.d, &element, sizeof(element));
      std::vector<std::byte> extra(chunk.d.extra_elements * sizeof(RingElement));
      if (!extra.empty()) {
        EXPECT_EQ(ring.dequeue_burst(extra.data(), chunk.d.extra_elements),
                  int{chunk.d.extra_elements});
      }
      unpack(chunk, extra);
      chunks.push_back(std::move(chunk));
    }
    return chunks;
  }
  std::vector<Chunk> sends() { return take(channel_->sends); }
  std::vector<Chunk> urgent() { return take(channel_->urgent); }

  QpStatus& qp_status(uint32_t index = 0) { return channel_->qp_status(index); }
  void transmitted(Psn next) {
    qp_status().transmitted_psn.store(next.value(), std::memory_order_release);
  }
  // An ACK: everything before `base` has arrived, and so have the responses before `response_base`;
  // beyond the base the PSNs of `ahead`, up to `span` of them.
  void acknowledge(Psn base, uint32_t peer_window, Psn response_base = Psn(0),
                   const PsnBits& ahead = {}, uint32_t span = 0) {
    QpStatus& c = qp_status();
    c.sequence.fetch_add(1);
    c.una_psn = base.value();
    c.sack_end_psn = (base + span).value();
    std::copy(ahead.words().begin(), ahead.words().end(), c.sack);
    c.highest_acceptable_psn = (base + (peer_window - 1)).value();
    c.response_una_psn = response_base.value();
    ++c.ack_count;
    c.sequence.fetch_add(1);
    if (c.dirty.exchange(1) != 0) return;
    const MetaReport report{0, kQpn, {}};
    EXPECT_TRUE(channel_->metas.enqueue_bulk(&report, 1));
  }

  static constexpr uint32_t kQpn = 0x10002;
  // How many more times the NIC says that it does not know yet what a peer speaks, and how long
  // the driver has waited for it.
  uint32_t unknown_peers = 0;
  uint64_t paused_ns = 0;
  // What the driver has wanted to know.
  std::vector<Question> questions, asked_with_lock;
  // What connections of RC speak.
  Transport spoken = Transport::kHostnic;

 private:
  void serve_commands() {
    Command command;
    while (channel_->commands.dequeue_burst(&command, 1) == 1) {
      if (command.kind == CommandKind::kModifyQp && command.modify_qp.state == QpState::kRts)
        transmitted(Psn(command.modify_qp.sq_psn));
      CommandResponse response{};
      response.correlation = command.correlation;
      response.qpn = kQpn;
      response.transport = spoken;
      if (command.kind == CommandKind::kModifyQp && command.modify_qp.state == QpState::kRtr &&
          unknown_peers != 0) {
        --unknown_peers;
        response.error = EAGAIN;
      }
      EXPECT_TRUE(channel_->responses.enqueue_bulk(&response, 1));
    }
  }
  static void unpack(Chunk& chunk, const std::vector<std::byte>& extra) {
    const SendDescriptor& d = chunk.d;
    if ((d.flags & kSendInline) != 0) {
      ASSERT_EQ(d.extra_elements, (d.length_bytes + 63) / 64);
      chunk.inline_bytes.assign(extra.begin(), extra.begin() + d.length_bytes);
      return;
    }
    if (d.op >= SendOp::kRead) {
      ASSERT_EQ(d.extra_elements, 0);
      return;
    }
    ASSERT_EQ(d.extra_elements,
              d.sge_count <= 1 ? 0 : (d.sge_count - 1 + kSgesPerElement - 1) / kSgesPerElement);
    chunk.sges.resize(d.sge_count);
    if (d.sge_count != 0) chunk.sges[0] = d.sge0;
    for (size_t i = 1; i < d.sge_count; ++i)
      std::memcpy(&chunk.sges[i], &extra[(i - 1) * sizeof(Sge)], sizeof(Sge));
  }

  std::unique_ptr<ClientChannel> channel_;
};

}  // namespace hostnic::driver
