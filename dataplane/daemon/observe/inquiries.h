// SPDX-License-Identifier: BSD-3-Clause
// Questions between hostnicds about connections that fail or wait: those of this one, their answers
// and what the network says meanwhile, and the answers to others'. An asker never waits: it is
// told that the host is being asked, and comes again; each time it comes, what is due is sent. A
// host that does not know the question, or is not there, is given up (inquiry_book.h).
//
// The members may be called by any thread but an lcore; receive() by the control thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/network/path_probe.h"
#include "dataplane/daemon/observe/inquiry_book.h"
#include "dataplane/nic/management/management_queue.h"
#include "protocol/cm/inquiry.h"

namespace hostnic {

// Whether a process is stopped, by a signal or a debugger.
bool is_stopped(uint32_t pid);

class Inquiries {
 public:
  explicit Inquiries(Daemon& daemon);
  ~Inquiries();
  Inquiries(const Inquiries&) = delete;
  Inquiries& operator=(const Inquiries&) = delete;

  // Asks, or says what has become of it. An answer is kept for kFreshNs.
  InquiryResult ask(NicInstance& nic, const InquiryKey& key);
  // Takes a management datagram; returns false if it is neither a question of this kind nor an
  // answer to one of ours.
  bool receive(NicInstance& nic, const ManagementDatagram& datagram, const cm::Mad& mad);

 private:
  using Question = InquiryBook::Question;
  // What a question has under way besides its datagrams.
  struct Ways {
    PathProbe roce, discard;
  };

  void go_on(NicInstance& nic, Question& question, TimeNs now_ns);
  void give_up(NicInstance& nic, Question& question, TimeNs now_ns);
  static bool asks_in_vain(const NicInstance& nic, const InquiryKey& key);
  static void probe(const NicInstance& nic, const InquiryKey& key, PathProbe& way,
                    PathProbe::Kind kind, uint16_t port);
  void answer(NicInstance& nic, const ManagementDatagram& datagram, const cm::Inquiry& inquiry);

  Daemon& daemon_;
  std::mutex mutex_;  // of the rest; nothing is waited for while it is held
  InquiryBook book_;
  std::array<Ways, InquiryBook::kQuestions> ways_;  // by index_of()
};

}  // namespace hostnic
