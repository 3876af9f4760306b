// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dataplane/daemon/observe/drops.h"
#include "dataplane/daemon/observe/ends.h"
#include "dataplane/daemon/observe/told.h"
#include "dataplane/daemon/observe/view_text.h"
#include "protocol/duration_text.h"
#include "protocol/hostif/send_op_text.h"

namespace hostnic {
namespace {

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
  if (key.fault != KeyFault::kNone) return to_text(key, own.nic, /*is_remote=*/false);
  return "its region is good, so it is the window: one of type 2 that is bound already, or one of "
         "another protection domain";
}

// Whether the program at the other end of this connection is stopped.
bool is_peer_stopped(const End& own, const End& peer) {
  return peer.qp && peer.qp->dest_qpn == own.qp->qpn && is_stopped(peer.qp->pid);
}

// Why nothing has come for long, as far as the own NIC knows.
std::string why_nothing_comes(const End& own) {
  const QpView& qp = *own.qp;
  if (std::string text = why_dropped(qp, own.nic); !text.empty() || qp.type != QpType::kUd)
    return text;
  StrayDatagrams stray;
  own.instance->lcore->run_on([&] { stray = own.instance->nic->views().stray_datagrams(); });
  const AddressBook* const book = own.instance->plan.settings.address_book;
  return why_stray(stray, own.nic, host_text(address_of(book, stray.last_from)), qp.qpn);
}

// Why nothing comes back, where what this queue pair sends reaches nobody: another NIC here says
// so.
std::string why_nobody_answers(Daemon& daemon, const End& own) {
  for (NicInstance& instance : daemon.nics()) {
    StrayDatagrams stray;
    instance.lcore->run_on([&] { stray = instance.nic->views().stray_datagrams(); });
    if (stray.count == 0) continue;
    bool is_ours = false;
    own.instance->lcore->run_on([&] {
      const NicSettings& settings = own.instance->nic->settings();
      is_ours = settings.ip == stray.last_from || settings.is_own(stray.last_from);
    });
    if (is_ours) return why_lost(stray, instance.plan.settings.name);
  }
  return {};
}

// Whether a connection has carried anything that its program has noticed.
bool was_used(const QpView& qp) { return qp.recv_next_sn != 0 || qp.transmitted != qp.sq_psn; }

// Why nothing more comes on a connection that was used. Only what is certainly wrong is said, since
// programs may well rest: the peer's is stopped, or has ended without a word.
std::string why_nothing_more(const End& own, const End& peer) {
  if (peer.instance == nullptr) return {};
  if (peer.qp) return is_peer_stopped(own, peer) ? why_waiting(peer) : "";
  std::optional<DeadQpView> dead;
  peer.instance->lcore->run_on(
      [&] { dead = peer.instance->nic->views().dead_qp(own.qp->dest_qpn); });
  return dead && dead->with_its_program ? why_silent(own, peer) : "";
}

// Times are measured by turns: a digit behind the point is what they are good for.
std::string time_text(uint64_t ns) { return duration_text(ns, 1); }

// What its peer adds to the description of a queue pair; empty: nothing.
std::string describe_peer(const End& own, const End& peer) {
  const QpView& qp = *own.qp;
  if (peer.qp && peer.qp->refused_its_peer && peer.qp->dest_qpn == qp.qpn)
    return fmt::format(
        "  its peer has refused a {}: {}\n", text_of(op_of(peer.qp->refused.opcode)),
        or_gone(why_refused(peer, asked_of(peer.qp->refused), 0, qp.mtu_bytes), *peer.qp));
  const bool waits = qp.type == QpType::kRc && qp.una != qp.transmitted;
  // Everything before has arrived, and there is no receive for what comes next.
  const bool is_rnr = waits && peer.qp && peer.qp->state >= QpState::kRtr &&
                      peer.qp->state != QpState::kErr && peer.qp->dest_qpn == qp.qpn &&
                      peer.qp->expected == qp.una && !peer.qp->shared_receives &&
                      peer.qp->receives_waiting == 0;
  if (!peer.qp || peer.qp->state < QpState::kRtr || peer.qp->state == QpState::kErr || waits)
    return (is_rnr ? fmt::format("  waits for a receive (RNR), if a SEND is next: {}\n",
                                 why_not_ready(peer))
                   : fmt::format("  {}: {}\n", waits ? "waits for an answer" : "its peer",
                                 why_silent(own, peer)));
  if (!peer.qp->shared_receives && peer.qp->receives_waiting == 0)
    return fmt::format("  a SEND would wait: {}\n", why_not_ready(peer));
  if (!peer.told && is_peer_stopped(own, peer)) return fmt::format("  {}\n", why_waiting(peer));
  return {};
}

}  // namespace

std::string describe_timing(const QpView& qp) {
  std::string text;
  if (qp.srtt_ns != 0)
    text = fmt::format("  round trip: {}, the newest {}\n", time_text(qp.srtt_ns),
                       time_text(qp.rtt_ns != 0 ? qp.rtt_ns : qp.srtt_ns));
  if (qp.rto_ns != 0)
    text += fmt::format("  retransmission timeout: {}{}\n", time_text(qp.rto_ns),
                        qp.srtt_ns == 0 ? "; no round trip was measured" : "");
  for (size_t i = 0; i < qp.paths.size(); ++i) {
    const PathView& path = qp.paths[i];
    text += fmt::format("  path {} of {}: {}, round trip {}, {} packets lost\n", i + 1,
                        qp.paths.size(), path.good ? "good" : "avoided, probed now and then",
                        path.srtt_ns == 0 ? "not measured" : time_text(path.srtt_ns), path.lost);
  }
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

std::string describe(Daemon& daemon, NicInstance& instance, const QpView& qp, bool& more) {
  const std::string& nic = instance.plan.settings.name;
  const End own{&instance, nic, qp, {}};
  const char* const spoken = qp.type != QpType::kRc             ? ""
                             : qp.transport == Transport::kMrc  ? ", MRC"
                             : qp.transport == Transport::kRoce ? ", RoCE"
                                                                : ", native transport";
  std::string text = fmt::format("{} QP {:#x} ({}{}) of {}: {}\n", nic, qp.qpn, type_name(qp.type),
                                 spoken, program_text(own), state_name(qp.state));
  if (qp.shared_receives) {
    text += "  receives: from a shared queue\n";
  } else {
    text += fmt::format("  receives: {} posted and not taken\n", qp.receives_waiting);
  }
  if (const std::string dropped = why_dropped(qp, nic); !dropped.empty())
    text += fmt::format("  {}\n", dropped);
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
  End peer = peer_here(daemon, qp);
  if (peer.instance != nullptr) return text + describe_peer(own, peer);
  const PeerAway away = peer_away(daemon, instance, qp, 0);
  const Ipv4Address host{qp.dest_ip};
  more = away.inquiry.state == InquiryResult::State::kAsking;
  if (!away.end.told)
    return text + fmt::format("  its peer: {}\n", why_untold(instance, host, away.inquiry));
  return text + fmt::format("  host {} says:\n", host_name(instance, host)) +
         describe_peer(own, away.end);
}

std::string describe_refusal(NicInstance& instance, const QpView& qp) {
  const End own{&instance, instance.plan.settings.name, qp, {}};
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
  const End own{&instance, instance.plan.settings.name, qp, {}};
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
      // A wrong number may look like either.
      return fmt::format("{} is of no {} of {}: wrong, or deregistered", key,
                         view.is_window ? "region or memory window" : kind, nic);
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

namespace {

// What two ends that are known have to say to a program's question.
std::string sentence_of(const End& own, const End& peer, const ExplainRequest& request) {
  const QpView& mine = *own.qp;
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
      // The peer has nothing against it: its answers are not what this end takes.
      if (!peer.qp->refused_its_peer && peer.qp->mtu_bytes != mine.mtu_bytes)
        return fmt::format("path MTU {} here, {} at {}: both ends must agree", mine.mtu_bytes,
                           peer.qp->mtu_bytes, name_of(peer));
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

}  // namespace

Explanation explain_peer(Daemon& daemon, NicInstance& instance, const QpView& qp,
                         uint32_t client_id, const ExplainRequest& request) {
  const End own{&instance, instance.plan.settings.name, qp, {}};
  const End here = peer_here(daemon, qp);
  if (here.instance != nullptr) return {sentence_of(own, here, request), {}};
  const PeerAway away = peer_away(daemon, instance, qp, client_id);
  const Ipv4Address host{qp.dest_ip};
  if (away.inquiry.state == InquiryResult::State::kAsking) return {{}, qp};
  if (!away.end.told)
    return {request.question == Question::kSilent ? why_untold(instance, host, away.inquiry) : "",
            {}};
  const std::string text = sentence_of(own, away.end, request);
  return {text.empty() ? text : fmt::format("host {} says: {}", host_name(instance, host), text),
          {}};
}

Explanation explain(Daemon& daemon, NicInstance& instance, uint32_t client_id,
                    const ExplainRequest& request) {
  End own{&instance, instance.plan.settings.name, {}, {}};
  instance.lcore->run_on([&] { own.qp = instance.nic->views().qp(request.qpn); });
  if (!own.qp || own.qp->client_id != client_id) return {};
  const QpView& mine = *own.qp;
  switch (request.question) {
    case Question::kOwnMemory:
      return {why_no_memory(own, request, mine.pd,
                            request.op == SendOp::kRead || is_atomic_op(request.op)
                                ? uint32_t{kAccessLocalWrite}
                                : 0u),
              {}};
    case Question::kOwnWindow:
      return {why_no_window(own, request), {}};
    case Question::kOwnReceive:
      if (std::string text = why_no_memory(own, request, mine.recv_pd, kAccessLocalWrite);
          !text.empty())
        return {std::move(text), {}};
      [[fallthrough]];
    case Question::kRefusesPeer:
      return {mine.refused_its_peer
                  ? fmt::format("{} from QP {:#x}: {}", text_of(op_of(mine.refused.opcode)),
                                mine.dest_qpn,
                                or_gone(why_refused(own, asked_of(mine.refused), 0, 0), mine))
                  : "",
              {}};
    default:
      break;
  }
  if (request.question == Question::kWaiting && mine.type == QpType::kUd) {
    std::string text = was_used(mine) ? "" : why_nothing_comes(own);
    return {text.empty() ? why_nobody_answers(daemon, own) : text, {}};
  }
  if (request.question == Question::kWaiting && was_used(mine))
    return {why_nothing_more(own, peer_here(daemon, mine)), {}};
  if (request.question == Question::kWaiting) {
    std::string text = why_nothing_comes(own);
    // PSNs are the likeliest thing for two ends to disagree about, and both ends may be here.
    const End here = mine.drops.last == SilentDrop::kNotOfPeer ? peer_here(daemon, mine) : End{};
    if (here.qp && here.qp->dest_qpn == mine.qpn && here.qp->sq_psn != mine.rq_psn)
      text = fmt::format(
          "requests of {}, its peer, begin at PSN {} (sq_psn), and are expected from {} on "
          "(rq_psn): "
          "both must agree",
          name_of(here), here.qp->sq_psn, mine.rq_psn);
    if (!text.empty() || mine.state < QpState::kRtr) return {text, {}};
  }
  if (mine.type == QpType::kUd) return {};
  return explain_peer(daemon, instance, mine, client_id, request);
}

}  // namespace hostnic
