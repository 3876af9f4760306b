// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/inquiries.h"

#include <errno.h>
#include <net/if.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "dataplane/daemon/lcore/clock.h"
#include "dataplane/daemon/network/kernel_neighbour.h"
#include "dataplane/daemon/observe/told.h"
#include "protocol/hostif/version.h"
#include "protocol/wire/hostnic/headers.h"
#include "protocol/wire/udp.h"

namespace hostnic {
namespace {

uint64_t random_number() {
  uint64_t number = 1;
  [[maybe_unused]] const ssize_t got = getrandom(&number, sizeof number, GRND_NONBLOCK);
  return number;
}

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

Inquiries::Question* Inquiries::find(const InquiryKey& key) {
  const auto found = std::ranges::find_if(
      questions_, [&](const Question& each) { return each.used && each.key == key; });
  return found == questions_.end() ? nullptr : &*found;
}

// A free place, or that of the answer which is the oldest; null: there is none, or that client has
// its share. Whoever does not come again has given up.
Inquiries::Question* Inquiries::place_for(const InquiryKey& key, TimeNs now_ns) {
  Question* place = nullptr;
  size_t of_client = 0;
  for (Question& each : questions_) {
    const bool is_open =
        each.used && each.result.state == State::kAsking && now_ns - each.asked_ns < 2 * kSilentNs;
    if (is_open && each.key.client_id == key.client_id) ++of_client;
    if (is_open || (place != nullptr && !place->used)) continue;
    if (!each.used || place == nullptr || each.asked_ns < place->asked_ns) place = &each;
  }
  return of_client >= kQuestionsEach ? nullptr : place;
}

// Whether the kernel has asked for the host's link address, and nobody has answered.
bool Inquiries::asks_in_vain(const NicInstance& nic, const InquiryKey& key) {
  if (nic.network == nullptr || !nic.network->has_kernels_address()) return false;
  const AddressBook* const book = nic.plan.settings.address_book;
  KernelNeighbours neighbours;
  return neighbours.look_up(address_of(book, key.own), address_of(book, key.peer), 0) !=
         KernelNeighbours::Known::kYes;
}

// Sends what is due, and gives up who does not answer.
void Inquiries::go_on(NicInstance& nic, Question& question, TimeNs now_ns) {
  const bool is_padded = question.key.datagram_bytes > cm::kMadBytes;
  const uint64_t asked_for_ns = now_ns - question.asked_ns;
  if (asked_for_ns >= (is_padded ? kLongSilentNs : kSilentNs)) {
    question.result.state = State::kSilent;
    question.result.roce_error = question.roce.error();
    question.result.discard_error = question.discard.error();
    // Its answer to ARP would have come by now; TCP waits for three seconds.
    if (question.result.discard_error == 0 && question.result.roce_error == 0 && !is_padded &&
        asks_in_vain(nic, question.key))
      question.result.discard_error = EHOSTUNREACH;
    question.settled_ns = now_ns;
    question.roce = {};
    question.discard = {};
    return;
  }
  if (asked_for_ns >= kProbeNs && !question.is_probed) {
    question.is_probed = true;
    probe(nic, question.key, question.roce, PathProbe::Kind::kDatagram, wire::kRoceUdpPort);
  }
  if (now_ns < question.next_ns || question.attempts == kAttempts) return;
  question.next_ns = now_ns + (kFirstPauseNs << question.attempts);
  // A host that has not answered so often may not be there: its kernel is asked.
  if (++question.attempts == kAttempts && !is_padded)
    probe(nic, question.key, question.discard, PathProbe::Kind::kHandshake,
          PathProbe::kDiscardPort);
  const cm::Inquiry inquiry =
      inquiry_of(question.key, question.transaction_id, question.request_id);
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
  Question* question = find(key);
  if (question != nullptr && question->result.state != State::kAsking &&
      now_ns - question->settled_ns < kFreshNs)
    return question->result;
  const bool is_stale = question == nullptr || question->result.state != State::kAsking ||
                        now_ns - question->asked_ns >= kFreshNs;
  if (is_stale) {
    if (question == nullptr) question = place_for(key, now_ns);
    if (question == nullptr) return {};
    *question = {};
    question->used = true;
    question->key = key;
    question->transaction_id = random_number();
    question->request_id = static_cast<uint32_t>(random_number());
    question->asked_ns = question->next_ns = now_ns;
    question->result.state = State::kAsking;
  }
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
  for (Question& each : questions_) {
    if (!each.used || each.key.nic != &nic || each.key.own != datagram.to ||
        each.key.peer != datagram.from || each.transaction_id != heard->answer.transaction_id ||
        each.request_id != heard->answer.request_id)
      continue;
    if (each.result.state != State::kAsking) return true;
    each.result.state = heard->known ? State::kAnswered : State::kUnknown;
    each.result.answer = heard->answer;
    each.settled_ns = monotonic_now_ns();
    each.roce = {};
    each.discard = {};
    return true;
  }
  return false;
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
