// SPDX-License-Identifier: BSD-3-Clause
// One NIC's end of communication management (InfiniBand 12.9): connections come about, are refused
// and end, over datagrams that may be lost, repeated or overtaken. Calls of the host, messages and
// time come in; messages to send and events come out. Pure: no clock, no system call; one thread.
//
//   active:  connect -> REQ ... REP -> kReply; ready -> RTU
//   passive: kRequest; accept -> REP ... RTU -> kEstablished, or reject -> REJ
//   either:  disconnect -> DREQ, or DREP in answer to the peer's DREQ; kDisconnected
//   datagrams: resolve -> SIDR_REQ ... SIDR_REP -> kSidrReply; kSidrRequest, answer
//
// A message that waits for an answer is repeated: soon at first, in case it was lost, and then ever
// less often, until the peer has had the time that the standard gives it. A question that has been
// answered gets the same answer for a while after the end.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "protocol/cm/mad.h"

namespace hostnic::cm {

// This side's communication id; 0: none.
using ConnectionId = uint32_t;

enum class State : uint8_t {
  kReqSent,
  kReqReceived,
  kRepSent,
  kRepReceived,
  kEstablished,
  kDreqSent,
  kDreqReceived,
  kSidrSent,
  kSidrReceived,
  kTimeWait,  // answers late and repeated messages
  kDone,      // until it is destroyed
};

// The state as people are shown it: "req-sent".
const char* name_of(State state);

// The two ends of a connection, by address.
struct Ends {
  Ipv4Address own{}, peer{};
  auto operator<=>(const Ends&) const = default;
};

struct Event {
  enum Kind : uint8_t {
    kRequest,      // Req: a new connection
    kReply,        // Rep from the peer
    kEstablished,  // passive only
    kRejected,     // Rej from the peer
    kUnreachable,  // no answer
    kDisconnected,
    kTimeWaitExit,
    kSidrRequest,  // SidrReq: a new connection
    kSidrReply,    // SidrRep
  };
  Kind kind{};
  ConnectionId connection = 0;
  Ends ends;
  Message message;  // of the kind above
};

struct Outgoing {
  Ends ends;
  Mad mad;
};

class Endpoint {
 public:
  static constexpr TimeNs kFirstResendNs = 64'000'000;
  // The exponents of the times that peers are told of: for answers of programs, and for packets.
  static constexpr uint32_t kResponseTimeout = 20, kAckTimeout = 19, kServiceTimeout = 24;
  static constexpr uint32_t kMaxRetries = 15;
  static constexpr TimeNs kAnswerIntervalNs = time_ns(kResponseTimeout) + 2 * time_ns(16);
  static constexpr TimeNs kGiveUpNs = (kMaxRetries + 1) * kAnswerIntervalNs;
  static constexpr TimeNs kDisconnectGiveUpNs = (kMaxRetries + 1) * time_ns(kAckTimeout);
  // Time-wait is longer than the longest pause between two repetitions.
  static constexpr TimeNs kTimeWaitNs = 2 * time_ns(kResponseTimeout);

  // Communication ids begin at `first_id`, which should differ from run to run. `guid` is the
  // NIC's.
  Endpoint(uint32_t first_id, uint64_t guid, size_t max_connections)
      : next_id_(first_id), guid_(guid), max_connections_(max_connections) {}

  // -- The host. Ids in messages are filled in here. False: not in this state.
  ConnectionId connect(const Ends& ends, Req req, TimeNs now);  // 0: too many connections
  bool accept(ConnectionId id, Rep rep, TimeNs now);
  bool ready(ConnectionId id, Rtu rtu);
  bool reject(ConnectionId id, Rej rej, TimeNs now);
  bool disconnect(ConnectionId id, TimeNs now);
  // Takes note that the queue pair has received, which is as good as an RTU.
  bool established(ConnectionId id);
  ConnectionId resolve(const Ends& ends, SidrReq req, TimeNs now);  // 0: too many connections
  bool answer(ConnectionId id, SidrRep rep, TimeNs now);
  // Ends a connection, of which there are no events from now on. Tells the peer what it has to
  // know.
  void destroy(ConnectionId id, TimeNs now);

  // -- The network and the clock.
  void receive(const Ends& ends, const Mad& mad, TimeNs now);
  // Repeats, or gives up, the messages that are due.
  void advance(TimeNs now);
  TimeNs next_deadline_ns() const;  // UINT64_MAX: none

  // What has been produced since the last call.
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<Event> take_events() { return std::exchange(events_, {}); }
  // The connections that nothing is left of, not even an answer to a late message.
  std::vector<ConnectionId> take_gone() { return std::exchange(gone_, {}); }

  size_t connections() const { return connections_.size(); }
  // The state of a connection; kDone for an id that does not exist.
  State state_of(ConnectionId id) const;

 private:
  struct Connection {
    State state{};
    Ends ends;
    bool active = false, abandoned = false, was_established = false;
    uint32_t remote_id = 0, remote_qpn = 0;
    uint64_t transaction_id = 0;
    Message last;  // sent last: repeated, and the answer to a peer that asks again
    TimeNs deadline_ns = UINT64_MAX, interval_ns = 0, longest_interval_ns = 0;
    TimeNs abandon_ns = 0;
  };
  using Remote = std::pair<Ends, uint32_t>;  // the ends, and the peer's communication id

  Connection* find(ConnectionId id);
  Connection* find_of(const Ends& ends, ConnectionId id);
  std::pair<ConnectionId, Connection*> add(const Ends& ends, State state);
  void erase(ConnectionId id);
  void set_deadline(ConnectionId id, Connection& connection, TimeNs deadline_ns);
  void send(Connection& connection, const Message& message);
  void send_and_repeat(ConnectionId id, Connection& connection, const Message& message,
                       TimeNs interval_ns, TimeNs abandon_ns, TimeNs now);
  void send_unconnected(const Ends& ends, uint64_t transaction_id, const Message& message);
  void notify(ConnectionId id, const Connection& connection, Event::Kind kind,
              const Message& message = Rtu{});
  void enter_time_wait(ConnectionId id, Connection& connection, TimeNs now);
  void refuse_and_wait(ConnectionId id, Connection& connection, Rej rej, TimeNs now);
  void abandon(ConnectionId id, Connection& connection, TimeNs now);
  Concerned concerned(const Connection& connection) const;

  void take(const Ends& ends, uint64_t transaction_id, const Req& req, TimeNs now);
  void take(const Ends& ends, uint64_t transaction_id, const Rep& rep, TimeNs now);
  void take(const Ends& ends, uint64_t transaction_id, const Rtu& rtu, TimeNs now);
  void take(const Ends& ends, uint64_t transaction_id, const Rej& rej, TimeNs now);
  void take(const Ends& ends, uint64_t transaction_id, const Mra& mra, TimeNs now);
  void take(const Ends& ends, uint64_t transaction_id, const Dreq& dreq, TimeNs now);
  void take(const Ends& ends, uint64_t transaction_id, const Drep& drep, TimeNs now);
  void take(const Ends& ends, uint64_t transaction_id, const SidrReq& req, TimeNs now);
  void take(const Ends& ends, uint64_t transaction_id, const SidrRep& rep, TimeNs now);

  uint32_t next_id_;
  uint64_t guid_;
  size_t max_connections_;
  std::unordered_map<ConnectionId, Connection> connections_;
  // The passive connections and datagram requests, by who asked.
  std::map<Remote, ConnectionId> requests_, sidr_requests_;
  std::set<std::pair<TimeNs, ConnectionId>> deadlines_;
  std::vector<Outgoing> outgoing_;
  std::vector<Event> events_;
  std::vector<ConnectionId> gone_;
};

}  // namespace hostnic::cm
