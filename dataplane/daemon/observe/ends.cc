// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/ends.h"

#include <errno.h>
#include <fmt/format.h>

#include <algorithm>

#include "dataplane/daemon/observe/explain.h"
#include "dataplane/daemon/observe/told.h"
#include "dataplane/daemon/observe/view_text.h"
#include "protocol/hostif/send_op_text.h"

namespace hostnic {
namespace {

const char* spoken_name(Transport transport) {
  if (transport == Transport::kMrc) return "MRC";
  return transport == Transport::kRoce ? "RoCE" : "the native transport";
}

bool is_program_stopped(const End& end) {
  return end.told ? end.told->qp.is_stopped : is_stopped(end.qp->pid);
}

// What is wrong with the key of a request, at that end.
KeyView key_at(const End& end, const Asked& asked, uint32_t right) {
  if (end.told) return told_key(end.told->refusal, asked.key, asked.va, asked.length_bytes);
  KeyView key;
  end.instance->lcore->run_on([&] {
    key = end.instance->nic->views().key(end.qp->scope(), asked.key, asked.va, asked.length_bytes,
                                         right, /*is_remote=*/true);
  });
  return key;
}

// Whether the receive that was next there names bad memory, and what of it; empty: it does not.
std::string bad_receive_at(const End& end) {
  if (!end.told) return to_text(end.qp->refused_receive_fault, end.nic, false);
  return end.told->refusal.bad_receive ? "that host says which" : "";
}

// A queue pair that is no more, as its end knows of it.
struct Gone {
  std::string program, ago;
  uint32_t pid = 0;
  bool with_its_program = false;
};

// The queue pair of that number is not there: what was there, and who names the asker.
void look_for(const End& own, const End& peer, std::optional<Gone>& gone, uint32_t& other_qpn) {
  if (peer.told) {
    const cm::ToldQp& told = peer.told->qp;
    other_qpn = told.other_qpn;
    if (peer.told->standing == cm::Standing::kGone)
      gone = Gone{told.program, fmt::format("{:.1f} s ago", told.gone_ms / 1e3), told.pid,
                  told.with_its_program};
    return;
  }
  std::optional<DeadQpView> dead;
  peer.instance->lcore->run_on([&] {
    dead = peer.instance->nic->views().dead_qp(own.qp->dest_qpn);
    if (const auto other =
            peer.instance->nic->views().qp_with_peer(Ipv4Address{own.qp->source_ip}, own.qp->qpn))
      other_qpn = other->qpn;
  });
  if (dead)
    gone = Gone{dead->last.program, seconds_since(peer, dead->at_ns), dead->last.pid,
                dead->with_its_program};
}

// What a NIC of this hostnicd knows of packets that did not get through to it.
std::string what_takes_packets(const End& end) {
  if (end.instance == nullptr) return {};
  constexpr bool kReceiving = true;
  uint64_t dropped = 0;
  end.instance->lcore->run_on([&] {
    if (const auto impaired = end.instance->nic->impairment_counters(kReceiving))
      dropped = impaired->dropped + impaired->rate_dropped + impaired->queue_dropped;
  });
  std::string text;
  if (dropped != 0)
    text =
        fmt::format("; on purpose, {} of those to {} were dropped (show impair)", dropped, end.nic);
  if (const uint64_t bad = end.instance->nic->counters().get(Counter::rx_icrc_error); bad != 0)
    text += fmt::format("; {} came to {} with a wrong ICRC: the wire corrupts them", bad, end.nic);
  return text;
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  return bytes == 1 ? "1 byte" : fmt::format("{} bytes", bytes);
}

const char* type_name(QpType type) {
  return type == QpType::kRc ? "RC" : type == QpType::kUc ? "UC" : "UD";
}

std::string program_text(const End& end) {
  const QpView& qp = *end.qp;
  // Another host says nothing of programs that are not the peer's.
  if (end.told && qp.pid == 0) return "its program there";
  return fmt::format(
      "{} (pid {}{})", qp.program, qp.pid,
      is_program_stopped(end) ? ", which is stopped: SIGCONT, or its debugger, lets it go on" : "");
}

std::string name_of(const End& end) { return fmt::format("QP {:#x} of {}", end.qp->qpn, end.nic); }

std::string seconds_since(const End& end, TimeNs at_ns) {
  TimeNs now_ns = 0;
  end.instance->lcore->run_on([&] { now_ns = end.instance->nic->now_ns(); });
  return fmt::format("{:.1f} s ago", static_cast<double>(now_ns - std::min(now_ns, at_ns)) / 1e9);
}

End peer_here(Daemon& daemon, const QpView& own) {
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

PeerAway peer_away(Daemon& daemon, NicInstance& instance, const QpView& own, uint32_t client_id) {
  PeerAway peer;
  if (daemon.inquiries() == nullptr) return peer;
  peer.inquiry = daemon.inquiries()->ask(instance, {.nic = &instance,
                                                    .client_id = client_id,
                                                    .own = Ipv4Address{own.source_ip},
                                                    .peer = Ipv4Address{own.dest_ip},
                                                    .own_qpn = own.qpn,
                                                    .peer_qpn = own.dest_qpn});
  if (peer.inquiry.state != InquiryResult::State::kAnswered) return peer;
  peer.end.told = peer.inquiry.answer;
  peer.end.nic = peer.inquiry.answer.nic;
  peer.end.qp = told_qp(peer.inquiry.answer, own);
  return peer;
}

std::string host_name(const NicInstance& instance, Ipv4Address peer) {
  return host_text(address_of(instance.plan.settings.address_book, peer));
}

std::string why_untold(const NicInstance& instance, Ipv4Address peer,
                       const InquiryResult& inquiry) {
  using State = InquiryResult::State;
  const std::string host = host_name(instance, peer);
  if (inquiry.state == State::kAsking) return fmt::format("host {} is being asked", host);
  if (inquiry.state == State::kUnknown)
    return fmt::format(
        "host {} answers, but is no hostnic that says why: an adapter, rdma_rxe or "
        "an older hostnic; ask there",
        host);
  if (inquiry.state == State::kNoRoom)
    return fmt::format(
        "no NIC of this hostnicd has the address {}, and too much is being asked "
        "already",
        host);
  switch (inquiry.roce_error) {
    case ECONNREFUSED:
      return fmt::format(
          "nobody listens on UDP port 4791 of {} (ICMP says so): its hostnicd has "
          "ended, or never began",
          host);
    case ENETUNREACH:
      return fmt::format("no route leads to {}: is the GID right?", host);
    case EPERM:
    case EACCES:
      return fmt::format("a firewall of this host forbids packets to {}", host);
    default:
      break;
  }
  if (inquiry.discard_error == ECONNREFUSED || inquiry.discard_error == EISCONN)
    return fmt::format(
        "host {} is up, and nothing comes back from its UDP port 4791: a firewall "
        "there or on the way, or its hostnicd is stopped or gone",
        host);
  if (inquiry.roce_error == EHOSTUNREACH || inquiry.discard_error == EHOSTUNREACH)
    return fmt::format(
        "no host answers at {} (no ARP, or ICMP says so): is the GID right, the "
        "host up?",
        host);
  bool has_arp = true;
  instance.lcore->run_on([&] { has_arp = instance.nic->knows_host(peer); });
  if (!has_arp)
    return fmt::format("no host answers at {} (no ARP): is the GID right, the host up?", host);
  return fmt::format(
      "host {} does not answer: is the GID right, the host up, and UDP port 4791 "
      "open?",
      host);
}

Asked asked_of(const RefusedRequest& refused) {
  return {op_of(refused.opcode), refused.key, refused.va, refused.length_bytes};
}

std::string or_gone(std::string why, const QpView& qp) {
  const bool is_memory = qp.refused_code == wire::NakCode::kRemoteAccess ||
                         qp.refused_code == wire::NakCode::kRemoteOperational;
  if (!why.empty()) return why;
  return is_memory ? "its memory can't be reached any more: it was unmapped, protected or cut off "
                     "after it was registered"
                   : "the reason is not known any more";
}

std::string why_refused(const End& end, const Asked& asked, uint64_t message_bytes,
                        uint32_t requester_mtu_bytes) {
  const QpView& qp = *end.qp;
  const bool is_invalid = qp.refused_its_peer && qp.refused_code == wire::NakCode::kInvalidRequest;
  if (is_invalid && requester_mtu_bytes != 0 && requester_mtu_bytes != qp.mtu_bytes)
    return fmt::format("path MTU {} at the requester, {} at {}: both ends must agree",
                       requester_mtu_bytes, qp.mtu_bytes, name_of(end));
  // Only a message's last packet may be short.
  if (is_invalid && (qp.refused.packet_bytes > qp.mtu_bytes ||
                     (!qp.refused.is_last && qp.refused.packet_bytes < qp.mtu_bytes)))
    return fmt::format(
        "a packet of {} bytes arrived at {}, whose path MTU is {}: do both ends agree?",
        qp.refused.packet_bytes, name_of(end), qp.mtu_bytes);
  if (is_send_op(asked.op)) {
    const uint64_t length = std::max(message_bytes, asked.length_bytes);
    if (is_invalid && length > qp.refused_receive_bytes)
      return fmt::format("the message has {}, and the receive posted at {} has room for {}",
                         bytes_text(length), name_of(end), qp.refused_receive_bytes);
    if (const std::string memory = bad_receive_at(end); !memory.empty())
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
  const KeyView key = key_at(end, asked, right);
  if (key.fault == KeyFault::kQpRight)
    return fmt::format("{} lacks {} (its qp_access_flags are {:#x})", name_of(end),
                       access_names(right), qp.access);
  if (key.fault == KeyFault::kNone && is_invalid && right != kAccessRemoteWrite)
    return fmt::format("more READs and atomics at a time than {} serves (max_dest_rd_atomic {})",
                       name_of(end), qp.responder_resources);
  return to_text(key, end.nic, /*is_remote=*/true);
}

std::string why_silent(const End& own, const End& peer) {
  const QpView& mine = *own.qp;
  if (!peer.qp) {
    std::optional<Gone> gone;
    uint32_t other_qpn = 0;
    look_for(own, peer, gone, other_qpn);
    if (gone)
      return fmt::format(
          "QP {:#x} of {} is gone: {} (pid {}) {} {}", mine.dest_qpn, peer.nic, gone->program,
          gone->pid, gone->with_its_program ? "ended, or was killed," : "destroyed it", gone->ago);
    std::string text = fmt::format("there is no QP {:#x} on {}{}", mine.dest_qpn, peer.nic,
                                   peer.told ? ", or it has another peer" : "");
    if (other_qpn != 0) text += fmt::format("; QP {:#x} there names yours as its peer", other_qpn);
    return text;
  }
  const QpView& theirs = *peer.qp;
  const std::string name = name_of(peer);
  if (theirs.state < QpState::kRtr)
    return fmt::format("{} is in {}: its program, {}, has not brought it to RTR", name,
                       state_name(theirs.state), program_text(peer));
  if (theirs.type != mine.type)
    return fmt::format("{} is of type {}, and this one of type {}", name, type_name(theirs.type),
                       type_name(mine.type));
  if (theirs.state == QpState::kErr && !theirs.refused_its_peer)
    return fmt::format("{} is in ERR: its program, {}, or an error of its own requests ended it",
                       name, program_text(peer));
  if (peer.told && !peer.told->qp.names_asker_host)
    return fmt::format("{} has a peer at another address", name);
  if (theirs.dest_qpn != mine.qpn)
    return fmt::format("{} names QP {:#x} as its peer, and not this one ({:#x})", name,
                       theirs.dest_qpn, mine.qpn);
  if (theirs.dest_ip != mine.source_ip)
    return fmt::format("{} has a peer at another address", name);
  if (theirs.transport != mine.transport)
    return fmt::format("{} speaks {}, and this one {}", name, spoken_name(theirs.transport),
                       spoken_name(mine.transport));
  const bool has_psns = !peer.told || peer.told->qp.has_psns;
  if (has_psns && theirs.rq_psn != mine.sq_psn)
    return fmt::format(
        "requests begin at PSN {} here (sq_psn), and {} expects them from {} on "
        "(rq_psn): both must agree",
        mine.sq_psn, name, theirs.rq_psn);
  const std::string found = what_takes_packets(own) + what_takes_packets(peer);
  return fmt::format("{} is in {}{}: what was sent to it, or its answers, did not come in time{}",
                     name, state_name(theirs.state),
                     has_psns ? fmt::format(" and expects PSN {}", theirs.expected) : "",
                     found.empty() ? " (hostnic ctl 'show counters')" : found);
}

std::string why_not_ready(const End& peer) {
  const QpView& theirs = *peer.qp;
  if (theirs.shared_receives)
    return fmt::format("the shared receive queue of {} is empty: {} has posted no receive there",
                       name_of(peer), program_text(peer));
  if (theirs.receives_waiting == 0)
    return fmt::format("{} has no receive posted: {}", name_of(peer), program_text(peer));
  return fmt::format("{} has {} receives posted now: they came too late", name_of(peer),
                     theirs.receives_waiting);
}

std::string why_waiting(const End& peer) {
  if (!peer.qp) return {};
  const QpView& theirs = *peer.qp;
  if (is_program_stopped(peer)) return fmt::format("its peer's program, {}", program_text(peer));
  if (theirs.una == theirs.transmitted && theirs.transmitted == theirs.sq_psn)
    return fmt::format("{}, its peer, has sent nothing yet", name_of(peer));
  const uint32_t sent = (theirs.transmitted - theirs.sq_psn) & Psn::kMask;
  return fmt::format("{}, its peer, has sent {} packet{} and nothing is on its way", name_of(peer),
                     sent, sent == 1 ? "" : "s");
}

}  // namespace hostnic
