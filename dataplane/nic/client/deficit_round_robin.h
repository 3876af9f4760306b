// SPDX-License-Identifier: BSD-3-Clause
// Deficit round robin decides who sends how much where a NIC's clients want more than there is
// (Shreedhar and Varghese, 1995). Clients stand in a line. Each turn of the NIC goes along it, and
// a client whose quantum of bytes is used up goes behind the others; one that was stopped before,
// by a full port or by the end of its packets of a turn, keeps its place and what it has left of
// the quantum. So it does not matter how many queue pairs a client has, how long its messages are,
// or at which client a turn found the port full.
//
// A client without work has no quantum to save up. While only one client wants to send nothing is
// counted against it. All clients have equal shares.
//
// The NIC's lcore.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/nic/limits.h"

namespace hostnic {

// A client's part: what it may still make leave, and what it has.
class SendShare {
 public:
  // As long as a chunk where several queue pairs send: quanta do not cut bundles into pieces.
  static constexpr int32_t kQuantumBytes = 64 * 1024;
  // The bytes that a packet counts for beside its payload.
  static constexpr int32_t kHeaderBytes = 80;
  // What work counts for of which nothing leaves: it takes the lcore's time. A quantum is as many
  // pieces of such work as a client may have packets in a turn.
  static constexpr int32_t kRefusedBytes = kQuantumBytes / static_cast<int32_t>(kTxBudget);

  bool spent() const { return left_bytes_ <= 0; }
  int32_t left_bytes() const { return left_bytes_; }
  // How many packets of 2^mtu_shift bytes may leave: what is left, and one that exceeds it. Must
  // not be asked if it is spent().
  uint32_t packets_left(int mtu_shift) const {
    return (static_cast<uint32_t>(left_bytes_) >> mtu_shift) + 1;
  }
  void charge(uint32_t packets, uint32_t payload_bytes) {
    const uint32_t bytes = payload_bytes + packets * static_cast<uint32_t>(kHeaderBytes);
    left_bytes_ -= static_cast<int32_t>(bytes);
    sent_bytes_ += bytes;
  }
  void charge_refused(uint32_t count = 1) {
    left_bytes_ -= static_cast<int32_t>(count) * kRefusedBytes;
  }
  // All that has left, headers included.
  uint64_t sent_bytes() const { return sent_bytes_; }

  // A turn begins: of a client that is the only one who wants to send, or of one among others.
  void begin_turn(bool sole) {
    if (sole)
      left_bytes_ = kUnlimited;
    else if (spent())
      left_bytes_ += kQuantumBytes;
  }
  // A turn ends. A client that waits for nothing keeps nothing, but what it has taken too much is
  // not forgotten.
  void end_turn(bool sole, bool waits) {
    if (sole)
      left_bytes_ = 0;
    else if (!waits)
      left_bytes_ = std::min(left_bytes_, 0);
  }

 private:
  static constexpr int32_t kUnlimited = 1 << 30;  // more than leaves in a turn

  int32_t left_bytes_ = 0;
  uint64_t sent_bytes_ = 0;
};

// What a client did in its turn.
struct ClientTurn {
  uint32_t done = 0;
  bool waits = false;  // it has more to send
};

// The line, which its owner keeps: a vector of pointers to what has a SendShare `share`.
class DeficitRoundRobin {
 public:
  // Gives each client in the line its turn: serve(client), which returns a ClientTurn, sends until
  // its share is spent or something else stops it. Returns how much all have done.
  template <class Client, class Serve>
  uint32_t turn(std::vector<Client*>& line, Serve&& serve) {
    const bool sole = wanting_ <= 1;
    uint32_t done = 0;
    size_t kept = 0;  // clients that keep their places
    wanting_ = 0;
    size_t behind = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      Client* const client = line[i];
      client->share.begin_turn(sole);
      const ClientTurn turn = serve(*client);
      client->share.end_turn(sole, turn.waits);
      done += turn.done;
      if (turn.done != 0 || turn.waits) ++wanting_;
      if (turn.waits && !client->share.spent())
        line[kept++] = client;
      else
        behind_[behind++] = client;
    }
    for (size_t i = 0; i < behind; ++i) line[kept++] = static_cast<Client*>(behind_[i]);
    return done;
  }

 private:
  uint32_t wanting_ = 0;  // clients that had something to send in the last turn
  std::vector<void*> behind_ = std::vector<void*>(kMaxClients);
};

}  // namespace hostnic
