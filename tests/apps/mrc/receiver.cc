// SPDX-License-Identifier: BSD-3-Clause
// The end that is written to: looks at each byte, and at those that nobody may have written.
#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>

#include "tests/apps/mrc/end.h"

namespace hostnic::mrc_app {
namespace {

void expect_imm(End& end, uint32_t imm) {
  const ibv_wc wc = end.next_received();
  require(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
              (wc.wc_flags & IBV_WC_WITH_IMM) != 0 && ntohl(wc.imm_data) == imm,
          "a receive of immediate data");
}

void look_at_messages(End& end) {
  size_t round = 0;
  for (const size_t bytes : kMessageBytes) {
    expect_imm(end, static_cast<uint32_t>(round));
    const auto buffer = end.buffer();
    for (size_t i = 0; i < bytes; ++i) require(buffer[i] == byte_at(round, i), "a byte of a WRITE");
    require(
        std::ranges::all_of(buffer.subspan(bytes), [](std::byte b) { return b == std::byte{}; }),
        "what is behind a WRITE stays");
    std::ranges::fill(buffer, std::byte{});
    end.say();
    ++round;
  }
}

void take_many_imms(End& end) {
  end.post_receives(kManyImms);
  end.say();
  for (uint32_t i = 0; i < kManyImms; ++i) expect_imm(end, i);
}

// The wrong key of the peer is an event here.
void hear_of_access_error(End& end) {
  for (;;) {
    mrc_async_event event{};
    require(mrc_get_async_event(end.context(), &event) == 0, "mrc_get_async_event");
    const bool is_it = event.event_type == IBV_EVENT_QP_ACCESS_ERR;
    if (is_it) require(event.element.qp == end.qp(), "the queue pair of an event");
    mrc_ack_async_event(&event);
    if (is_it) return;
  }
}

}  // namespace

int receive_all(int socket) {
  End end(1, socket);
  end.connect();
  end.post_receives(static_cast<uint32_t>(std::size(kMessageBytes)));
  end.say();
  look_at_messages(end);
  take_many_imms(end);
  hear_of_access_error(end);
  end.say();
  end.hear();  // the refusal may be lost, and is asked for once more
  end.destroy();
  printf("hostnic-mrc: receiver ok: all bytes are right\n");
  return 0;
}

}  // namespace hostnic::mrc_app
