// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/management/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "protocol/wire/hostnic/headers.h"

namespace hostnic {

namespace {

// Every bit of the result depends on every bit of the value (the end of splitmix64).
uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

}  // namespace

Peers::Peers(const NicSettings& settings, Counters& counters)
    : settings_(settings),
      counters_(counters),
      random_(settings.random_seed),
      hash_secret_(random_number()),
      known_(settings.asks_peers() ? kSets : 1) {}

Peers::Ends Peers::ends_of(Ipv4Address own, Ipv4Address peer) const {
  return {settings_.address_of(own), settings_.address_of(peer)};
}

cm::PeerFacts Peers::own_facts(Ipv4Address peer) const {
  return {.version = wire::kNativeVersion,
          .policy = static_cast<uint8_t>(settings_.policy),
          .wanted = settings_.wanted_to(peer)};
}

// ---- what is known

std::array<Peers::Known, Peers::kWays>& Peers::set_of(const Ends& ends) {
  uint64_t words[4];
  static_assert(sizeof(words) == sizeof(ends));
  std::memcpy(words, &ends, sizeof(words));
  uint64_t hash = hash_secret_;
  for (const uint64_t word : words) hash = mixed(hash ^ word);
  return known_[hash % known_.size()];
}

Peers::Known* Peers::find(const Ends& ends) {
  for (Known& known : set_of(ends))
    if (known.source != Source::kNone && known.ends == ends) return &known;
  return nullptr;
}

void Peers::learn(const Ends& ends, Known fact, bool asked, TimeNs now) {
  Known* place = find(ends);
  if (place == nullptr) {
    for (Known& known : set_of(ends)) {
      if (known.source != Source::kNone && !asked && known.used && is_fresh(known, now)) continue;
      const TimeNs age_of_place = place == nullptr ? UINT64_MAX : place->learned_ns;
      if (known.source == Source::kNone) {
        place = &known;
        break;
      }
      if (known.learned_ns < age_of_place) place = &known;
    }
    if (place == nullptr) return;
    *place = {};
  }
  fact.ends = ends;
  fact.used = place->used;
  fact.learned_ns = now;
  *place = fact;
}

Transport Peers::chosen(const Known& known) const {
  const cm::PeerFacts own{.version = wire::kNativeVersion,
                          .policy = static_cast<uint8_t>(settings_.policy),
                          .wanted = Transport::kAuto};
  return known.source == Source::kSaid && cm::native_between(own, known.facts) ? Transport::kHostnic
                                                                               : Transport::kRoce;
}

std::optional<Transport> Peers::transport_to(Ipv4Address own, Ipv4Address peer, uint32_t client,
                                             TimeNs now) {
  switch (settings_.wanted_to(peer)) {
    case Transport::kHostnic:
      return Transport::kHostnic;
    case Transport::kRoce:
      return Transport::kRoce;
    case Transport::kMrc:
      return Transport::kMrc;
    case Transport::kAuto:
    case Transport::kUnreliable:  // never wanted
      break;
  }
  if (settings_.is_own(peer)) return Transport::kHostnic;
  const Ends ends = ends_of(own, peer);
  if (Known* const known = find(ends); known != nullptr && is_fresh(*known, now)) {
    known->used = true;
    return chosen(*known);
  }
  if (find_question(ends) == nullptr) ask(ends, own, peer, client, now);
  return std::nullopt;
}

void Peers::doubt(Ipv4Address own, Ipv4Address peer) {
  if (Known* const known = find(ends_of(own, peer))) known->doubted = true;
}

// ---- questions of ours

Peers::Question* Peers::find_question(const Ends& ends) {
  if (open_ == 0) return nullptr;
  const auto found = std::ranges::find_if(
      questions_, [&](const Question& each) { return each.open && each.ends == ends; });
  return found == questions_.end() ? nullptr : &*found;
}

// Opens a question, unless there is no place, or none left for that client.
void Peers::ask(const Ends& ends, Ipv4Address own, Ipv4Address peer, uint32_t client, TimeNs now) {
  Question* place = nullptr;
  uint32_t of_client = 0;
  for (Question& each : questions_) {
    if (!each.open) place = &each;
    if (each.open && each.client == client) ++of_client;
  }
  if (place == nullptr || of_client >= kQuestionsEach) return;
  *place = {.open = true,
            .ends = ends,
            .own = own,
            .peer = peer,
            .client = client,
            .numbers = {random_number(), random_.next()},
            .next_ns = now};
  ++open_;
}

void Peers::close(Question& question) {
  question.open = false;
  --open_;
}

void Peers::forget_client(uint32_t client) {
  for (Question& each : questions_)
    if (each.open && each.client == client) close(each);
}

std::optional<Peers::Due> Peers::next_due(TimeNs now) {
  if (open_ == 0) return std::nullopt;
  for (Question& each : questions_) {
    if (!each.open || each.next_ns > now) continue;
    if (each.attempts == kAttempts) {
      learn(each.ends, {.source = Source::kSilent, .asked = each.numbers}, true, now);
      close(each);
      continue;
    }
    each.next_ns = now + (kFirstPauseNs << each.attempts++);
    counters_.add(Counter::peer_questions_sent);
    return Due{each.client, each.own, each.peer,
               cm::mad_of(cm::PeerQuestion{each.numbers.transaction_id, each.numbers.request_id,
                                           own_facts(each.peer)})};
  }
  return std::nullopt;
}

TimeNs Peers::next_deadline_ns() const {
  TimeNs earliest = UINT64_MAX;
  if (open_ == 0) return earliest;
  for (const Question& each : questions_)
    if (each.open) earliest = std::min(earliest, each.next_ns);
  return earliest;
}

// ---- what hosts say

bool Peers::receive(const cm::Mad& mad, Ipv4Address own, Ipv4Address peer, TimeNs now,
                    std::optional<cm::Mad>& reply) {
  if (const auto question = cm::question_in(mad)) {
    hear(*question, own, peer, now, reply);
    return true;
  }
  const auto answer = cm::answer_in(mad);
  return answer && take(*answer, ends_of(own, peer), now);
}

bool Peers::may_answer(TimeNs now) {
  constexpr uint64_t kEachNs = 1'000'000'000 / kAnswersPerSecond;
  constexpr uint64_t kBurstNs = kEachNs * kAnswerBurst;
  if (answers_until_ns_ > now + kBurstNs - kEachNs) return false;
  answers_until_ns_ = std::max(answers_until_ns_, now) + kEachNs;
  return true;
}

// Answers a question, and learns from it what the asker wants: what it is told and what is believed
// here are the same, or neither happens.
void Peers::hear(const cm::PeerQuestion& question, Ipv4Address own, Ipv4Address peer, TimeNs now,
                 std::optional<cm::Mad>& reply) {
  if (!may_answer(now)) {
    counters_.add(Counter::peer_questions_refused);
    return;
  }
  counters_.add(Counter::peer_questions_answered);
  cm::PeerFacts facts = own_facts(peer);
  if (facts.wanted == Transport::kAuto) {
    const Ends ends = ends_of(own, peer);
    const Known* const known = find(ends);
    if (known != nullptr && known->source == Source::kSilent && is_fresh(*known, now)) {
      // Connections speak the standard's to that host because it was silent. So must its end of
      // them, and of those to come until it is asked anew.
      facts.wanted = Transport::kRoce;
    } else {
      learn(ends, {.source = Source::kSaid, .facts = question.facts}, false, now);
      if (Question* const ours = find_question(ends);
          ours != nullptr && find(ends) != nullptr && is_fresh(*find(ends), now))
        close(*ours);
    }
  }
  reply = cm::mad_of(cm::PeerAnswer{question.transaction_id, question.request_id, facts});
}

// Takes an answer, if it is one to a question of ours.
bool Peers::take(const cm::PeerAnswer& answer, const Ends& ends, TimeNs now) {
  const Numbers numbers{answer.transaction_id, answer.request_id};
  Question* const question = find_question(ends);
  if (question != nullptr) {
    if (question->numbers != numbers) return false;
    close(*question);
  } else {
    // Somebody who was silent may answer late. What was decided stands for its connections.
    const Known* const known = find(ends);
    if (known == nullptr || known->source != Source::kSilent || known->asked != numbers)
      return false;
  }
  Known fact{.source = answer.facts ? Source::kSaid : Source::kOther};
  if (answer.facts) fact.facts = *answer.facts;
  learn(ends, fact, true, now);
  return true;
}

// ---- for people

std::vector<PeerView> Peers::view(TimeNs now) const {
  std::vector<PeerView> views;
  for (const auto& set : known_) {
    for (const Known& known : set) {
      if (known.source == Source::kNone) continue;
      PeerView view{.nic = settings_.name,
                    .own = to_string(known.ends.own),
                    .peer = to_string(known.ends.peer)};
      view.says = known.source == Source::kSilent ? "does not answer" : "no hostnic";
      if (known.source == Source::kSaid) {
        view.says = fmt::format("hostnic version {} policy {} wants {}", known.facts.version,
                                wire::to_string(static_cast<wire::Policy>(known.facts.policy)),
                                to_string(known.facts.wanted));
      }
      view.transport = chosen(known) == Transport::kRoce ? "roce" : "hostnic";
      view.age_s = (now - known.learned_ns) / 1'000'000'000;
      view.doubted = known.doubted;
      view.outdated = now - known.learned_ns >= kKnownNs;
      views.push_back(std::move(view));
    }
  }
  for (const Question& each : questions_) {
    if (each.open)
      views.push_back({.nic = settings_.name,
                       .own = to_string(each.ends.own),
                       .peer = to_string(each.ends.peer),
                       .asked = true,
                       .questions = each.attempts});
  }
  return views;
}

}  // namespace hostnic
