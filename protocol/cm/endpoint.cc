// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/cm/endpoint.h"

#include <algorithm>

#include "protocol/wire/bytes.h"

namespace hostnic::cm {
namespace {

// Returns the NIC's GUID for a REJ because of a timeout: the peer may know no other name of this
// side.
PrivateData<kRejInfoBytes> guid_info(uint64_t guid) {
  PrivateData<kRejInfoBytes> info{};
  wire::store_be64(info.data(), guid);
  return info;
}

// Whether a connection is over, and only repeated messages are left to be answered.
bool is_over(State state) { return state == State::kTimeWait || state == State::kDone; }

}  // namespace

const char* name_of(State state) {
  switch (state) {
    case State::kReqSent:
      return "req-sent";
    case State::kReqReceived:
      return "req-received";
    case State::kRepSent:
      return "rep-sent";
    case State::kRepReceived:
      return "rep-received";
    case State::kEstablished:
      return "established";
    case State::kDreqSent:
      return "dreq-sent";
    case State::kDreqReceived:
      return "dreq-received";
    case State::kSidrSent:
      return "sidr-req-sent";
    case State::kSidrReceived:
      return "sidr-req-received";
    case State::kTimeWait:
      return "time-wait";
    case State::kDone:
      return "ended";
  }
  return "?";
}

// ---- connections

Endpoint::Connection* Endpoint::find(ConnectionId id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : &found->second;
}

// Finds a connection of this peer: others have no say in it.
Endpoint::Connection* Endpoint::find_of(const Ends& ends, ConnectionId id) {
  Connection* connection = find(id);
  return connection != nullptr && connection->ends == ends ? connection : nullptr;
}

State Endpoint::state_of(ConnectionId id) const {
  const auto found = connections_.find(id);
  return found == connections_.end() ? State::kDone : found->second.state;
}

std::pair<ConnectionId, Endpoint::Connection*> Endpoint::add(const Ends& ends, State state) {
  if (connections_.size() >= max_connections_) return {0, nullptr};
  while (next_id_ == 0 || connections_.contains(next_id_)) ++next_id_;
  const ConnectionId id = next_id_++;
  Connection& connection = connections_[id];
  connection.state = state;
  connection.ends = ends;
  connection.transaction_id = id;
  return {id, &connection};
}

void Endpoint::erase(ConnectionId id) {
  Connection* connection = find(id);
  if (connection == nullptr) return;
  set_deadline(id, *connection, UINT64_MAX);
  for (auto* table : {&requests_, &sidr_requests_}) {
    const auto found = table->find({connection->ends, connection->remote_id});
    if (found != table->end() && found->second == id) table->erase(found);
  }
  connections_.erase(id);
  gone_.push_back(id);
}

void Endpoint::set_deadline(ConnectionId id, Connection& connection, TimeNs deadline_ns) {
  if (connection.deadline_ns != UINT64_MAX) deadlines_.erase({connection.deadline_ns, id});
  connection.deadline_ns = deadline_ns;
  if (deadline_ns != UINT64_MAX) deadlines_.insert({deadline_ns, id});
}

void Endpoint::send(Connection& connection, const Message& message) {
  connection.last = message;
  outgoing_.push_back({connection.ends, {connection.transaction_id, connection.last}});
}

void Endpoint::send_and_repeat(ConnectionId id, Connection& connection, const Message& message,
                               TimeNs interval_ns, TimeNs abandon_ns, TimeNs now) {
  send(connection, message);
  connection.interval_ns = std::min(kFirstResendNs, interval_ns);
  connection.longest_interval_ns = interval_ns;
  connection.abandon_ns = now + abandon_ns;
  set_deadline(id, connection, now + connection.interval_ns);
}

void Endpoint::send_unconnected(const Ends& ends, uint64_t transaction_id, const Message& message) {
  outgoing_.push_back({ends, {transaction_id, message}});
}

void Endpoint::notify(ConnectionId id, const Connection& connection, Event::Kind kind,
                      const Message& message) {
  if (!connection.abandoned) events_.push_back({kind, id, connection.ends, message});
}

void Endpoint::enter_time_wait(ConnectionId id, Connection& connection, TimeNs now) {
  connection.state = State::kTimeWait;
  set_deadline(id, connection, now + kTimeWaitNs);
}

Concerned Endpoint::concerned(const Connection& connection) const {
  switch (connection.state) {
    case State::kReqSent:
    case State::kReqReceived:
      return Concerned::kReq;
    case State::kRepSent:
    case State::kRepReceived:
      return Concerned::kRep;
    default:
      return Concerned::kOther;
  }
}

void Endpoint::refuse_and_wait(ConnectionId id, Connection& connection, Rej rej, TimeNs now) {
  rej.local_id = id;
  rej.remote_id = connection.remote_id;
  rej.concerned = concerned(connection);
  send(connection, rej);
  enter_time_wait(id, connection, now);
}

// ---- the host

ConnectionId Endpoint::connect(const Ends& ends, Req req, TimeNs now) {
  const auto [id, connection] = add(ends, State::kReqSent);
  if (connection == nullptr) return 0;
  connection->active = true;
  req.local_id = id;
  send_and_repeat(id, *connection, req, kAnswerIntervalNs, kGiveUpNs, now);
  return id;
}

bool Endpoint::accept(ConnectionId id, Rep rep, TimeNs now) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->state != State::kReqReceived) return false;
  connection->state = State::kRepSent;
  rep.local_id = id;
  rep.remote_id = connection->remote_id;
  send_and_repeat(id, *connection, rep, kAnswerIntervalNs, kGiveUpNs, now);
  return true;
}

bool Endpoint::ready(ConnectionId id, Rtu rtu) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->state != State::kRepReceived) return false;
  connection->state = State::kEstablished;
  connection->was_established = true;
  rtu.local_id = id;
  rtu.remote_id = connection->remote_id;
  send(*connection, rtu);
  return true;
}

bool Endpoint::reject(ConnectionId id, Rej rej, TimeNs now) {
  Connection* connection = find(id);
  if (connection == nullptr) return false;
  if (connection->state != State::kReqReceived && connection->state != State::kRepReceived)
    return false;
  refuse_and_wait(id, *connection, rej, now);
  return true;
}

bool Endpoint::disconnect(ConnectionId id, TimeNs now) {
  Connection* connection = find(id);
  if (connection == nullptr) return false;
  if (connection->state == State::kEstablished || connection->state == State::kRepSent) {
    connection->state = State::kDreqSent;
    send_and_repeat(id, *connection,
                    Dreq{.local_id = id,
                         .remote_id = connection->remote_id,
                         .remote_qpn = connection->remote_qpn},
                    time_ns(kAckTimeout), kDisconnectGiveUpNs, now);
    return true;
  }
  if (connection->state != State::kDreqReceived) return false;
  send(*connection, Drep{.local_id = id, .remote_id = connection->remote_id});
  enter_time_wait(id, *connection, now);
  return true;
}

bool Endpoint::established(ConnectionId id) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->state != State::kRepSent) return false;
  connection->state = State::kEstablished;
  connection->was_established = true;
  set_deadline(id, *connection, UINT64_MAX);
  notify(id, *connection, Event::kEstablished);
  return true;
}

ConnectionId Endpoint::resolve(const Ends& ends, SidrReq req, TimeNs now) {
  const auto [id, connection] = add(ends, State::kSidrSent);
  if (connection == nullptr) return 0;
  connection->active = true;
  req.request_id = id;
  send_and_repeat(id, *connection, req, kAnswerIntervalNs, kGiveUpNs, now);
  return id;
}

bool Endpoint::answer(ConnectionId id, SidrRep rep, TimeNs now) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->state != State::kSidrReceived) return false;
  rep.request_id = connection->remote_id;
  send(*connection, rep);
  enter_time_wait(id, *connection, now);
  return true;
}

void Endpoint::destroy(ConnectionId id, TimeNs now) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->abandoned) return;
  connection->abandoned = true;
  std::erase_if(events_, [id](const Event& event) { return event.connection == id; });
  switch (connection->state) {
    case State::kReqSent:
      refuse_and_wait(id, *connection,
                      Rej{.info_bytes = 8,
                          .reason = static_cast<uint16_t>(RejectReason::kTimeout),
                          .info = guid_info(guid_)},
                      now);
      break;
    case State::kReqReceived:
    case State::kRepSent:
    case State::kRepReceived:
      refuse_and_wait(id, *connection,
                      Rej{.reason = static_cast<uint16_t>(RejectReason::kConsumerDefined)}, now);
      break;
    case State::kEstablished:
    case State::kDreqReceived:
      disconnect(id, now);
      break;
    case State::kSidrReceived:
      answer(id, SidrRep{.status = static_cast<uint8_t>(SidrStatus::kReject)}, now);
      break;
    case State::kDreqSent:
    case State::kTimeWait:
      break;
    case State::kSidrSent:
    case State::kDone:
      erase(id);
      break;
  }
}

// ---- the network

void Endpoint::receive(const Ends& ends, const Mad& mad, TimeNs now) {
  std::visit([&](const auto& message) { take(ends, mad.transaction_id, message, now); },
             mad.message);
}

void Endpoint::take(const Ends& ends, uint64_t transaction_id, const Req& req, TimeNs) {
  if (const auto known = requests_.find({ends, req.local_id}); known != requests_.end()) {
    Connection& connection = connections_.at(known->second);
    if (connection.transaction_id == transaction_id && connection.remote_qpn == req.qpn) {
      if (connection.state == State::kReqReceived) {
        send_unconnected(ends, transaction_id,
                         Mra{.local_id = known->second,
                             .remote_id = req.local_id,
                             .concerned = Concerned::kReq,
                             .service_timeout = kServiceTimeout});
      } else if (connection.state == State::kRepSent ||
                 (is_over(connection.state) && std::holds_alternative<Rej>(connection.last))) {
        send(connection, connection.last);
      }
      return;
    }
    requests_.erase(known);  // the peer has begun anew
  }
  const auto [id, connection] = add(ends, State::kReqReceived);
  if (connection == nullptr) return;  // the peer will ask again
  connection->remote_id = req.local_id;
  connection->remote_qpn = req.qpn;
  connection->transaction_id = transaction_id;
  requests_[{ends, req.local_id}] = id;
  notify(id, *connection, Event::kRequest, req);
}

void Endpoint::take(const Ends& ends, uint64_t transaction_id, const Rep& rep, TimeNs) {
  Connection* connection = find_of(ends, rep.remote_id);
  if (connection == nullptr) {
    send_unconnected(ends, transaction_id,
                     Rej{.remote_id = rep.local_id,
                         .concerned = Concerned::kRep,
                         .reason = static_cast<uint16_t>(RejectReason::kInvalidCommunicationId)});
    return;
  }
  if (!connection->active) return;
  switch (connection->state) {
    case State::kReqSent:
      connection->state = State::kRepReceived;
      connection->remote_id = rep.local_id;
      connection->remote_qpn = rep.qpn;
      set_deadline(rep.remote_id, *connection, UINT64_MAX);
      notify(rep.remote_id, *connection, Event::kReply, rep);
      break;
    case State::kRepReceived:
      send_unconnected(ends, connection->transaction_id,
                       Mra{.local_id = rep.remote_id,
                           .remote_id = rep.local_id,
                           .concerned = Concerned::kRep,
                           .service_timeout = kServiceTimeout});
      break;
    case State::kEstablished:  // the RTU was lost
      send(*connection, connection->last);
      break;
    case State::kTimeWait:  // the REJ was lost, and may not have known the peer's id
    case State::kDone:
      if (auto* rej = std::get_if<Rej>(&connection->last)) {
        rej->remote_id = rep.local_id;
        send(*connection, Message(*rej));
      }
      break;
    default:
      break;
  }
}

void Endpoint::take(const Ends& ends, uint64_t, const Rtu& rtu, TimeNs) {
  Connection* connection = find_of(ends, rtu.remote_id);
  if (connection != nullptr && connection->remote_id == rtu.local_id) established(rtu.remote_id);
}

void Endpoint::take(const Ends& ends, uint64_t, const Rej& rej, TimeNs now) {
  ConnectionId id = rej.remote_id;
  if (id == 0 && rej.reason == static_cast<uint16_t>(RejectReason::kTimeout)) {
    // The peer has given up waiting, and never learnt this side's id.
    const auto known = requests_.find({ends, rej.local_id});
    if (known != requests_.end()) id = known->second;
  }
  Connection* connection = find_of(ends, id);
  if (connection == nullptr) return;
  switch (connection->state) {
    case State::kReqSent:
    case State::kReqReceived:
    case State::kRepSent:
    case State::kRepReceived:
      notify(id, *connection, Event::kRejected, rej);
      connection->last = Rtu{};  // nothing to repeat
      enter_time_wait(id, *connection, now);
      break;
    case State::kEstablished:
    case State::kDreqSent:  // there is nobody to disconnect from
      notify(id, *connection, Event::kDisconnected);
      enter_time_wait(id, *connection, now);
      break;
    default:
      break;
  }
}

// Waits longer, because the peer's program takes its time. What the peer asks to be repeated is
// repeated all the same, rarely: its answer may get lost.
void Endpoint::take(const Ends& ends, uint64_t, const Mra& mra, TimeNs now) {
  Connection* connection = find_of(ends, mra.remote_id);
  if (connection == nullptr || mra.concerned != concerned(*connection)) return;
  if (connection->state != State::kReqSent && connection->state != State::kRepSent) return;
  connection->interval_ns = connection->longest_interval_ns;
  connection->abandon_ns = std::max(
      connection->abandon_ns, now + time_ns(mra.service_timeout) + connection->longest_interval_ns);
  set_deadline(mra.remote_id, *connection, now + connection->interval_ns);
}

void Endpoint::take(const Ends& ends, uint64_t transaction_id, const Dreq& dreq, TimeNs now) {
  const ConnectionId id = dreq.remote_id;
  Connection* connection = find_of(ends, id);
  if (connection == nullptr || connection->remote_id != dreq.local_id) {
    send_unconnected(ends, transaction_id, Drep{.local_id = id, .remote_id = dreq.local_id});
    return;
  }
  const Drep drep{.local_id = id, .remote_id = connection->remote_id};
  switch (connection->state) {
    case State::kRepSent:
      // The RTU was lost: nobody disconnects before it. A program that waits until its connection
      // is there would take the end for that, and wait for the end for ever.
      established(id);
      [[fallthrough]];
    case State::kRepReceived:
    case State::kEstablished:
      connection->state = State::kDreqReceived;
      set_deadline(id, *connection, UINT64_MAX);
      notify(id, *connection, Event::kDisconnected);
      if (connection->abandoned) disconnect(id, now);
      break;
    case State::kDreqSent:  // both sides disconnect at once
      send(*connection, drep);
      notify(id, *connection, Event::kDisconnected);
      enter_time_wait(id, *connection, now);
      break;
    case State::kTimeWait:
    case State::kDone:
      send_unconnected(ends, transaction_id, drep);
      break;
    default:
      break;
  }
}

void Endpoint::take(const Ends& ends, uint64_t, const Drep& drep, TimeNs now) {
  Connection* connection = find_of(ends, drep.remote_id);
  if (connection == nullptr || connection->state != State::kDreqSent) return;
  notify(drep.remote_id, *connection, Event::kDisconnected);
  enter_time_wait(drep.remote_id, *connection, now);
}

void Endpoint::take(const Ends& ends, uint64_t transaction_id, const SidrReq& req, TimeNs) {
  const Remote remote{ends, req.request_id};
  if (const auto known = sidr_requests_.find(remote); known != sidr_requests_.end()) {
    Connection& connection = connections_.at(known->second);
    if (connection.transaction_id == transaction_id) {
      if (is_over(connection.state)) send(connection, connection.last);
      return;
    }
    sidr_requests_.erase(known);
  }
  const auto [id, connection] = add(ends, State::kSidrReceived);
  if (connection == nullptr) return;
  connection->remote_id = req.request_id;
  connection->transaction_id = transaction_id;
  sidr_requests_[remote] = id;
  notify(id, *connection, Event::kSidrRequest, req);
}

void Endpoint::take(const Ends& ends, uint64_t, const SidrRep& rep, TimeNs) {
  Connection* connection = find_of(ends, rep.request_id);
  if (connection == nullptr || connection->state != State::kSidrSent) return;
  connection->state = State::kDone;
  set_deadline(rep.request_id, *connection, UINT64_MAX);
  notify(rep.request_id, *connection, Event::kSidrReply, rep);
}

// ---- time

TimeNs Endpoint::next_deadline_ns() const {
  return deadlines_.empty() ? UINT64_MAX : deadlines_.begin()->first;
}

void Endpoint::advance(TimeNs now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const ConnectionId id = deadlines_.begin()->second;
    Connection& connection = connections_.at(id);
    if (connection.state == State::kTimeWait) {
      set_deadline(id, connection, UINT64_MAX);
      connection.state = State::kDone;
      if (connection.was_established) notify(id, connection, Event::kTimeWaitExit);
      if (connection.abandoned) erase(id);
    } else if (now >= connection.abandon_ns) {
      abandon(id, connection, now);
    } else {
      send(connection, Message(connection.last));
      connection.interval_ns = std::min(2 * connection.interval_ns, connection.longest_interval_ns);
      set_deadline(id, connection, std::min(now + connection.interval_ns, connection.abandon_ns));
    }
  }
}

void Endpoint::abandon(ConnectionId id, Connection& connection, TimeNs now) {
  switch (connection.state) {
    case State::kReqSent:
    case State::kRepSent:
      notify(id, connection, Event::kUnreachable);
      refuse_and_wait(id, connection,
                      Rej{.info_bytes = 8,
                          .reason = static_cast<uint16_t>(RejectReason::kTimeout),
                          .info = guid_info(guid_)},
                      now);
      break;
    case State::kDreqSent:
      notify(id, connection, Event::kDisconnected);
      enter_time_wait(id, connection, now);
      break;
    default:
      set_deadline(id, connection, UINT64_MAX);
      connection.state = State::kDone;
      notify(id, connection, Event::kUnreachable);
      if (connection.abandoned) erase(id);
      break;
  }
}

}  // namespace hostnic::cm
