// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "dataplane/daemon/observe/view_text.h"
#include "protocol/duration_text.h"
#include "protocol/hostif/send_op_text.h"

namespace hostnic {
namespace {

// A place in hostnicd: a NIC, and what it says of a queue pair.
struct End {
  NicInstance* instance = nullptr;
  std::string nic;
  std::optional<QpView> qp;
};

std::string bytes_text(uint64_t bytes) {
  return bytes == 1 ? "1 byte" : fmt::format("{} bytes", bytes);
}

const char* type_name(QpType type) {
  return type == QpType::kRc ? "RC" : type == QpType::kUc ? "UC" : "UD";
}

bool is_atomic_op(SendOp op) { return op == SendOp::kCompareSwap || op == SendOp::kFetchAdd; }
bool is_send_op(SendOp op) {
  return op == SendOp::kSend || op == SendOp::kSendImm || op == SendOp::kSendInv;
}

uint32_t right_of(SendOp op) {
  if (op == SendOp::kRead) return kAccessRemoteRead;
  return is_atomic_op(op) ? kAccessRemoteAtomic : kAccessRemoteWrite;
}

SendOp op_of(wire::Opcode opcode) {
  using wire::Opcode;
  switch (opcode) {
    case Opcode::kReadRequest:
    case Opcode::kRcReadRequest:
      return SendOp::kRead;
    case Opcode::kCompareSwap:
    case Opcode::kRcCompareSwap:
      return SendOp::kCompareSwap;
    case Opcode::kFetchAdd:
    case Opcode::kRcFetchAdd:
      return SendOp::kFetchAdd;
    case Opcode::kSendInv:
    case Opcode::kRcSendLastInv:
    case Opcode::kRcSendOnlyInv:
      return SendOp::kSendInv;
    case Opcode::kSend:
    case Opcode::kSendImm:
    case Opcode::kRcSendFirst:
    case Opcode::kRcSendMiddle:
    case Opcode::kRcSendLast:
    case Opcode::kRcSendLastImm:
    case Opcode::kRcSendOnly:
    case Opcode::kRcSendOnlyImm:
      return SendOp::kSend;
    default:
      return SendOp::kWrite;
  }
}

// Whether a process is stopped, by a signal or a debugger.
bool is_stopped(uint32_t pid) {
  char path[64], line[256] = {};
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  FILE* const file = fopen(path, "re");
  if (file == nullptr) return false;
  const bool got = fgets(line, sizeof line, file) != nullptr;
  fclose(file);
  const char* const behind_name = got ? strrchr(line, ')') : nullptr;
  return behind_name != nullptr && behind_name[1] == ' ' &&
         (behind_name[2] == 'T' || behind_name[2] == 't');
}

std::string program_text(const QpView& qp) {
  return fmt::format(
      "{} (pid {}{})", qp.program, qp.pid,
      is_stopped(qp.pid) ? ", which is stopped: SIGCONT, or its debugger, lets it go on" : "");
}

std::string name_of(const End& end) { return fmt::format("QP {:#x} of {}", end.qp->qpn, end.nic); }

// Finds the NIC that has the address, and the queue pair there.
End peer_of(Daemon& daemon, const QpView& own) {
  End end;
  for (NicInstance& instance : daemon.nics()) {
    const Ipv4Address ip{own.dest_ip};
    bool is_here = false;
    instance.lcore->run_on([&] {
      const NicSettings& settings = instance.nic->settings();
      is_here = settings.ip == ip || settings.is_own(ip);
      if (is_here) end.qp = instance.nic->views().qp(own.dest_qpn);
    });
    if (!is_here) continue;
    end.instance = &instance;
    end.nic = instance.plan.settings.name;
    return end;
  }
  return end;
}

// What a request asked of the peer.
struct Asked {
  SendOp op;
  uint32_t key = 0;
  uint64_t va = 0, length_bytes = 0;
};

Asked asked_of(const RefusedRequest& refused) {
  return {op_of(refused.opcode), refused.key, refused.va, refused.length_bytes};
}

// What is found of a key or a receive is how they are now. One that is good, and was refused all
// the same, is of memory that could not be reached.
std::string or_gone(std::string why, const QpView& qp) {
  const bool is_memory = qp.refused_code == wire::NakCode::kRemoteAccess ||
                         qp.refused_code == wire::NakCode::kRemoteOperational;
  if (!why.empty()) return why;
  return is_memory ? "its memory can't be reached any more: it was unmapped, protected or cut off "
                     "after it was registered"
                   : "the reason is not known any more";
}

// Why this end refused, or would refuse, what its peer asked. `message_bytes` is what the requester
// says of a SEND's length.
std::string why_refused(const End& end, const Asked& asked, uint64_t message_bytes,
                        uint32_t requester_mtu_bytes) {
  const QpView& qp = *end.qp;
  const bool is_invalid = qp.refused_its_peer && qp.refused_code == wire::NakCode::kInvalidRequest;
  if (is_invalid && requester_mtu_bytes != 0 && requester_mtu_bytes != qp.mtu_bytes)
    return fmt::format("path MTU {} at the requester, {} at {}: both ends must agree",
                       requester_mtu_bytes, qp.mtu_bytes, name_of(end));
  if (is_invalid && qp.refused.packet_bytes > qp.mtu_bytes)
    return fmt::format(
        "a packet of {} bytes arrived at {}, whose path MTU is {}: do both ends agree?",
        qp.refused.packet_bytes, name_of(end), qp.mtu_bytes);
  if (is_send_op(asked.op)) {
    const uint64_t length = std::max(message_bytes, asked.length_bytes);
    if (is_invalid && length > qp.refused_receive_bytes)
      return fmt::format("the message has {}, and the receive posted at {} has room for {}",
                         bytes_text(length), name_of(end), qp.refused_receive_bytes);
    if (const std::string memory = to_text(qp.refused_receive_fault, end.nic, false);
        !memory.empty())
      return fmt::format("the receive posted at {} names bad memory: {}", name_of(end), memory);
    if (asked.op == SendOp::kSendInv)
      return fmt::format(
          "rkey {:#x}, to be invalidated, is of no memory window of type 2 that {} "
          "may invalidate",
          asked.key, name_of(end));
    return {};
  }
  const uint32_t right = right_of(asked.op);
  if (is_atomic_op(asked.op) && asked.va % 8 != 0)
    return fmt::format("address {:#x} of the atomic is no multiple of 8", asked.va);
  KeyView key;
  end.instance->lcore->run_on([&] {
    key = end.instance->nic->views().key(qp.scope(), asked.key, asked.va, asked.length_bytes, right,
                                         /*is_remote=*/true);
  });
  if (key.fault == KeyFault::kQpRight)
    return fmt::format("{} lacks {} (its qp_access_flags are {:#x})", name_of(end),
                       access_names(right), qp.access);
  if (key.fault == KeyFault::kNone && is_invalid && right != kAccessRemoteWrite)
    return fmt::format("more READs and atomics at a time than {} serves (max_dest_rd_atomic {})",
                       name_of(end), qp.responder_resources);
  return to_text(key, end.nic, /*is_remote=*/true);
}

std::string seconds_since(const End& end, TimeNs at_ns) {
  TimeNs now_ns = 0;
  end.instance->lcore->run_on([&] { now_ns = end.instance->nic->now_ns(); });
  return fmt::format("{:.1f} s ago", static_cast<double>(now_ns - std::min(now_ns, at_ns)) / 1e9);
}

// Why a peer that is this hostnicd's does not answer.
std::string why_silent(const End& own, End& peer) {
  const QpView& mine = *own.qp;
  if (!peer.qp) {
    std::optional<DeadQpView> dead;
    std::optional<QpView> other;
    peer.instance->lcore->run_on([&] {
      dead = peer.instance->nic->views().dead_qp(mine.dest_qpn);
      other = peer.instance->nic->views().qp_with_peer(Ipv4Address{mine.source_ip}, mine.qpn);
    });
    if (dead)
      return fmt::format("QP {:#x} of {} is gone: {} (pid {}) {} {}", mine.dest_qpn, peer.nic,
                         dead->last.program, dead->last.pid,
                         dead->with_its_program ? "ended, or was killed," : "destroyed it",
                         seconds_since(peer, dead->at_ns));
    std::string text = fmt::format("there is no QP {:#x} on {}", mine.dest_qpn, peer.nic);
    if (other) text += fmt::format("; QP {:#x} there names yours as its peer", other->qpn);
    return text;
  }
  const QpView& theirs = *peer.qp;
  const std::string name = name_of(peer);
  if (theirs.state < QpState::kRtr)
    return fmt::format("{} is in {}: its program, {}, has not brought it to RTR", name,
                       state_name(theirs.state), program_text(theirs));
  if (theirs.type != mine.type)
    return fmt::format("{} is of type {}, and this one of type {}", name, type_name(theirs.type),
                       type_name(mine.type));
  if (theirs.state == QpState::kErr && !theirs.refused_its_peer)
    return fmt::format("{} is in ERR: its program, {}, or an error of its own requests ended it",
                       name, program_text(theirs));
  if (theirs.dest_qpn != mine.qpn)
    return fmt::format("{} names QP {:#x} as its peer, and not this one ({:#x})", name,
                       theirs.dest_qpn, mine.qpn);
  if (theirs.dest_ip != mine.source_ip)
    return fmt::format("{} has a peer at another address", name);
  if (theirs.transport != mine.transport)
    return fmt::format("{} speaks {}, and this one {}", name,
                       theirs.transport == Transport::kRoce ? "RoCE" : "the native transport",
                       mine.transport == Transport::kRoce ? "RoCE" : "the native transport");
  if (theirs.rq_psn != mine.sq_psn)
    return fmt::format(
        "requests begin at PSN {} here (sq_psn), and {} expects them from {} on "
        "(rq_psn): both must agree",
        mine.sq_psn, name, theirs.rq_psn);
  return fmt::format(
      "{} is in {} and expects PSN {}: what was sent to it, or its answers, was lost "
      "on the way (hostnic ctl 'show counters')",
      name, state_name(theirs.state), theirs.expected);
}

std::string why_not_ready(const End& peer) {
  const QpView& theirs = *peer.qp;
  if (theirs.shared_receives)
    return fmt::format("the shared receive queue of {} is empty: {} has posted no receive there",
                       name_of(peer), program_text(theirs));
  if (theirs.receives_waiting == 0)
    return fmt::format("{} has no receive posted: {}", name_of(peer), program_text(theirs));
  return fmt::format("{} has {} receives posted now: they came too late", name_of(peer),
                     theirs.receives_waiting);
}

// What is wrong with the memory that a client's own request names.
std::string why_no_memory(const End& own, const ExplainRequest& request, uint32_t pd,
                          uint32_t access) {
  AccessScope scope = own.qp->scope();
  scope.pd = pd;
  std::string text;
  own.instance->lcore->run_on([&] {
    for (uint32_t i = 0; i < request.sge_count && text.empty(); ++i) {
      const Sge& sge = request.sges[i];
      if (sge.length_bytes == 0) continue;
      text = to_text(
          own.instance->nic->views().key(scope, sge.lkey, sge.addr, sge.length_bytes, access,
                                         /*is_remote=*/false),
          own.nic, /*is_remote=*/false);
      if (!text.empty() && request.sge_count > 1) text += fmt::format(" (element {})", i);
    }
  });
  return text;
}

std::string why_no_window(const End& own, const ExplainRequest& request) {
  if (request.op == SendOp::kLocalInvalidate)
    return fmt::format("rkey {:#x} is of no bound memory window of type 2 of this queue pair's",
                       request.key);
  constexpr uint32_t kWriting = kAccessRemoteWrite | kAccessRemoteAtomic;
  const uint32_t needs =
      kAccessMwBind | ((request.access & kWriting) != 0 ? uint32_t{kAccessLocalWrite} : 0u);
  KeyView key;
  own.instance->lcore->run_on([&] {
    key = own.instance->nic->views().key(own.qp->scope(), request.key, request.remote_va,
                                         request.length_bytes, needs, /*is_remote=*/false);
  });
  return to_text(key, own.nic, /*is_remote=*/false);
}

std::string why_waiting(const End& peer) {
  if (!peer.qp) return {};
  const QpView& theirs = *peer.qp;
  if (is_stopped(theirs.pid)) return fmt::format("its peer's program, {}", program_text(theirs));
  if (theirs.una == theirs.transmitted && theirs.transmitted == theirs.sq_psn)
    return fmt::format("{}, its peer, has sent nothing yet", name_of(peer));
  return fmt::format("{}, its peer, has sent {} packets and nothing is on its way", name_of(peer),
                     (theirs.transmitted - theirs.sq_psn) & Psn::kMask);
}

// Datagrams name no peer, and those that are dropped are counted by the NIC.
std::string why_no_datagram(const End& own) {
  const uint64_t wrong = own.instance->nic->counters().get(Counter::rx_wrong_qkey);
  if (wrong == 0) return {};
  return fmt::format(
      "{} has dropped {} datagrams with another Q_Key than their queue pair's, and "
      "this one's is {:#x}",
      own.nic, wrong, own.qp->qkey);
}

// Times are measured by turns: a digit behind the point is what they are good for.
std::string time_text(uint64_t ns) { return duration_text(ns, 1); }

}  // namespace

std::string describe_timing(const QpView& qp) {
  std::string text;
  if (qp.srtt_ns != 0)
    text = fmt::format("  round trip: {}, the newest {}\n", time_text(qp.srtt_ns),
                       time_text(qp.rtt_ns != 0 ? qp.rtt_ns : qp.srtt_ns));
  if (qp.rto_ns != 0)
    text += fmt::format("  retransmission timeout: {}{}\n", time_text(qp.rto_ns),
                        qp.srtt_ns == 0 ? "; no round trip was measured" : "");
  if (qp.last_repeat == RepeatCause::kNone) return text + "  sent again: nothing\n";
  text += fmt::format("  sent again: {} packets", qp.retransmitted_packets);
  bool first = true;
  for (size_t i = 0; i < kRepeatCauses; ++i) {
    const auto cause = static_cast<RepeatCause>(i + 1);
    if (qp.repeated[i] == 0) continue;
    text += fmt::format("{}{} for {} ({})", std::exchange(first, false) ? ": " : "; ",
                        qp.repeated[i], name_of(cause), help_of(cause));
  }
  return text + fmt::format("\n  the last: up to PSN {} for {}, {} ago, {}\n", qp.last_repeat_psn,
                            name_of(qp.last_repeat), time_text(qp.last_repeat_ago_ns),
                            qp.last_repeat_acknowledged
                                ? "acknowledged " + time_text(qp.last_repair_ns) + " later"
                                : "not acknowledged yet");
}

std::string describe(Daemon& daemon, NicInstance& instance, const QpView& qp) {
  const std::string& nic = instance.plan.settings.name;
  const End own{&instance, nic, qp};
  const char* const spoken = qp.type != QpType::kRc             ? ""
                             : qp.transport == Transport::kRoce ? ", RoCE"
                                                                : ", native transport";
  std::string text = fmt::format("{} QP {:#x} ({}{}) of {}: {}\n", nic, qp.qpn, type_name(qp.type),
                                 spoken, program_text(qp), state_name(qp.state));
  if (qp.shared_receives) {
    text += "  receives: from a shared queue\n";
  } else {
    text += fmt::format("  receives: {} posted and not taken\n", qp.receives_waiting);
  }
  if (qp.state < QpState::kRtr) return text + "  not connected yet\n";
  if (qp.type == QpType::kUd) return text;
  const auto psns = [](uint32_t from, uint32_t to) { return (to - from) & Psn::kMask; };
  text += fmt::format("  peer: QP {:#x} at {}, path MTU {}\n", qp.dest_qpn,
                      host_text(address_of(&daemon.addresses(), Ipv4Address{qp.dest_ip})),
                      qp.mtu_bytes);
  if (qp.state >= QpState::kRts && qp.type == QpType::kRc)
    text +=
        fmt::format("  requests: {} packets sent (PSN {} to {}), {} of them not acknowledged{}\n",
                    psns(qp.sq_psn, qp.transmitted), qp.sq_psn, qp.transmitted,
                    psns(qp.una, qp.transmitted),
                    qp.una == qp.transmitted ? "" : ", for " + time_text(qp.waiting_ns)) +
        describe_timing(qp);
  text += fmt::format("  of its peer: {} packets taken, PSN {} is next, {} came ahead of that\n",
                      psns(qp.rq_psn, qp.expected), qp.expected, qp.received_ahead);
  if (qp.refused_its_peer)
    text += fmt::format("  has refused a {}\n", describe_refusal(instance, qp));
  End peer = peer_of(daemon, qp);
  if (peer.instance == nullptr) return text + "  its peer is of another hostnicd: ask there, too\n";
  if (peer.qp && peer.qp->refused_its_peer && peer.qp->dest_qpn == qp.qpn)
    return text +
           fmt::format(
               "  its peer has refused a {}: {}\n", text_of(op_of(peer.qp->refused.opcode)),
               or_gone(why_refused(peer, asked_of(peer.qp->refused), 0, qp.mtu_bytes), *peer.qp));
  const bool waits = qp.type == QpType::kRc && qp.una != qp.transmitted;
  // Everything before has arrived, and there is no receive for what comes next.
  const bool is_rnr = waits && peer.qp && peer.qp->state >= QpState::kRtr &&
                      peer.qp->state != QpState::kErr && peer.qp->dest_qpn == qp.qpn &&
                      peer.qp->expected == qp.una && !peer.qp->shared_receives &&
                      peer.qp->receives_waiting == 0;
  if (!peer.qp || peer.qp->state < QpState::kRtr || peer.qp->state == QpState::kErr || waits)
    return text + (is_rnr ? fmt::format("  waits for a receive (RNR), if a SEND is next: {}\n",
                                        why_not_ready(peer))
                          : fmt::format("  {}: {}\n", waits ? "waits for an answer" : "its peer",
                                        why_silent(own, peer)));
  if (!peer.qp->shared_receives && peer.qp->receives_waiting == 0)
    text += fmt::format("  a SEND would wait: {}\n", why_not_ready(peer));
  return text;
}

std::string describe_refusal(NicInstance& instance, const QpView& qp) {
  const End own{&instance, instance.plan.settings.name, qp};
  return fmt::format("{} of its peer: {}", text_of(op_of(qp.refused.opcode)),
                     or_gone(why_refused(own, asked_of(qp.refused), 0, 0), qp));
}

std::string describe_old_refusal(const QpView& qp) {
  const char* const why = qp.refused_code == wire::NakCode::kInvalidRequest ? "invalid request"
                          : qp.refused_code == wire::NakCode::kRemoteAccess ? "remote access error"
                                                                            : "operational error";
  return fmt::format("{} of its peer: {} (it went before it was asked why)",
                     text_of(op_of(qp.refused.opcode)), why);
}

std::string describe(NicInstance& instance, const DeadQpView& dead) {
  const QpView& qp = dead.last;
  const End own{&instance, instance.plan.settings.name, qp};
  std::string text =
      fmt::format("{} QP {:#x} ({}) of {} (pid {}), peer QP {:#x}: {} {}, in {}", own.nic, qp.qpn,
                  type_name(qp.type), qp.program, qp.pid, qp.dest_qpn,
                  dead.with_its_program ? "went with its program" : "destroyed by its program",
                  seconds_since(own, dead.at_ns), state_name(qp.state));
  if (qp.refused_its_peer)
    text += fmt::format("; had refused a {} of its peer", text_of(op_of(qp.refused.opcode)));
  return text + "\n";
}

std::string access_names(uint32_t access) {
  std::string names;
  const auto add = [&](uint32_t flag, const char* name) {
    if ((access & flag) == 0) return;
    if (!names.empty()) names += ", ";
    names += name;
  };
  add(kAccessLocalWrite, "LOCAL_WRITE");
  add(kAccessRemoteWrite, "REMOTE_WRITE");
  add(kAccessRemoteRead, "REMOTE_READ");
  add(kAccessRemoteAtomic, "REMOTE_ATOMIC");
  add(kAccessMwBind, "MW_BIND");
  return names;
}

std::string to_text(const KeyView& view, const std::string& nic, bool is_remote) {
  const char* const kind = view.is_window ? "memory window" : "region";
  const std::string region = fmt::format("{} {:#x}+{}", kind, view.region_va, view.region_bytes);
  const std::string key = fmt::format("{} {:#x}", is_remote ? "rkey" : "lkey", view.key);
  switch (view.fault) {
    case KeyFault::kNone:
    case KeyFault::kQpRight:
      return {};
    case KeyFault::kUnknown:
      return fmt::format("{} is of no {} of {}: wrong, or deregistered", key, kind, nic);
    case KeyFault::kUnbound:
      return fmt::format("{} is of a memory window of {} that is not bound to this queue pair", key,
                         nic);
    case KeyFault::kDomain:
      return fmt::format("{} is of a {} of another protection domain than the queue pair's", key,
                         kind);
    case KeyFault::kRight:
      return fmt::format("{} ({}) lacks {}", region, key,
                         access_names(view.wanted_access & ~view.region_access));
    case KeyFault::kOnDemand:
      return fmt::format("{} ({}) is on demand, where atomics are not supported", region, key);
    case KeyFault::kBounds:
      break;
  }
  const uint64_t offset = view.va - view.region_va;
  if (view.va < view.region_va)
    return fmt::format("{} ({}) begins {} behind the request's begin, {:#x}", region, key,
                       bytes_text(view.region_va - view.va), view.va);
  return fmt::format("{} ({}) ends {} before the request's end, {:#x}+{}", region, key,
                     bytes_text(offset + view.length_bytes - view.region_bytes), view.va,
                     view.length_bytes);
}

std::string explain(Daemon& daemon, NicInstance& instance, uint32_t client_id,
                    const ExplainRequest& request) {
  End own{&instance, instance.plan.settings.name, {}};
  instance.lcore->run_on([&] { own.qp = instance.nic->views().qp(request.qpn); });
  if (!own.qp || own.qp->client_id != client_id) return {};
  const QpView& mine = *own.qp;
  switch (request.question) {
    case Question::kOwnMemory:
      return why_no_memory(own, request, mine.pd,
                           request.op == SendOp::kRead || is_atomic_op(request.op)
                               ? uint32_t{kAccessLocalWrite}
                               : 0u);
    case Question::kOwnWindow:
      return why_no_window(own, request);
    case Question::kOwnReceive:
      if (std::string text = why_no_memory(own, request, mine.recv_pd, kAccessLocalWrite);
          !text.empty())
        return text;
      [[fallthrough]];
    case Question::kRefusesPeer:
      return mine.refused_its_peer
                 ? fmt::format("{} from QP {:#x}: {}", text_of(op_of(mine.refused.opcode)),
                               mine.dest_qpn,
                               or_gone(why_refused(own, asked_of(mine.refused), 0, 0), mine))
                 : "";
    default:
      break;
  }
  if (mine.type == QpType::kUd) return why_no_datagram(own);
  End peer = peer_of(daemon, mine);
  if (peer.instance == nullptr)
    return request.question == Question::kSilent
               ? "no NIC of this hostnicd has that address: is the GID right, the host up, and UDP "
                 "port 4791 open?"
               : "";
  const bool is_connected =
      peer.qp && peer.qp->dest_qpn == mine.qpn && peer.qp->dest_ip == mine.source_ip;
  if (peer.qp && !is_connected && peer.qp->uid != mine.uid)
    return fmt::format("{} has another peer than this one", name_of(peer));
  switch (request.question) {
    case Question::kRefused: {
      if (!peer.qp) return why_silent(own, peer);
      // The request as its program posted it says more than the packet that was refused.
      const Asked posted{request.op, request.key, request.remote_va, request.length_bytes};
      if (const bool is_read = request.op == SendOp::kRead || is_atomic_op(request.op);
          is_read && peer.qp->refused_code == wire::NakCode::kInvalidRequest &&
          request.max_rd_atomic > peer.qp->responder_resources)
        return fmt::format("max_rd_atomic is {} here, and max_dest_rd_atomic {} at {}",
                           request.max_rd_atomic, peer.qp->responder_resources, name_of(peer));
      if (std::string text = why_refused(
              peer, posted, is_send_op(request.op) ? request.length_bytes : 0, mine.mtu_bytes);
          !text.empty() || !peer.qp->refused_its_peer)
        return text;
      return or_gone(why_refused(peer, asked_of(peer.qp->refused), 0, mine.mtu_bytes), *peer.qp);
    }
    case Question::kNotReady:
      return peer.qp ? why_not_ready(peer) : why_silent(own, peer);
    case Question::kWaiting:
      return why_waiting(peer);
    default:
      return why_silent(own, peer);
  }
}

}  // namespace hostnic
