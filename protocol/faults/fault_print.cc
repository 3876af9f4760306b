// SPDX-License-Identifier: BSD-3-Clause
// FaultRule rules as text.
#include "protocol/faults/fault_spec.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::faults {
namespace {

using impair::TriggerKind;

std::string time(uint64_t ns) { return impair::with_unit(ns, impair::kTimeUnits); }

std::string trigger_of(const FaultRule& fault) {
  switch (fault.trigger.kind) {
    case TriggerKind::kUniform:
      return " " + impair::format_decimal(fault.trigger.probability_ppb, impair::kPercentDecimals) +
             "%";
    case TriggerKind::kNth:
      return " nth " + std::to_string(fault.trigger.count);
    case TriggerKind::kEvery:
      return " every " + std::to_string(fault.trigger.count);
    case TriggerKind::kFirst:
      return " first " + std::to_string(fault.trigger.count);
    default:
      return "";
  }
}

std::string subject_of(const FaultRule& fault) {
  switch (fault.subject) {
    case Subject::kCall:
      return std::string(fault.call->name);
    case Subject::kPost:
      return "post";
    case Subject::kCompletion:
      return "wc";
    case Subject::kEvent:
      return "event " + std::string(name_of(event_names(), fault.event));
    case Subject::kCmEvent:
      return "cm " + std::string(name_of(cm_event_names(), fault.event));
  }
  return "";
}

std::string choice_of(const FaultRule& fault) {
  std::string text;
  if (fault.qpn) text += " qp " + std::to_string(*fault.qpn);
  if (fault.qp_ordinal) text += " qp #" + std::to_string(*fault.qp_ordinal);
  if (fault.cq_ordinal != 0) text += " cq #" + std::to_string(fault.cq_ordinal);
  if (fault.srq_ordinal != 0) text += " srq #" + std::to_string(fault.srq_ordinal);
  if (!fault.device.empty()) text += " device " + fault.device;
  if (!fault.program.empty()) text += " program " + fault.program;
  if (fault.rank) text += " rank " + std::to_string(*fault.rank);
  if (fault.has_over) text += " over " + std::to_string(fault.over);
  if (fault.under != UINT64_MAX) text += " under " + std::to_string(fault.under);
  if (fault.state) text += " to " + std::string(name_of(state_names(), *fault.state));
  if (fault.opcode) text += " opcode " + std::string(name_of(completion_names(), *fault.opcode));
  if (fault.after_ns != 0) text += " after " + time(fault.after_ns);
  if (fault.until_ns != UINT64_MAX) text += " until " + time(fault.until_ns);
  return text;
}

std::string error_text(int error) {
  const std::string_view name = name_of(errno_names(), error);
  return name.empty() ? std::to_string(error) : std::string(name);
}

}  // namespace

std::string to_string(const FaultRule& fault) {
  std::string text = "fault " + subject_of(fault) + trigger_of(fault) + choice_of(fault);
  if (!fault.behind_device.empty()) text += " behind " + fault.behind_device;
  if (fault.behind_cq != 0) text += " behind #" + std::to_string(fault.behind_cq);
  if (fault.delay_ns != 0) text += " delay " + time(fault.delay_ns);
  if (fault.error != 0) text += " errno " + error_text(fault.error);
  if (fault.status != 0) text += " status " + std::string(name_of(status_names(), fault.status));
  if (fault.vendor != 0) text += " vendor " + std::to_string(fault.vendor);
  if (fault.becomes) text += " as " + std::string(name_of(cm_event_names(), *fault.becomes));
  if (fault.reason != 0) text += " reason " + std::to_string(fault.reason);
  if (fault.for_ns != 0) text += " for " + time(fault.for_ns);
  return text;
}

std::string fault_tables() {
  std::string text = "| call | fails with | chosen by |\n|---|---|---|\n";
  constexpr std::string_view kFailures[] = {"its errno", "-1 and errno", "NULL and errno", "never"};
  for (const FaultCall& call : fault_calls()) {
    std::string choice;
    if ((call.properties & kHasDevice) != 0) choice += "device ";
    if ((call.properties & kHasQp) != 0) choice += "qp ";
    if ((call.properties & kHasSize) != 0) choice += "over under ";
    if ((call.properties & kHasState) != 0) choice += "to ";
    if (!choice.empty()) choice.pop_back();
    text += "| `" + std::string(call.name) + "` | " +
            std::string(kFailures[static_cast<size_t>(call.failure)]) + " | " + choice + " |\n";
  }
  const auto list = [&](const char* word, std::span<const FaultName> names) {
    constexpr size_t kColumns = 100;
    std::string line = std::string(word) + ":";
    text += "\n";
    for (const FaultName& name : names) {
      line += (line.empty() ? "" : line.ends_with(':') ? " " : ", ") + std::string(name.name);
      if (line.size() < kColumns) continue;
      text += line + (&name == &names.back() ? "" : ",") + "\n";
      line.clear();
    }
    text += line + (line.empty() ? "" : "\n");
  };
  list("STATE", state_names());
  list("STATUS", status_names());
  list("OPCODE", completion_names());
  list("EVENT", event_names());
  list("CM-EVENT", cm_event_names());
  list("errno", errno_names());
  return text;
}

std::string_view fault_help() {
  return "RULE: fault CALL|post|wc|event EVENT|cm EVENT  [nth N|every N|first N|P%]\n"
         "      [qp N|qp #N] [device NAME] [program NAME] [rank N] [over SIZE] [under SIZE]\n"
         "      [cq #N] [srq #N] [to STATE] [opcode OPCODE] [after TIME] [until TIME]\n"
         "      errno NAME | delay TIME | behind DEVICE|#N | status STATUS [vendor N] |\n"
         "      as EVENT [reason N] | for TIME\n"
         "such as 'fault create_cq nth 3 errno ENOMEM', 'fault reg_mr over 1G errno ENOMEM',\n"
         "'fault modify_qp to RTR delay 2s', 'fault wc nth 5 status RETRY_EXC_ERR vendor 0x81',\n"
         "'fault event PORT_ERR after 1s for 500ms', 'fault cm ESTABLISHED as REJECTED reason "
         "28'\n";
}

}  // namespace hostnic::faults
