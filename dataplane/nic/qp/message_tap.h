// SPDX-License-Identifier: BSD-3-Clause
// Traced messages: when those of a NIC's queue pairs left, arrived, were placed and acknowledged,
// and when their driver was told; and what programs say of posting and polling. While nobody traces
// there is no tap, and the NIC looks once per turn for that.
//
// What happens to messages is seen in what it leaves behind in a queue pair: how far its PSNs have
// left, are expected, acknowledged, answered, reported. Therefore it is the same for all
// transports, and most moments are said of all PSNs before one, not of each message: whoever reads
// them knows by the posts where messages begin and end. Only UC and UD, where messages go missing,
// say of each that it was placed (TransportServices::messages).
//
// The NIC's lcore. Allocates when it begins.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/qp_directory.h"
#include "protocol/hostif/message_event.h"
#include "protocol/psn.h"
#include "protocol/wire/packet.h"

namespace hostnic {

enum class MomentKind : uint8_t {
  kPosted,
  kSent,          // all before `until` have left for the first time
  kArrived,       // the last packet of a message, or of a part of a READ, `until` - 1, came
  kPlaced,        // at the responder: all before `until` are in memory, or executed
  kPlacedAlone,   // UC, UD: the message whose last PSN is `until` - 1
  kAcknowledged,  // all before `until`
  kAnswered,      // native transport: all answers before `until` are in memory
  kReported,  // the driver is told of all acknowledged before `until`, answered before `answered`
  kPolled,
};

// Something that happened to messages of one requester, which `nic` and `qpn` name: the address
// that its packets come from, as NICs name hosts, and its queue pair.
struct MessageMoment {
  MomentKind kind;
  uint64_t ticks = 0;  // of the TSC
  uint32_t nic = 0, qpn = 0;
  uint32_t until = 0, answered = 0;  // PSNs
  // kPosted, kPolled: what the program says, and which one it is.
  const MessageEvent* event = nullptr;
  uint32_t client = 0;
  QpType type{};
};

// Takes moments, on the lcore: allocates nothing, waits for nothing.
class MessageSink {
 public:
  virtual void take(const MessageMoment& moment) = 0;

 protected:
  ~MessageSink() = default;
};

class MessageTap {
 public:
  // The session is not 0, and another one than before. The sink outlives the tap.
  MessageTap(MessageSink& sink, uint32_t session) : sink_(sink), session_(session) {}
  MessageTap(const MessageTap&) = delete;
  MessageTap& operator=(const MessageTap&) = delete;

  uint32_t session() const { return session_; }
  static uint64_t ticks();

  // The first call: what has happened before is nobody's business.
  void begin(const QpDirectory& qps);
  // Its PSNs begin anew, or the queue pair does.
  void restart(const QpContext& qp);
  void forget(const QpContext& qp);

  // What a program says of a queue pair of its own.
  void take_event(const QpContext& qp, const MessageEvent& event);
  // Something of the queue pair may have left; this began at `ticks`.
  void note_sent(const QpContext& qp, uint64_t ticks);
  // A packet for the queue pair has been dispatched, which began at `ticks`.
  void note_received(const QpContext& qp, const wire::Packet& p, uint64_t ticks);
  // UC, UD: the message that the packet ends is in memory.
  void note_placed(const QpContext& qp, const wire::Packet& p);
  // Looks at queue pairs that went on by themselves since their packets came.
  void look_again();
  // The driver is about to be told to look at the queue pair's status.
  void note_report(const QpContext& qp);

 private:
  // How far a queue pair's PSNs were when that was last said.
  struct Told {
    Psn sent, placed, acknowledged, answered, reported, reported_answers;
    bool is_pending = false;  // in `pending_`
  };
  Told& told_of(const QpContext& qp) { return told_[qp.qpn & 0xffff]; }
  void look(const QpContext& qp, uint64_t ticks);
  void say(MomentKind kind, const QpContext& qp, uint64_t ticks, Psn until);
  void say_of_peer(MomentKind kind, const QpContext& qp, const wire::Packet* p, uint64_t ticks,
                   Psn until);

  MessageSink& sink_;
  const uint32_t session_;
  std::vector<Told> told_;  // by the QPN's index
  std::vector<const QpContext*> pending_;
};

}  // namespace hostnic
