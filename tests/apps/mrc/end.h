// SPDX-License-Identifier: BSD-3-Clause
// One end of a connection by libmrc.so: its objects, and what both ends of hostnic-mrc do alike. A
// call that fails ends the program with a line that names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verbs-shim/mrc/mrc_ctl.h"

namespace hostnic::mrc_app {

// What the two ends do in turn; both know it.
inline constexpr size_t kMessageBytes[] = {0, 1, 7, 4096, 4097, 65536, 1'000'003, 4 << 20};
inline constexpr size_t kBufferBytes = (4 << 20) + 64;  // the last bytes are nobody's
inline constexpr uint32_t kManyImms = 200;              // WRITEs with immediate data in one go
inline constexpr uint16_t kMaxImms = 4;                 // of which so many may be on their way
inline constexpr uint32_t kQueueEntries = 256;

// The byte at a place of a message.
constexpr std::byte byte_at(size_t round, size_t place) {
  return static_cast<std::byte>(place * 31 + (place >> 8) + round * 7 + 1);
}

// What one end tells the other.
struct Address {
  ibv_gid gid;
  uint32_t qpn, psn;
  uint64_t buffer;
  uint32_t rkey;
};

// Ends the program unless `good`.
void require(bool good, const char* what);

class End {
 public:
  // Opens the device at this place of the list and makes all objects; `socket` leads to the peer.
  End(size_t device, int socket);
  // Exchanges addresses and connects.
  void connect();
  // Destroys all, the context once too early.
  void destroy();

  // A byte to or from the other process: what has been done before it is seen there.
  void say() const;
  void hear() const;

  std::span<std::byte> buffer() { return buffer_; }
  mrc_qp* qp() const { return qp_; }
  mrc_context* context() const { return context_; }
  // The next completion; waits for it by polling.
  ibv_wc next_sent();
  // The next receive; waits for it by the channel's event.
  ibv_wc next_received();
  void post_receives(uint32_t count);
  // Posts a WRITE of the buffer's beginning to the peer's; returns what mrc_post_send() does.
  int post(ibv_wr_opcode opcode, size_t bytes, uint32_t imm, bool is_signalled,
           bool wrong_key = false);

 private:
  void query_device() const;
  void to_init();
  void to_rtr();
  void to_rts();

  const int socket_;
  ibv_context* device_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  mrc_context* context_ = nullptr;
  mrc_comp_channel* channel_ = nullptr;
  mrc_cq *send_cq_ = nullptr, *recv_cq_ = nullptr;
  mrc_qp_hint* hint_ = nullptr;
  mrc_qp* qp_ = nullptr;
  std::vector<std::byte> buffer_;
  Address own_{}, peer_{};
};

// What each process does; they return an exit status.
int send_all(int socket);
int receive_all(int socket);

}  // namespace hostnic::mrc_app
