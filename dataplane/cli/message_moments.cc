// SPDX-License-Identifier: BSD-3-Clause
// From events of a trace, as hostnicd's trace points write them, to moments.
#include <optional>
#include <string_view>

#include "dataplane/cli/message_report.h"

namespace hostnic::cli {
namespace {

using Kind = TracedMoment::Kind;

std::optional<Kind> kind_of(std::string_view name) {
  struct Known {
    std::string_view name;
    Kind kind;
  };
  static constexpr Known kKnown[] = {
      {"hostnic.posted", Kind::kPosted},     {"hostnic.sent", Kind::kSent},
      {"hostnic.arrived", Kind::kArrived},   {"hostnic.placed", Kind::kPlaced},
      {"hostnic.answered", Kind::kAnswered}, {"hostnic.acknowledged", Kind::kAcknowledged},
      {"hostnic.reported", Kind::kReported}, {"hostnic.polled", Kind::kPolled}};
  for (const Known& known : kKnown)
    if (known.name == name) return known.kind;
  return std::nullopt;
}

// The fields of an event; those that it has not got are 0.
class Fields {
 public:
  explicit Fields(const CtfEvent& event) : event_(event) {}
  uint64_t word(std::string_view name) const { return event_.number(name).value_or(0); }
  uint32_t get(std::string_view name) const { return static_cast<uint32_t>(word(name)); }

 private:
  const CtfEvent& event_;
};

TracedMoment moment_of(Kind kind, const CtfEvent& event) {
  const Fields fields(event);
  TracedMoment moment{.kind = kind,
                      .at = fields.word("at"),
                      .nic = fields.get("nic"),
                      .qpn = fields.get("qpn"),
                      .until = fields.get("until"),
                      .answered = fields.get("answered")};
  if (kind == Kind::kPlaced && fields.get("alone") != 0) moment.kind = Kind::kPlacedAlone;
  if (kind != Kind::kPosted && kind != Kind::kPolled) return moment;
  moment.client = fields.get("client");
  moment.sequence = fields.get("sequence");
  moment.number = fields.get("number");
  moment.wr_id = fields.word("wr_id");
  moment.status = fields.get("status");
  moment.first_psn = fields.get("first_psn");
  moment.psns = fields.get("psns");
  moment.first_answer = fields.get("first_answer");
  moment.answers = fields.get("answers");
  moment.length_bytes = fields.get("length_bytes");
  moment.op = static_cast<SendOp>(fields.get("op"));
  moment.type = static_cast<QpType>(fields.get("type"));
  moment.signalled = fields.get("signalled") != 0;
  return moment;
}

}  // namespace

Expected<void, std::string> add_stream(const CtfMetadata& metadata, uint32_t daemon,
                                       std::span<const std::byte> stream, MessageTimes& times) {
  CtfStream events(metadata, stream);
  for (;;) {
    const auto event = events.next();
    if (!event) return Unexpected(event.error());
    if (!*event) return {};
    const auto kind = kind_of((*event)->kind->name);
    if (!kind) continue;
    TracedMoment moment = moment_of(*kind, **event);
    // Each hostnicd numbers its clients.
    constexpr int kDaemonShift = 24;
    moment.client ^= daemon << kDaemonShift;
    times.add(moment);
  }
}

}  // namespace hostnic::cli
