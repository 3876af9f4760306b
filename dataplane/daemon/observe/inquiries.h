// SPDX-License-Identifier: BSD-3-Clause
// Questions between hostnicds about connections that fail or wait: those of this one, their answers
// and what the network says meanwhile, and the answers to others'. Who asks never waits: it is told
// that the host is being asked, and comes again; each time it comes, what is due is sent. A host
// that does not know the question, or is not there, is given up after kSilentNs.
//
// The members may be called by any thread but an lcore; receive() by the control thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/network/path_probe.h"
#include "dataplane/nic/management/management_queue.h"
#include "protocol/cm/inquiry.h"

namespace hostnic {

// Whether a process is stopped, by a signal or a debugger.
bool is_stopped(uint32_t pid);

// What a question is about.
struct InquiryKey {
  const NicInstance* nic = nullptr;
  uint32_t client_id = 0;  // whose question it is; 0: hostnicd's owner's
  Ipv4Address own{}, peer{};
  uint32_t own_qpn = 0, peer_qpn = 0;  // 0: about the host alone
  uint32_t datagram_bytes = cm::kMadBytes;
  bool operator==(const InquiryKey&) const = default;
};

struct InquiryResult {
  enum class State : uint8_t {
    kAsking,    // come again, after kComeAgainNs
    kAnswered,  // `answer` is good
    kUnknown,   // the host answers, and is no hostnic that knows the question
    kSilent,    // it does not answer; the errors say more
    kNoRoom,    // too much is being asked
  };
  State state = State::kNoRoom;
  cm::InquiryAnswer answer;
  // What the host's kernel, or the own one, said of its UDP port 4791, and of a TCP port that
  // nobody serves (PathProbe::error).
  int roce_error = 0, discard_error = 0;
};

class Inquiries {
 public:
  // A question is repeated after kFirstPauseNs, then after twice that, and so on. Then nothing is
  // sent for a second, in which the host's kernel may become willing to refuse a datagram.
  static constexpr uint32_t kAttempts = 4;
  static constexpr uint64_t kFirstPauseNs = 10'000'000;
  static constexpr uint64_t kProbeNs = 1'150'000'000, kSilentNs = 1'300'000'000;
  static constexpr uint64_t kLongSilentNs = 500'000'000;  // of padded ones, behind an answered one
  static constexpr uint64_t kComeAgainNs = 10'000'000, kFreshNs = 2'000'000'000;
  static constexpr size_t kQuestions = 128, kQuestionsEach = 16;

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
  using State = InquiryResult::State;
  struct Question {
    bool used = false;
    InquiryKey key;
    uint64_t transaction_id = 0;
    uint32_t request_id = 0, attempts = 0;
    bool is_probed = false;
    TimeNs asked_ns = 0, next_ns = 0, settled_ns = 0;
    InquiryResult result;
    PathProbe roce, discard;
  };

  Question* find(const InquiryKey& key);
  Question* place_for(const InquiryKey& key, TimeNs now_ns);
  void go_on(NicInstance& nic, Question& question, TimeNs now_ns);
  static bool asks_in_vain(const NicInstance& nic, const InquiryKey& key);
  static void probe(const NicInstance& nic, const InquiryKey& key, PathProbe& way,
                    PathProbe::Kind kind, uint16_t port);
  void answer(NicInstance& nic, const ManagementDatagram& datagram, const cm::Inquiry& inquiry);

  Daemon& daemon_;
  std::mutex mutex_;  // of questions_; nothing is waited for while it is held
  std::array<Question, kQuestions> questions_;
};

}  // namespace hostnic
