// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/inquiries.h"

#include <errno.h>
#include <net/if.h>

#include <cstdio>
#include <cstring>

#include "dataplane/daemon/lcore/clock.h"
#include "dataplane/daemon/network/kernel_neighbour.h"
#include "dataplane/daemon/observe/told.h"
#include "dataplane/daemon/random_number.h"
#include "protocol/hostif/version.h"
#include "protocol/wire/hostnic/headers.h"
#include "protocol/wire/udp.h"

namespace hostnic {
namespace {

cm::Inquiry inquiry_of(const InquiryKey& key, uint64_t transaction_id, uint32_t request_id) {
  return {transaction_id, request_id, key.own_qpn, key.peer_qpn, key.datagram_bytes};
}

// All that the NIC has of that number, in one task.
Seen look(NicInstance& nic, const Asking& asking, uint32_t qpn) {
  Seen seen;
  nic.lcore->run_on([&] {
    const NicViews views = nic.nic->views();
    seen.now_ns = nic.nic->now_ns();
    seen.qp = views.qp(qpn);
    if (!seen.qp) {
      seen.dead = views.dead_qp(qpn);
      if (const auto other = views.qp_with_peer(asking.host, asking.qpn);
          other && is_unused(*other))
        seen.other_qpn = other->qpn;
    } else if (seen.qp->refused_its_peer) {
      const RefusedRequest& refused = seen.qp->refused;
      if (const SendOp op = op_of(refused.opcode); !is_send_op(op))
        seen.key = views.key(seen.qp->scope(), refused.key, refused.va, refused.length_bytes,
                             right_of(op), /*is_remote=*/true);
    }
  });
  seen.is_stopped = seen.qp && is_stopped(seen.qp->pid);
  return seen;
}

}  // namespace

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

Inquiries::Inquiries(Daemon& daemon) : daemon_(daemon) { daemon_.set_inquiries(this); }

Inquiries::~Inquiries() { daemon_.set_inquiries(nullptr); }

// Whether the kernel has asked for the host's link address, and nobody has answered.
bool Inquiries::asks_in_vain(const NicInstance& nic, const InquiryKey& key) {
  if (nic.network == nullptr || !nic.network->has_kernels_address()) return false;
  const AddressBook* const book = nic.plan.settings.address_book;
  KernelNeighbours neighbours;
  return neighbours.look_up(address_of(book, key.own), address_of(book, key.peer), 0) !=
         KernelNeighbours::Known::kYes;
}

// Nobody has answered: what the network says of that.
void Inquiries::give_up(NicInstance& nic, Question& question, TimeNs now_ns) {
  Ways& ways = ways_[book_.index_of(question)];
  InquiryResult& result = question.result;
  result.roce_error = ways.roce.error();
  result.discard_error = ways.discard.error();
  // Its answer to ARP would have come by now; TCP waits for three seconds.
  if (result.discard_error == 0 && result.roce_error == 0 && !question.is_padded() &&
      asks_in_vain(nic, question.key))
    result.discard_error = EHOSTUNREACH;
  InquiryBook::settle(question, InquiryResult::State::kSilent, now_ns);
  ways = {};
}

// Does what is due.
void Inquiries::go_on(NicInstance& nic, Question& question, TimeNs now_ns) {
  const InquiryBook::Due due = InquiryBook::due(question, now_ns);
  if (due.is_given_up) return give_up(nic, question, now_ns);
  Ways& ways = ways_[book_.index_of(question)];
  if (due.datagram)
    probe(nic, question.key, ways.roce, PathProbe::Kind::kDatagram, wire::kRoceUdpPort);
  if (due.handshake)
    probe(nic, question.key, ways.discard, PathProbe::Kind::kHandshake, PathProbe::kDiscardPort);
  if (!due.question) return;
  const cm::Inquiry inquiry =
      inquiry_of(question.key, question.numbers.transaction_id, question.numbers.request_id);
  Nic* const sender = nic.nic.get();
  nic.lcore->post([sender, own = question.key.own, peer = question.key.peer, inquiry] {
    sender->send_inquiry(own, peer, inquiry);
  });
}

// Only where the NIC's packets leave by the kernel.
void Inquiries::probe(const NicInstance& nic, const InquiryKey& key, PathProbe& way,
                      PathProbe::Kind kind, uint16_t port) {
  if (nic.network == nullptr || !nic.network->has_kernels_address()) return;
  const NicSettings& settings = nic.plan.settings;
  const AddressBook* const book = settings.address_book;
  const Gid own = address_of(book, key.own), peer = address_of(book, key.peer);
  // It means something for link-local addresses alone.
  const uint32_t index = is_link_local(own) ? if_nametoindex(nic.netdev.c_str()) : 0;
  way.send(kind, own, peer, index, port);
}

InquiryResult Inquiries::ask(NicInstance& nic, const InquiryKey& key) {
  const TimeNs now_ns = monotonic_now_ns();
  const std::lock_guard lock(mutex_);
  const auto draw = [] {
    return InquiryBook::Numbers{random_number(), static_cast<uint32_t>(random_number())};
  };
  bool is_new = false;
  Question* const question = book_.open(key, now_ns, draw, is_new);
  if (question == nullptr) return {};
  if (is_new) ways_[book_.index_of(*question)] = {};
  go_on(nic, *question, now_ns);
  return question->result;
}

bool Inquiries::receive(NicInstance& nic, const ManagementDatagram& datagram, const cm::Mad& mad) {
  if (const auto inquiry = cm::inquiry_in(mad)) {
    answer(nic, datagram, *inquiry);
    return true;
  }
  const auto heard = cm::inquiry_answer_in(mad);
  if (!heard) return false;
  const std::lock_guard lock(mutex_);
  Question* const question = book_.asked(&nic, datagram.to, datagram.from,
                                         {heard->answer.transaction_id, heard->answer.request_id});
  if (question == nullptr) return false;
  if (question->result.state != InquiryResult::State::kAsking) return true;
  question->result.answer = heard->answer;
  InquiryBook::settle(
      *question, heard->known ? InquiryResult::State::kAnswered : InquiryResult::State::kUnknown,
      monotonic_now_ns());
  ways_[book_.index_of(*question)] = {};
  return true;
}

void Inquiries::answer(NicInstance& nic, const ManagementDatagram& datagram,
                       const cm::Inquiry& inquiry) {
  const NicSettings& settings = nic.plan.settings;
  cm::InquiryAnswer told{.transaction_id = inquiry.transaction_id,
                         .request_id = inquiry.request_id,
                         .facts = {.version = wire::kNativeVersion,
                                   .policy = static_cast<uint8_t>(settings.policy),
                                   .wanted = settings.wanted_to(datagram.from)},
                         .version = HOSTNIC_VERSION,
                         .nic = settings.name,
                         .heard_bytes = inquiry.datagram_bytes};
  if (inquiry.qpn != 0) {
    const Asking asking{datagram.from, inquiry.asker_qpn};
    tell(look(nic, asking, inquiry.qpn), asking, told);
  }
  nic.lcore->run_on([&] {
    nic.nic->count(Counter::inquiries_answered);
    nic.nic->send_management(datagram.to, datagram.from, 0, cm::build(cm::mad_of(told)));
  });
}

}  // namespace hostnic
