// SPDX-License-Identifier: BSD-3-Clause
// Flow control of one end of an RC connection: how many work requests may be posted, and what the
// peer has to be told. Arithmetic alone, without verbs; docs/credit-channel.md explains it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hostnic::credit {

// What a work request of the send queue is; each kind has its own share of the queue.
enum class Share : uint8_t { kData, kImmediate, kRead, kWrite };
inline constexpr size_t kShares = 4;

// The shares of one end's queues. Data and immediates also count the receives that this end posts
// for the peer's messages of the same kind.
struct Depths {
  uint16_t data = 0, immediate = 0, read = 0, write = 0;

  uint32_t max_send_wr() const { return uint32_t{data} + immediate + read + write; }
  uint32_t max_recv_wr() const { return uint32_t{data} + immediate; }
  uint32_t cq_entries() const { return max_send_wr() + max_recv_wr(); }
  // With fewer immediates acknowledging might never end, or both ends wait for each other.
  bool valid() const { return data >= 1 && immediate >= 3; }
};

// The 32 bits of a SEND_WITH_IMM: what has been received since the last one.
struct Acknowledgement {
  uint16_t data = 0, acks = 0;

  uint32_t to_immediate() const { return uint32_t{data} << 16 | acks; }
  static Acknowledgement from_immediate(uint32_t bits) {
    return {static_cast<uint16_t>(bits >> 16), static_cast<uint16_t>(bits)};
  }
  friend bool operator==(const Acknowledgement&, const Acknowledgement&) = default;
};

// The caller asks before it posts (take, take_acknowledgement), and reports each completion after
// it has been polled and, for a receive, after the receive is posted anew. Not thread-safe: who
// shares a ledger holds one lock from asking until the request is posted.
//
// No RNR NAK. Each message in flight holds a credit of its kind, the peer began with as many
// receives as credits, and returns a credit only for a receive that is posted again.
//
// No CQ overflow. A local share is returned when its completion has been polled, so the CQ never
// holds more than max_send_wr() + max_recv_wr() completions.
//
// Acknowledging ends. Let P be the acknowledgements of both ends that no acknowledgement has
// counted yet. One that is sent because of data adds 1 to P; one that is sent because of
// acknowledgements counts two or more and is one: it lowers P. P is not negative, so there are
// never more of the second sort than of the first, and of those a message causes one at most.
//
// No deadlock. Where nothing is in flight and A is out of immediate credit, B has not counted any
// of the E acknowledgements that hold A's credit; E is all that B has receives for, so half are
// there, and B answers as soon as it has immediate credit itself. Suppose that it has none: A has
// not counted C of B's. Let A's last acknowledgement have gone out before B's last one. Those E
// were all sent before B received any of them. None of them counts acknowledgements, which would
// have held B's credit beside the C, more than there is. So each of them counts half or more of B's
// data credit, of data that B sent before it heard of any of the E: all of that is one credit, E is
// at most two, and valid() says three.
class CreditLedger {
 public:
  CreditLedger(const Depths& own, const Depths& peer);

  // True: a SEND of data, a READ or a WRITE may be posted, and now counts as posted.
  bool take(Share share);
  // The acknowledgement that has to be posted now, if any; it then counts as posted.
  std::optional<Acknowledgement> take_acknowledgement();
  // The completion of a posted request was polled.
  void completed(Share share);
  // A receive finished and was posted again. False: the peer sent what it had no credit for, or
  // counts what it never got.
  [[nodiscard]] bool received_data();
  [[nodiscard]] bool received_acknowledgement(Acknowledgement ack);

  // Half of the capacity, rounded up: so many received messages make an acknowledgement due.
  static uint16_t half(uint16_t capacity) { return static_cast<uint16_t>((capacity + 1) / 2); }

  // Requests whose completion has not been polled.
  uint32_t posted(Share share) const { return capacity(share) - local_[index(share)]; }
  uint32_t posted() const;
  uint16_t remote(Share share) const { return share == Share::kData ? remote_data_ : remote_acks_; }
  // Received and not yet told to the peer.
  Acknowledgement uncounted() const { return received_; }
  friend bool operator==(const CreditLedger&, const CreditLedger&) = default;

 private:
  static size_t index(Share share) { return static_cast<size_t>(share); }
  uint16_t capacity(Share share) const { return capacity_[index(share)]; }
  bool acknowledgement_due() const;

  std::array<uint16_t, kShares> capacity_, local_;  // of this end's send queue: all, remainder
  uint16_t peer_data_, peer_acks_;                  // receives that the peer began with
  uint16_t remote_data_, remote_acks_;              // those not taken by messages of this end
  Acknowledgement received_;
};

}  // namespace hostnic::credit
