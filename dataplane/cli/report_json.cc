// SPDX-License-Identifier: BSD-3-Clause
// What a report says, as the JSON that its page reads.
#include <algorithm>
#include <set>
#include <tuple>

#include "dataplane/cli/report_data.h"
#include "protocol/json_writer.h"

namespace hostnic::cli {

void ReportData::write_ends(JsonWriter& json) const {
  json.line().key("interfaces").begin_array();
  for (const Interface& interface : interfaces_) {
    json.begin_object()
        .member("name", interface.name)
        .member("description", interface.description)
        .member("seen", interface.seen)
        .member("not_kept", interface.not_kept)
        .member("counters", interface.counters)
        .end_object();
  }
  json.end_array().line().key("hosts").begin_array();
  for (const Host& host : hosts_) {
    json.begin_object().member("address", host.address).key("interfaces").begin_array();
    for (const std::string& name : host.interfaces) json.value(name);
    json.end_array().end_object();
  }
  json.end_array().line().key("flows").begin_array();
  for (const Flow& flow : flows_) {
    json.begin_object()
        .member("from", flow.from)
        .member("to", flow.to)
        .member("qpn", flow.qpn)
        .member("source_qpn", flow.source_qpn)
        .member("answers", flow.responses)
        .member("packets", flow.packets)
        .member("bytes", flow.bytes)
        .member("retransmitted", flow.again)
        .member("lost", flow.lost)
        .end_object();
  }
  json.end_array();
}

void ReportData::write_verbs(JsonWriter& json) const {
  json.line().key("verbs").begin_array();
  for (size_t i = 0; i < kVerbs; ++i) {
    const VerbCounts& verb = verbs_[i];
    if (verb.messages == 0 && verb.bytes == 0) continue;
    json.begin_object()
        .member("verb", name_of(static_cast<Verb>(i)))
        .member("messages", verb.messages)
        .member("bytes", verb.bytes)
        .member("measured", verb.latency.count())
        .member("p50_ns", verb.latency.at_permille(500))
        .member("p99_ns", verb.latency.at_permille(990))
        .member("max_ns", verb.latency.max_ns())
        .key("steps")
        .begin_array();
    for (size_t step = 0; step < TimeHistogram::kSteps; ++step) {
      if (verb.latency.in_step(step) == 0) continue;
      json.begin_array()
          .value(TimeHistogram::lower_ns(step))
          .value(verb.latency.in_step(step))
          .end_array();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

void ReportData::write_over_time(JsonWriter& json) const {
  json.line().key("over_time").begin_object().member("step_ns", bin_ns_);
  const size_t bins = std::min<size_t>((last_ns_ - first_ns_) / bin_ns_ + 1, kBins);
  const auto series = [&](const char* name, auto&& value) {
    json.key(name).begin_array();
    for (size_t i = 0; i < bins; ++i) json.value(value(bins_[i]));
    json.end_array();
  };
  series("good_bytes", [](const Bin& bin) { return bin.good_bytes; });
  series("lost", [](const Bin& bin) { return bin.lost; });
  series("retransmitted", [](const Bin& bin) { return bin.again; });
  json.end_object();
}

void ReportData::write_reasons(JsonWriter& json) const {
  json.line().key("causes").begin_array();
  for (const auto& [why, cause] : causes_) {
    json.begin_object()
        .member("cause", why)
        .member("count", cause.count)
        .member("total_ns", cause.total_ns)
        .member("max_ns", cause.max_ns)
        .end_object();
  }
  json.end_array().line().key("verdicts").begin_array();
  for (const auto& [kind, verdict] : verdicts_) {
    json.begin_object()
        .member("kind", kind)
        .member("count", verdict.first)
        .member("example", verdict.second)
        .end_object();
  }
  json.end_array();
}

// The ladder: numbers only, and what they stand for before them.
void ReportData::write_arrows(JsonWriter& json) const {
  std::vector<Arrow> arrows = eventful_;
  arrows.insert(arrows.end(), ordinary_.begin(), ordinary_.end());
  std::ranges::sort(arrows, [](const Arrow& a, const Arrow& b) {
    return std::tie(a.sent_ns, a.received_ns, a.from, a.psn) <
           std::tie(b.sent_ns, b.received_ns, b.from, b.psn);
  });
  json.line().key("opcodes").begin_object();
  std::set<uint8_t> opcodes;
  for (const Arrow& arrow : arrows) opcodes.insert(arrow.opcode);
  for (const uint8_t opcode : opcodes)
    json.member(std::to_string(opcode), wire::to_string(static_cast<wire::Opcode>(opcode)));
  json.end_object().line().key("texts").begin_array();
  for (const std::string& text : texts_) json.value(text);
  json.end_array().line().key("arrows").begin_array();
  for (const Arrow& arrow : arrows) {
    const auto since = [&](TimeNs ns) { return ns - std::min(ns, first_ns_); };
    json.begin_array()
        .value(arrow.from)
        .value(arrow.to)
        .value(arrow.opcode)
        .value(arrow.psn)
        .value(arrow.qpn)
        .value(arrow.source_qpn)
        .value(arrow.bytes)
        .value(since(arrow.sent_ns))
        .value(arrow.received_ns == 0 ? 0 : since(arrow.received_ns))
        .value(arrow.flags)
        .value(arrow.text)
        .end_array();
  }
  json.end_array();
}

std::string ReportData::to_json(const Facts& facts) const {
  JsonWriter json;
  json.begin_object()
      .member("title", facts.title)
      .member("made_by", facts.made_by)
      .member("file_is_cut", facts.is_cut)
      .member("start_ns", first_ns_)
      .member("duration_ns", last_ns_ - first_ns_)
      .member("records", packets_)
      .member("unreadable", unreadable_)
      .member("lost", lost_)
      .member("retransmitted", again_)
      .member("arrows_of", eventful_.size() + eventful_left_out_ + ordinary_seen_)
      .member("every", stride_)
      .member("eventful_left_out", eventful_left_out_);
  write_ends(json);
  write_verbs(json);
  write_over_time(json);
  write_reasons(json);
  write_arrows(json);
  // These come from hostnicd as JSON.
  if (!facts.programs.empty()) json.line().key("programs").raw(facts.programs);
  if (!facts.errors.empty()) json.line().key("errors").raw(facts.errors);
  if (!facts.times.empty()) json.line().key("times").raw(facts.times);
  json.end_object().line();
  return json.take();
}

}  // namespace hostnic::cli
