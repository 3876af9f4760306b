// SPDX-License-Identifier: BSD-3-Clause
// Which questions to other hosts are open, what has been answered lately, and what is to be sent
// now: the bookkeeping of Inquiries, which sends it. Pure but for the time, which comes in. One
// thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "protocol/cm/inquiry.h"
#include "protocol/types.h"

namespace hostnic {

struct NicInstance;

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

class InquiryBook {
 public:
  // A question is repeated after kFirstPauseNs, then after twice that, and so on. Then nothing is
  // sent for a second, in which the host's kernel may become willing to refuse a datagram.
  static constexpr uint32_t kAttempts = 4;
  static constexpr uint64_t kFirstPauseNs = 10'000'000;
  static constexpr uint64_t kProbeNs = 1'150'000'000, kSilentNs = 1'300'000'000;
  static constexpr uint64_t kLongSilentNs = 500'000'000;  // of padded ones, behind an answered one
  static constexpr uint64_t kComeAgainNs = 10'000'000, kFreshNs = 2'000'000'000;
  static constexpr size_t kQuestions = 128, kQuestionsEach = 16;

  // What tells the answer to a question from others'.
  struct Numbers {
    uint64_t transaction_id = 0;
    uint32_t request_id = 0;
  };
  struct Question {
    bool used = false;
    InquiryKey key;
    Numbers numbers;
    uint32_t attempts = 0;
    bool is_probed = false;
    TimeNs asked_ns = 0, next_ns = 0, settled_ns = 0;
    InquiryResult result;
    bool is_padded() const { return key.datagram_bytes > cm::kMadBytes; }
  };
  // What is to be done for an open question now.
  struct Due {
    bool question = false;     // it is sent
    bool handshake = false;    // the host's kernel is asked, by a port that nobody serves,
    bool datagram = false;     // and by the UDP port itself
    bool is_given_up = false;  // nobody has answered, nor will be waited for
  };

  // The question about that: open, or settled within kFreshNs, else a new one, which `is_new` says
  // and which has the numbers that draw() makes. Null: too much is being asked, or this client has
  // its share.
  template <class Draw>
  Question* open(const InquiryKey& key, TimeNs now_ns, const Draw& draw, bool& is_new) {
    Question* question = find(key);
    is_new = question == nullptr || is_stale(*question, now_ns);
    if (!is_new) return question;
    if (question == nullptr) question = place_for(key, now_ns);
    if (question == nullptr) return nullptr;
    *question = {
        .used = true, .key = key, .numbers = draw(), .asked_ns = now_ns, .next_ns = now_ns};
    question->result.state = InquiryResult::State::kAsking;
    return question;
  }
  // Takes note of what it says is due: it is not due again.
  static Due due(Question& question, TimeNs now_ns);
  static void settle(Question& question, InquiryResult::State state, TimeNs now_ns);
  // The question that an answer from `peer` is to; null: none of ours.
  Question* asked(const NicInstance* nic, Ipv4Address own, Ipv4Address peer,
                  const Numbers& numbers);
  size_t index_of(const Question& question) const {
    return static_cast<size_t>(&question - questions_.data());
  }

 private:
  Question* find(const InquiryKey& key);
  Question* place_for(const InquiryKey& key, TimeNs now_ns);
  static bool is_stale(const Question& question, TimeNs now_ns);

  std::array<Question, kQuestions> questions_;
};

}  // namespace hostnic
