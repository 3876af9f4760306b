// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/inquiry_book.h"

#include <algorithm>

namespace hostnic {

using State = InquiryResult::State;

InquiryBook::Question* InquiryBook::find(const InquiryKey& key) {
  const auto found = std::ranges::find_if(
      questions_, [&](const Question& each) { return each.used && each.key == key; });
  return found == questions_.end() ? nullptr : &*found;
}

bool InquiryBook::is_stale(const Question& question, TimeNs now_ns) {
  const bool is_open = question.result.state == State::kAsking;
  return now_ns - (is_open ? question.asked_ns : question.settled_ns) >= kFreshNs;
}

// A free place, or that of the answer which is the oldest; null: there is none, or that client has
// its share. Whoever does not come again has given up.
InquiryBook::Question* InquiryBook::place_for(const InquiryKey& key, TimeNs now_ns) {
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

InquiryBook::Due InquiryBook::due(Question& question, TimeNs now_ns) {
  Due due;
  if (question.result.state != State::kAsking) return due;
  const uint64_t asked_for_ns = now_ns - question.asked_ns;
  if (asked_for_ns >= (question.is_padded() ? kLongSilentNs : kSilentNs)) {
    due.is_given_up = true;
    return due;
  }
  if (asked_for_ns >= kProbeNs && !question.is_probed) due.datagram = question.is_probed = true;
  if (now_ns < question.next_ns || question.attempts == kAttempts) return due;
  question.next_ns = now_ns + (kFirstPauseNs << question.attempts);
  due.question = true;
  // A host that has not answered so often may not be there: its kernel is asked.
  due.handshake = ++question.attempts == kAttempts && !question.is_padded();
  return due;
}

void InquiryBook::settle(Question& question, State state, TimeNs now_ns) {
  question.result.state = state;
  question.settled_ns = now_ns;
}

InquiryBook::Question* InquiryBook::asked(const NicInstance* nic, Ipv4Address own, Ipv4Address peer,
                                          const Numbers& numbers) {
  const auto found = std::ranges::find_if(questions_, [&](const Question& each) {
    return each.used && each.key.nic == nic && each.key.own == own && each.key.peer == peer &&
           each.numbers.transaction_id == numbers.transaction_id &&
           each.numbers.request_id == numbers.request_id;
  });
  return found == questions_.end() ? nullptr : &*found;
}

}  // namespace hostnic
