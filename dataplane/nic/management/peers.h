// SPDX-License-Identifier: BSD-3-Clause
// What other hosts speak, for NICs that leave it to that (docs/roce.md, "auto"): what is known, the
// questions that are open, and the answers to others' questions. Bookkeeping without packets: those
// come in and go out as cm::Mad; time comes in.
//
// Knowledge is about an address, as seen from one of ours, and belongs to nobody: it is bounded and
// ages, and what strangers say of themselves can't displace what connections were made by. Open
// questions are clients': each may have some.
//
// The NIC's lcore.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/memory/random_source.h"
#include "dataplane/nic/settings.h"
#include "protocol/cm/peer.h"
#include "protocol/transport_kind.h"
#include "protocol/types.h"

namespace hostnic {

// What is known of a host, for people.
struct PeerView {
  std::string nic, own, peer;
  bool asked = false;  // nothing yet: it has been asked `questions` times
  uint32_t questions = 0;
  std::string transport;  // that connections to it get
  std::string says;       // what it has said of itself
  uint64_t age_s = 0;
  bool doubted = false, outdated = false;  // a connection failed since; to be asked again
};

class Peers {
 public:
  // A question is repeated after kFirstPauseNs, then after twice that, and so on; who has not
  // answered kAttempts of them by kSilentAfterNs speaks the standard's.
  static constexpr uint32_t kAttempts = 7;
  static constexpr uint64_t kFirstPauseNs = 4'000'000;
  static constexpr uint64_t kSilentAfterNs = ((1u << kAttempts) - 1) * kFirstPauseNs;
  static constexpr uint64_t kKnownNs = 60'000'000'000;
  static constexpr uint32_t kQuestions = 128, kQuestionsEach = 32;
  static constexpr uint32_t kWays = 8, kSets = 256;
  // The most questions of others that are heard per second, and how many may come at once.
  static constexpr uint32_t kAnswersPerSecond = 10'000, kAnswerBurst = 512;

  Peers(const NicSettings& settings, Counters& counters);

  // What a connection of a client's from one of our addresses to a host speaks. Nothing: it is not
  // known yet; the host is being asked, and whoever wants to know comes again.
  std::optional<Transport> transport_to(Ipv4Address own, Ipv4Address peer, uint32_t client,
                                        TimeNs now);
  // Takes note that a connection between the two has failed for want of answers: the host is asked
  // anew for the next one.
  void doubt(Ipv4Address own, Ipv4Address peer);
  // Ends the questions of a client that is no more: whom it meant is soon nobody's business.
  void forget_client(uint32_t client);

  // Takes a datagram that has come from a host. Returns false if it is no question and no answer to
  // one of ours. If `reply` is something then, it is to be sent back.
  bool receive(const cm::Mad& mad, Ipv4Address own, Ipv4Address peer, TimeNs now,
               std::optional<cm::Mad>& reply);

  struct Due {
    uint32_t client;
    Ipv4Address own, peer;
    cm::Mad mad;
  };
  // The next question that is due; called until there is nothing.
  std::optional<Due> next_due(TimeNs now);
  TimeNs next_deadline_ns() const;  // UINT64_MAX: none

  // What is known of each host, and who is being asked.
  std::vector<PeerView> view(TimeNs now) const;

 private:
  struct Ends {
    Gid own{}, peer{};
    bool operator==(const Ends&) const = default;
  };
  enum class Source : uint8_t {
    kNone,    // an empty place
    kSaid,    // the host has said it
    kOther,   // the host answers, but is no hostnic that knows the question
    kSilent,  // the host does not answer
  };
  struct Numbers {
    uint64_t transaction_id = 0;
    uint32_t request_id = 0;
    bool operator==(const Numbers&) const = default;
  };
  struct Known {
    Ends ends;
    Source source = Source::kNone;
    bool used = false;     // a connection was made by it
    bool doubted = false;  // and one has failed since
    cm::PeerFacts facts;   // kSaid
    Numbers asked;         // kSilent: the numbers of the question, whose answer may come late
    TimeNs learned_ns = 0;
  };
  struct Question {
    bool open = false;
    Ends ends;
    Ipv4Address own{}, peer{};
    uint32_t client = 0;
    Numbers numbers;
    uint32_t attempts = 0;
    TimeNs next_ns = 0;
  };

  Ends ends_of(Ipv4Address own, Ipv4Address peer) const;
  cm::PeerFacts own_facts(Ipv4Address peer) const;
  Transport chosen(const Known& known) const;
  static bool is_fresh(const Known& known, TimeNs now) {
    return known.source != Source::kNone && !known.doubted && now - known.learned_ns < kKnownNs;
  }
  std::array<Known, kWays>& set_of(const Ends& ends);
  Known* find(const Ends& ends);
  // `asked`: for a question of ours, which may displace anything.
  void learn(const Ends& ends, Known fact, bool asked, TimeNs now);
  Question* find_question(const Ends& ends);
  void ask(const Ends& ends, Ipv4Address own, Ipv4Address peer, uint32_t client, TimeNs now);
  void close(Question& question);
  bool may_answer(TimeNs now);
  void hear(const cm::PeerQuestion& question, Ipv4Address own, Ipv4Address peer, TimeNs now,
            std::optional<cm::Mad>& reply);
  bool take(const cm::PeerAnswer& answer, const Ends& ends, TimeNs now);
  uint64_t random_number() { return uint64_t{random_.next()} << 32 | random_.next(); }

  const NicSettings& settings_;
  Counters& counters_;
  RandomSource random_;
  const uint64_t hash_secret_;
  std::vector<std::array<Known, kWays>> known_;  // one set only, where nobody will look
  std::array<Question, kQuestions> questions_{};
  uint32_t open_ = 0;
  TimeNs answers_until_ns_ = 0;  // how far the answers so far have used up the rate
};

}  // namespace hostnic
