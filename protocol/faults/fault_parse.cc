// SPDX-License-Identifier: BSD-3-Clause
// The parser of fault rules. The grammar is in fault_spec.h.
#include <array>
#include <utility>

#include "protocol/faults/fault_spec.h"
#include "protocol/impair/spec_reader.h"

namespace hostnic::faults {
namespace {

using impair::SpecError;
using impair::Token;
using impair::TriggerKind;
using impair::Unit;

constexpr unsigned bit(Subject subject) { return 1u << static_cast<unsigned>(subject); }
constexpr unsigned kCalls = bit(Subject::kCall), kPosts = bit(Subject::kPost),
                   kCompletions = bit(Subject::kCompletion), kEvents = bit(Subject::kEvent),
                   kCmEvents = bit(Subject::kCmEvent),
                   kAll = kCalls | kPosts | kCompletions | kEvents | kCmEvents;

std::string list_of(std::span<const FaultName> names) {
  std::string text;
  for (const FaultName& each : names) text += (text.empty() ? "" : ", ") + std::string(each.name);
  return text;
}

class Parser : private impair::SpecReader {
 public:
  explicit Parser(std::string_view text) : SpecReader(text) {}

  Expected<std::vector<FaultRule>, SpecError> parse() {
    std::vector<FaultRule> faults;
    if (!parse_into(faults)) return Unexpected(take_error());
    return faults;
  }

 private:
  enum ClauseId {
    kTrigger,
    kQp,
    kCq,
    kSrq,
    kDevice,
    kProgram,
    kRank,
    kOver,
    kUnder,
    kTo,
    kOpcode,
    kAfter,
    kUntil,
    kErrno,
    kDelay,
    kBehind,
    kStatus,
    kVendor,
    kAs,
    kReason,
    kFor
  };
  struct Clause {
    std::string_view word;
    ClauseId id;
    unsigned subjects;   // whose rules may have it
    uint8_t properties;  // that a call must have for it
    bool (Parser::*parse)(FaultRule&);
  };
  static const std::array<Clause, 24> kClauses;

  bool parse_into(std::vector<FaultRule>& faults);
  bool parse_fault(FaultRule& fault, const std::vector<FaultRule>& before);
  bool parse_subject(FaultRule& fault);
  bool parse_clause(FaultRule& fault, unsigned& seen);
  bool check(const FaultRule& fault, unsigned seen, size_t start,
             const std::vector<FaultRule>& before);
  static bool may_have(const FaultRule& fault, const Clause& clause);
  static std::string clauses_of(const FaultRule& fault);

  bool clause_all(FaultRule&) { return true; }
  bool clause_nth(FaultRule& fault) { return counted(fault, TriggerKind::kNth); }
  bool clause_every(FaultRule& fault) { return counted(fault, TriggerKind::kEvery); }
  bool clause_first(FaultRule& fault) { return counted(fault, TriggerKind::kFirst); }
  bool counted(FaultRule& fault, TriggerKind kind) {
    fault.trigger.kind = kind;
    return count(fault.trigger.count);
  }
  bool clause_qp(FaultRule& fault);
  bool clause_cq(FaultRule& fault) { return ordinal(fault.cq_ordinal); }
  bool clause_srq(FaultRule& fault) { return ordinal(fault.srq_ordinal); }
  bool clause_behind(FaultRule& fault);
  bool clause_device(FaultRule& fault) { return name(fault.device); }
  bool clause_program(FaultRule& fault) { return name(fault.program); }
  bool clause_rank(FaultRule& fault) { return number(fault.rank, 0, 1u << 24, "a rank such as 0"); }
  bool clause_over(FaultRule& fault) { return fault.has_over = size(fault.over); }
  bool clause_under(FaultRule& fault) { return size(fault.under); }
  bool clause_to(FaultRule& fault) { return named(fault.state, state_names(), "a state"); }
  bool clause_opcode(FaultRule& fault) {
    return named(fault.opcode, completion_names(), "an opcode");
  }
  bool clause_after(FaultRule& fault) { return duration(fault.after_ns); }
  bool clause_until(FaultRule& fault) { return duration(fault.until_ns); }
  bool clause_errno(FaultRule& fault);
  bool clause_delay(FaultRule& fault) {
    const size_t offset = peek().offset;
    if (!duration(fault.delay_ns)) return false;
    return fault.delay_ns != 0 || fail(offset, "a time of more than 0: it never fires");
  }
  bool clause_status(FaultRule& fault) {
    std::optional<int> status;
    const bool good = named(status, status_names(), "a status but SUCCESS");
    fault.status = status.value_or(0);
    return good;
  }
  bool clause_vendor(FaultRule& fault) {
    return integer(fault.vendor, 0, 0xffffffff, "a vendor error such as 0x81");
  }
  bool clause_as(FaultRule& fault) {
    return named(fault.becomes, cm_event_names(), "an event of librdmacm");
  }
  bool clause_reason(FaultRule& fault);
  bool clause_for(FaultRule& fault) { return duration(fault.for_ns); }

  bool name(std::string& value);
  bool ordinal(uint32_t& value);
  bool size(uint64_t& value);
  bool named(std::optional<int>& value, std::span<const FaultName> names, const char* what);
  bool number(std::optional<uint32_t>& value, uint64_t least, uint64_t most, const char* expected) {
    uint32_t read = 0;
    if (!integer(read, least, most, expected)) return false;
    value = read;
    return true;
  }
};

const std::array<Parser::Clause, 24> Parser::kClauses{{
    {"all", kTrigger, kAll, 0, &Parser::clause_all},
    {"nth", kTrigger, kAll, 0, &Parser::clause_nth},
    {"every", kTrigger, kAll, 0, &Parser::clause_every},
    {"first", kTrigger, kAll, 0, &Parser::clause_first},
    {"qp", kQp, kCalls | kPosts | kCompletions | kEvents, kHasQp, &Parser::clause_qp},
    {"cq", kCq, kCompletions | kEvents, 0, &Parser::clause_cq},
    {"srq", kSrq, kEvents, 0, &Parser::clause_srq},
    {"device", kDevice, kCalls | kPosts | kCompletions | kEvents, kHasDevice,
     &Parser::clause_device},
    {"program", kProgram, kAll, 0, &Parser::clause_program},
    {"rank", kRank, kAll, 0, &Parser::clause_rank},
    {"over", kOver, kCalls | kPosts | kCompletions, kHasSize, &Parser::clause_over},
    {"under", kUnder, kCalls | kPosts | kCompletions, kHasSize, &Parser::clause_under},
    {"to", kTo, kCalls, kHasState, &Parser::clause_to},
    {"opcode", kOpcode, kPosts | kCompletions, 0, &Parser::clause_opcode},
    {"after", kAfter, kAll, 0, &Parser::clause_after},
    {"until", kUntil, kAll, 0, &Parser::clause_until},
    {"errno", kErrno, kCalls, 0, &Parser::clause_errno},
    {"delay", kDelay, kAll, 0, &Parser::clause_delay},
    {"behind", kBehind, kCompletions, 0, &Parser::clause_behind},
    {"status", kStatus, kCompletions, 0, &Parser::clause_status},
    {"vendor", kVendor, kCompletions, 0, &Parser::clause_vendor},
    {"as", kAs, kCmEvents, 0, &Parser::clause_as},
    {"reason", kReason, kCmEvents, 0, &Parser::clause_reason},
    {"for", kFor, kEvents, 0, &Parser::clause_for},
}};

bool Parser::parse_into(std::vector<FaultRule>& faults) {
  if (at_end()) return true;
  if (peek().is("none")) {
    take();
    return at_end() || fail_here("the end after none");
  }
  do {
    if (faults.size() == kMaxFaults)
      return fail_here("the end after " + std::to_string(kMaxFaults) + " rules");
    FaultRule fault;
    if (!parse_fault(fault, faults)) return false;
    faults.push_back(std::move(fault));
    if (peek().is_symbol(';')) take();
  } while (!at_end());
  return true;
}

bool Parser::parse_fault(FaultRule& fault, const std::vector<FaultRule>& before) {
  const size_t start = peek().offset;
  if (peek().is("fault")) take();
  if (!parse_subject(fault)) return false;
  unsigned seen = 0;
  while (!at_end_of_rule())
    if (!parse_clause(fault, seen)) return false;
  return check(fault, seen, start, before);
}

bool Parser::parse_subject(FaultRule& fault) {
  const Token token = peek();
  std::optional<int> event;
  if (token.is("wc") || token.is("post")) {
    take();
    fault.subject = token.is("wc") ? Subject::kCompletion : Subject::kPost;
    return true;
  }
  if (token.is("event") || token.is("cm")) {
    take();
    const bool of_cm = token.is("cm");
    fault.subject = of_cm ? Subject::kCmEvent : Subject::kEvent;
    if (!named(event, of_cm ? cm_event_names() : event_names(), "an event")) return false;
    fault.event = *event;
    return true;
  }
  if (token.kind == Token::Kind::kWord) fault.call = find_call(token.text);
  if (fault.call == nullptr)
    return fail_here(
        "a call without ibv_ (create_cq, reg_mr, modify_qp, post_send, rdma_connect, ...; "
        "docs/faults.md has all), post, wc, event EVENT or cm EVENT");
  take();
  return true;
}

bool Parser::may_have(const FaultRule& fault, const Clause& clause) {
  if ((clause.subjects & bit(fault.subject)) == 0) return false;
  if (fault.subject != Subject::kCall) {
    if (fault.subject == Subject::kEvent) {
      if (clause.id == kQp) return is_of_qp(fault.event);
      if (clause.id == kCq) return is_of_cq(fault.event);
      if (clause.id == kSrq) return is_of_srq(fault.event);
    }
    return clause.id != kFor || fault.event == value_of(event_names(), "PORT_ERR");
  }
  if (clause.id == kErrno) return fault.call->failure != Failure::kNone;
  return (fault.call->properties & clause.properties) == clause.properties;
}

std::string Parser::clauses_of(const FaultRule& fault) {
  std::string text = "a percentage, ";
  for (const Clause& clause : kClauses)
    if (may_have(fault, clause)) text += std::string(clause.word) + ", ";
  return text + "; or the end";
}

bool Parser::parse_clause(FaultRule& fault, unsigned& seen) {
  const Token token = peek();
  const Clause* clause = nullptr;
  for (const Clause& candidate : kClauses)
    if (token.is(candidate.word) && may_have(fault, candidate)) clause = &candidate;
  const bool bare_percentage = token.kind == Token::Kind::kNumber;
  if (clause == nullptr && !bare_percentage) return fail_here(clauses_of(fault));
  const ClauseId id = bare_percentage ? kTrigger : clause->id;
  if ((seen & (1u << id)) != 0)
    return fail_here(id == kTrigger ? "only one of a percentage, all, nth, every and first"
                                    : std::string(clause->word) + " only once in a rule");
  seen |= 1u << id;
  if (!bare_percentage) {
    take();
    return (this->*clause->parse)(fault);
  }
  fault.trigger.kind = TriggerKind::kUniform;
  if (!percentage(fault.trigger.probability_ppb)) return false;
  return fault.trigger.probability_ppb != 0 || fail(token.offset, "more than 0%: it never fires");
}

// Checks what only the whole rule shows.
bool Parser::check(const FaultRule& fault, unsigned seen, size_t start,
                   const std::vector<FaultRule>& before) {
  const auto has = [seen](ClauseId id) { return (seen & (1u << id)) != 0; };
  if (fault.under <= fault.over) return fail_here("under more than over: it never fires");
  if (fault.until_ns <= fault.after_ns) return fail_here("until later than after: it never fires");
  switch (fault.subject) {
    case Subject::kCall:
      if (!has(kErrno) && !has(kDelay))
        return fail_here(fault.call->failure == Failure::kNone
                             ? "delay TIME: this call cannot fail"
                             : "what happens: errno NAME or delay TIME");
      break;
    case Subject::kPost:
      if (!has(kDelay)) return fail_here("what happens: delay TIME");
      if (fault.opcode && is_of_receive(*fault.opcode))
        return fail(start, "an opcode that send queues have: receives are not late");
      break;
    case Subject::kCompletion:
      if (!has(kStatus) && !has(kDelay) && !has(kBehind))
        return fail_here(
            "what happens: status STATUS, such as RETRY_EXC_ERR, delay TIME, or behind DEVICE");
      if (has(kVendor) && !has(kStatus))
        return fail_here("status STATUS, whose vendor error this is");
      if (fault.behind_cq != 0 && fault.behind_cq == fault.cq_ordinal)
        return fail(start, "another queue behind which to wait than the own");
      break;
    case Subject::kCmEvent:
      if (!has(kAs) && !has(kDelay)) return fail_here("what happens: as EVENT or delay TIME");
      if (has(kReason) && !has(kAs)) return fail_here("as EVENT, whose reason this is");
      break;
    case Subject::kEvent:
      if (!has(kDelay) && (has(kTrigger) || has(kUntil)))
        return fail_here("delay TIME: an event that is made comes once, at its time");
      if (has(kDelay) && has(kFor))
        return fail(start, "for of an event that is made, or delay of the device's own");
      break;
  }
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i].subject == fault.subject && before[i].call == fault.call &&
        before[i].event == fault.event && before[i].takes_all())
      return fail(start, "a rule that can fire: rule " + std::to_string(i + 1) +
                             " takes all that this one could");
  return true;
}

bool Parser::clause_qp(FaultRule& fault) {
  if (!peek().is_symbol('#'))
    return number(fault.qpn, 0, 0xffffff, "a QP number, or # and which one of the process");
  take();
  return number(fault.qp_ordinal, 1, 1u << 24, "a count from 1, such as #1");
}

bool Parser::ordinal(uint32_t& value) {
  constexpr const char* kExpected = "# and which one of the process, such as #1";
  if (!peek().is_symbol('#')) return fail_here(kExpected);
  take();
  return integer(value, 1, 1u << 24, kExpected);
}

bool Parser::clause_behind(FaultRule& fault) {
  if (!peek().is_symbol('#')) return name(fault.behind_device);
  take();
  return integer(fault.behind_cq, 1, 1u << 24, "a queue of the process, such as #1");
}

bool Parser::clause_errno(FaultRule& fault) {
  constexpr const char* kExpected = "an error such as ENOMEM, or its number from 1 to 4095";
  if (peek().kind != Token::Kind::kWord) return integer(fault.error, 1, 4095, kExpected);
  const auto value = value_of(errno_names(), peek().text);
  if (!value) return fail_here(kExpected);
  fault.error = *value;
  take();
  return true;
}

bool Parser::clause_reason(FaultRule& fault) {
  const bool negative = peek().is_symbol('-');
  if (negative) take();
  if (!integer(fault.reason, 0, 65535, "a number such as 28 or -110")) return false;
  if (negative) fault.reason = -fault.reason;
  return true;
}

bool Parser::name(std::string& value) {
  value = take_name();
  return (!value.empty() && value.size() <= kMaxNameBytes) ||
         fail_here("a name of at most " + std::to_string(kMaxNameBytes) + " letters");
}

bool Parser::size(uint64_t& value) {
  constexpr const char* kExpected = "a size such as 4096, 64K, 8M or 1G";
  constexpr std::pair<std::string_view, unsigned> kUnits[] = {{"K", 10}, {"M", 20}, {"G", 30}};
  constexpr uint64_t kLargest = uint64_t{1} << 53;
  const size_t offset = peek().offset;
  if (!integer(value, 0, kLargest, kExpected)) return false;
  for (const auto& [unit, shift] : kUnits) {
    if (!peek().is(unit)) continue;
    take();
    if (value > kLargest >> shift) return fail(offset, kExpected);
    value <<= shift;
    break;
  }
  return true;
}

bool Parser::named(std::optional<int>& value, std::span<const FaultName> names, const char* what) {
  value = peek().kind == Token::Kind::kWord ? value_of(names, peek().text) : std::nullopt;
  if (!value) return fail_here(std::string(what) + ": " + list_of(names));
  take();
  return true;
}

}  // namespace

bool FaultRule::takes_all() const {
  FaultRule plain;
  plain.subject = subject;
  plain.call = call;
  plain.event = event;
  plain.error = error;
  plain.delay_ns = delay_ns;
  plain.status = status;
  plain.vendor = vendor;
  plain.becomes = becomes;
  plain.reason = reason;
  return subject != Subject::kEvent && (error != 0 || status != 0 || becomes) && *this == plain;
}

Expected<std::vector<FaultRule>, SpecError> parse_faults(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace hostnic::faults
