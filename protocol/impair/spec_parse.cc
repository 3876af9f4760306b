// SPDX-License-Identifier: BSD-3-Clause
// The parser of impairment specs: recursive descent with one token of look-ahead. The grammar is in
// spec.h.
#include <utility>

#include "protocol/impair/spec.h"
#include "protocol/impair/spec_kinds.h"
#include "protocol/impair/spec_reader.h"

namespace hostnic::impair {

namespace {

constexpr const char* kRuleExpected =
    "a rule: drop, duplicate, corrupt, mark, reorder, delay, rate or blackhole";

constexpr unsigned bit(Action action) { return 1u << static_cast<unsigned>(action); }
constexpr unsigned kEveryAction = ~0u;
constexpr unsigned kTriggered = ~bit(Action::kRate);

// Parses a spec.
class Parser : private SpecReader {
 public:
  explicit Parser(std::string_view text) : SpecReader(text) {}

  Expected<Spec, SpecError> parse() {
    Spec spec;
    if (!parse_spec_into(spec)) return Unexpected(take_error());
    return spec;
  }

 private:
  // Clauses that exclude each other share an id.
  enum ClauseId {
    kTrigger,
    kPerQp,
    kKind,
    kPeer,
    kQpn,
    kPath,
    kPlane,
    kSourcePort,
    kLast,
    kFirst,
    kOnce,
    kWindow,
    kHow,
    kFlush,
    kJitter,
    kQueue,
    kEcn
  };
  struct Clause {
    std::string_view word;
    ClauseId id;
    unsigned actions;  // the actions whose rules may have it
    bool (Parser::*parse)(Rule&);
  };
  static const std::array<Clause, 23> kClauses;

  bool parse_spec_into(Spec& spec);
  bool parse_rule(Rule& rule);
  bool parse_clause(Rule& rule, unsigned& seen);
  bool check_rule(const Rule& rule, unsigned seen);

  bool clause_all(Rule&) { return true; }
  bool clause_burst(Rule& rule);
  bool clause_nth(Rule& rule) { return counted(rule, TriggerKind::kNth); }
  bool clause_every(Rule& rule) { return counted(rule, TriggerKind::kEvery); }
  bool clause_first(Rule& rule) { return counted(rule, TriggerKind::kFirst); }
  bool counted(Rule& rule, TriggerKind kind) {
    rule.trigger.kind = kind;
    return count(rule.trigger.count);
  }
  bool clause_per_qp(Rule& rule) { return rule.trigger.per_qp = true; }
  bool clause_kind(Rule& rule);
  bool clause_peer(Rule& rule);
  bool clause_qpn(Rule& rule);
  bool clause_path(Rule& rule);
  bool clause_plane(Rule& rule);
  bool clause_source_port(Rule& rule);
  bool clause_last_packet(Rule& rule) { return rule.selectors.last_packet = true; }
  bool clause_first_attempt(Rule& rule) { return rule.selectors.first_attempt = true; }
  bool clause_once(Rule& rule) { return rule.selectors.once = true; }
  bool clause_from(Rule& rule);
  bool clause_to(Rule& rule);
  bool clause_distance(Rule& rule);
  bool clause_flush(Rule& rule) { return duration(rule.flush_ns); }
  bool clause_delay(Rule& rule) { return duration(rule.delay.base_ns); }
  bool clause_jitter(Rule& rule);
  bool clause_queue(Rule& rule);
  bool clause_ecn(Rule& rule);

  bool word(std::string_view wanted);
  bool rate(uint64_t& bits_per_second);
  std::string clauses_of(Action action) const;
};

const std::array<Parser::Clause, 23> Parser::kClauses{{
    {"all", kTrigger, kTriggered, &Parser::clause_all},
    {"burst", kTrigger, kTriggered, &Parser::clause_burst},
    {"nth", kTrigger, kTriggered, &Parser::clause_nth},
    {"every", kTrigger, kTriggered, &Parser::clause_every},
    {"first", kTrigger, kTriggered, &Parser::clause_first},
    {"per-qp", kPerQp, kTriggered, &Parser::clause_per_qp},
    {"distance", kHow, bit(Action::kReorder), &Parser::clause_distance},
    {"delay", kHow, bit(Action::kReorder), &Parser::clause_delay},
    {"flush", kFlush, bit(Action::kReorder), &Parser::clause_flush},
    {"jitter", kJitter, bit(Action::kReorder) | bit(Action::kDelay), &Parser::clause_jitter},
    {"queue", kQueue, bit(Action::kRate), &Parser::clause_queue},
    {"ecn", kEcn, bit(Action::kRate), &Parser::clause_ecn},
    {"kind", kKind, kEveryAction, &Parser::clause_kind},
    {"peer", kPeer, kEveryAction, &Parser::clause_peer},
    {"qpn", kQpn, kEveryAction, &Parser::clause_qpn},
    {"path", kPath, kEveryAction, &Parser::clause_path},
    {"plane", kPlane, kEveryAction, &Parser::clause_plane},
    {"source-port", kSourcePort, kEveryAction, &Parser::clause_source_port},
    {"last-packet", kLast, kEveryAction, &Parser::clause_last_packet},
    {"first-attempt", kFirst, kEveryAction, &Parser::clause_first_attempt},
    {"once", kOnce, kEveryAction, &Parser::clause_once},
    {"from", kWindow, kEveryAction, &Parser::clause_from},
    {"to", kWindow, kEveryAction, &Parser::clause_to},
}};

bool Parser::parse_spec_into(Spec& spec) {
  if (peek().kind == Token::Kind::kEnd) return true;
  if (peek().is("rx") || peek().is("tx")) {
    spec.direction = take().is("rx") ? Direction::kRx : Direction::kTx;
  }
  if (peek().is("none")) {
    take();
    return peek().kind == Token::Kind::kEnd || fail_here("the end after none");
  }
  do {
    if (spec.rules.size() == kMaxRules) {
      return fail_here("the end after " + std::to_string(kMaxRules) + " rules");
    }
    if (!parse_rule(spec.rules.emplace_back())) return false;
    if (peek().is_symbol(';')) take();
  } while (peek().kind != Token::Kind::kEnd);
  return true;
}

bool Parser::parse_rule(Rule& rule) {
  unsigned seen = 0;
  const size_t start = peek().offset;
  const Token action = take();
  if (action.is("drop")) {
    rule.action = Action::kDrop;
  } else if (action.is("blackhole") || action.is("black-hole")) {
    rule.action = Action::kDrop;
    seen |= 1u << kTrigger;
  } else if (action.is("duplicate")) {
    rule.action = Action::kDuplicate;
  } else if (action.is("corrupt")) {
    rule.action = Action::kCorrupt;
  } else if (action.is("mark")) {
    rule.action = Action::kMark;
  } else if (action.is("reorder")) {
    rule.action = Action::kReorder;
  } else if (action.is("delay")) {
    rule.action = Action::kDelay;
    if (!duration(rule.delay.base_ns)) return false;
  } else if (action.is("rate")) {
    rule.action = Action::kRate;
    if (!rate(rule.rate_bits_per_second)) return false;
  } else {
    return fail(start, kRuleExpected);
  }
  while (!at_end_of_rule()) {
    if (!parse_clause(rule, seen)) return false;
  }
  return check_rule(rule, seen);
}

bool Parser::parse_clause(Rule& rule, unsigned& seen) {
  const Token token = peek();
  const Clause* clause = nullptr;
  for (const Clause& candidate : kClauses) {
    if (token.is(candidate.word) && (candidate.actions & bit(rule.action))) clause = &candidate;
  }
  const bool bare_percentage =
      token.kind == Token::Kind::kNumber && (kTriggered & bit(rule.action)) != 0;
  if (clause == nullptr && !bare_percentage) return fail_here(clauses_of(rule.action));

  const ClauseId id = bare_percentage ? kTrigger : clause->id;
  if (seen & (1u << id)) {
    return fail_here(id == kTrigger  ? "only one of a percentage, all, burst, nth, every and first"
                     : id == kHow    ? "only one of distance and delay"
                     : id == kWindow ? "only one time window: from TIME to TIME"
                                     : std::string(clause->word) + " only once in a rule");
  }
  seen |= 1u << id;
  if (bare_percentage) {
    rule.trigger.kind = TriggerKind::kUniform;
    return percentage(rule.trigger.probability_ppb);
  }
  take();
  return (this->*clause->parse)(rule);
}

// Checks what only the whole rule shows.
bool Parser::check_rule(const Rule& rule, unsigned seen) {
  const auto has = [seen](ClauseId id) { return (seen & (1u << id)) != 0; };
  const bool counts = rule.trigger.kind == TriggerKind::kNth ||
                      rule.trigger.kind == TriggerKind::kEvery ||
                      rule.trigger.kind == TriggerKind::kFirst;
  if (has(kPerQp) && !counts)
    return fail_here("nth N, every N or first N, which per-qp counts for");
  const bool selected =
      has(kTrigger) || rule.selectors != Selectors{} || has(kKind) || has(kWindow);
  const bool needs_choice = rule.action != Action::kDelay && rule.action != Action::kRate;
  if (needs_choice && !selected) {
    return fail_here(
        "which packets: a percentage such as 1%, burst, nth, every, first, all, or a selector such "
        "as kind ack");
  }
  if (rule.marks_from_packets >= rule.queue_packets)
    return fail_here("ecn below the queue's " + std::to_string(rule.queue_packets) + " packets");
  if (rule.action != Action::kReorder) return true;
  if (!has(kHow)) return fail_here("distance N or delay TIME");
  if (has(kJitter) && rule.distance != 0) return fail_here("no jitter with distance");
  if (has(kFlush) && rule.distance == 0) return fail_here("flush only with distance");
  return true;
}

bool Parser::clause_burst(Rule& rule) {
  Trigger& trigger = rule.trigger;
  trigger.kind = TriggerKind::kBurst;
  if (!word("p") || !percentage(trigger.to_bad_ppb)) return false;
  if (!word("r") || !percentage(trigger.to_good_ppb)) return false;
  if (peek().is("bad")) {
    take();
    if (!percentage(trigger.hit_bad_ppb)) return false;
  }
  if (!peek().is("good")) return true;
  take();
  return percentage(trigger.hit_good_ppb);
}

bool Parser::clause_kind(Rule& rule) {
  rule.selectors.kinds = 0;
  while (true) {
    const KindName* kind = nullptr;
    for (const KindName& candidate : kKindNames) {
      if (peek().is(candidate.name)) kind = &candidate;
    }
    if (kind == nullptr) {
      std::string names;
      for (const KindName& each : kKindNames) {
        names += (names.empty() ? "" : ", ") + std::string(each.name);
      }
      return fail_here("a packet kind: " + names);
    }
    take();
    rule.selectors.kinds |= kind->mask;
    if (!peek().is_symbol(',')) return true;
    take();
  }
}

bool Parser::clause_peer(Rule& rule) {
  const Token token = peek();
  if (token.kind == Token::Kind::kAddress) rule.selectors.peer = parse_ipv4(token.text);
  if (!rule.selectors.peer) return fail_here("an IPv4 address such as 10.0.0.2");
  take();
  return true;
}

bool Parser::clause_qpn(Rule& rule) {
  uint32_t number = 0;
  if (!integer(number, 0, 0xffffff, "a QP number from 0 to 0xffffff")) return false;
  rule.selectors.qpn = Qpn{number};
  return true;
}

bool Parser::clause_path(Rule& rule) {
  uint32_t number = 0;
  if (!integer(number, 1, kMaxPaths, "the number of a path from 1 to 64")) return false;
  rule.selectors.path = number;
  return true;
}

bool Parser::clause_plane(Rule& rule) {
  uint32_t number = 0;
  if (!integer(number, 1, kMaxPlanes, "the number of a plane from 1 to 16")) return false;
  rule.selectors.plane = number;
  return true;
}

bool Parser::clause_source_port(Rule& rule) {
  uint32_t number = 0;
  if (!integer(number, 1, UINT16_MAX, "a UDP port from 1 to 65535")) return false;
  rule.selectors.source_port = static_cast<uint16_t>(number);
  return true;
}

bool Parser::clause_from(Rule& rule) {
  if (!duration(rule.selectors.from_ns)) return false;
  if (!peek().is("to")) return true;
  take();
  return clause_to(rule);
}

bool Parser::clause_to(Rule& rule) {
  const size_t offset = peek().offset;
  if (!duration(rule.selectors.to_ns)) return false;
  return rule.selectors.to_ns > rule.selectors.from_ns ||
         fail(offset, "a time later than the window's start");
}

bool Parser::clause_distance(Rule& rule) {
  return integer(rule.distance, 1, kMaxDistance, "a number of packets from 1 to 4096");
}

bool Parser::clause_jitter(Rule& rule) {
  if (!duration(rule.delay.jitter_ns)) return false;
  constexpr std::pair<std::string_view, Distribution> kNames[] = {
      {"uniform", Distribution::kUniform},
      {"normal", Distribution::kNormal},
      {"exponential", Distribution::kExponential}};
  for (const auto& [name, distribution] : kNames) {
    if (!peek().is(name)) continue;
    take();
    // Without jitter all distributions are the same; one representation is kept.
    if (rule.delay.jitter_ns != 0) rule.delay.distribution = distribution;
    break;
  }
  return true;
}

bool Parser::clause_queue(Rule& rule) {
  return integer(rule.queue_packets, 1, kMaxRateQueue, "a number of packets from 1 to 65536");
}

bool Parser::clause_ecn(Rule& rule) {
  return integer(rule.marks_from_packets, 1, kMaxRateQueue, "a number of packets from 1 to 65536");
}

bool Parser::word(std::string_view wanted) {
  if (!peek().is(wanted)) return fail_here(std::string(wanted) + " PERCENT");
  take();
  return true;
}

bool Parser::rate(uint64_t& bits_per_second) {
  const size_t offset = peek().offset;
  const auto value = quantity(kRateUnits);
  if (!value || *value < kMinRateBitsPerSecond || *value > kMaxRateBitsPerSecond) {
    return fail(offset, "a rate such as 10Gbit, from 1Kbit to 10Tbit");
  }
  bits_per_second = *value;
  return true;
}

std::string Parser::clauses_of(Action action) const {
  std::string text = (kTriggered & bit(action)) != 0 ? "a percentage, " : "";
  for (const Clause& clause : kClauses) {
    if (clause.actions & bit(action)) text += std::string(clause.word) + ", ";
  }
  return text + "; or the end";
}

}  // namespace

Expected<Spec, SpecError> parse_spec(std::string_view text) { return Parser(text).parse(); }

}  // namespace hostnic::impair
