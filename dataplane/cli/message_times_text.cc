// SPDX-License-Identifier: BSD-3-Clause
// Times of messages for people, and as JSON.
#include <fmt/format.h>

#include "dataplane/cli/message_times.h"
#include "protocol/duration_text.h"
#include "protocol/hostif/send_op_text.h"
#include "protocol/json_writer.h"

namespace hostnic::cli {
namespace {

std::string address_text(uint32_t ip) {
  return fmt::format("{}.{}.{}.{}", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

std::string plural(uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string MessageTimes::to_text() const {
  std::string text = fmt::format(
      "{} of {}: {} complete, {} of them in order; {} failed\n"
      "{}, {} missing because there was no room for them\n",
      plural(counts_.messages, "message"), plural(counts_.queue_pairs, "queue pair"),
      counts_.complete, counts_.in_order, counts_.failed, plural(counts_.events, "event"),
      counts_.missed);
  if (counts_.cut != 0)
    text +=
        fmt::format("{} not done when their connection ended\n", plural(counts_.cut, "message"));
  for (size_t step = 0; step < kSteps; ++step)
    if (counts_.lacking[step] != 0)
      text += fmt::format("{} never {} in this trace\n", plural(counts_.lacking[step], "message"),
                          name_of(static_cast<Step>(step)));
  if (counts_.unplaced != 0)
    text += fmt::format("{} by UC or UD never placed at a peer that is traced\n",
                        plural(counts_.unplaced, "message"));
  if (segments_.empty()) return text;
  text += fmt::format("\n{:<26}{:>9}{:>13}{:>13}{:>13}\n", "", "messages", "median", "p99", "max");
  for (const Segment& segment : segments_)
    text += fmt::format("{:<26}{:>9}{:>13}{:>13}{:>13}\n",
                        fmt::format("{} -> {}", name_of(segment.from), name_of(segment.to)),
                        segment.messages, duration_text(segment.median_ns),
                        duration_text(segment.p99_ns), duration_text(segment.max_ns));
  text += "\nThe slowest, from their posts:\n";
  for (const size_t i : slowest_) {
    const TracedMessage& message = messages_[i];
    text += fmt::format("  {} of {}, QP {:#x} of {}, PSN {}, wr_id {:#x}:\n   ",
                        text_of(message.post.op), plural(message.post.length_bytes, "byte"),
                        message.post.qpn, address_text(message.post.nic), message.post.first_psn,
                        message.post.wr_id);
    const uint64_t begin = *message.at_step(Step::kPosted);
    for (size_t step = 1; step < kSteps; ++step)
      if (const auto at = message.at[step]; at && *at >= begin)
        text +=
            fmt::format(" {} {}", name_of(static_cast<Step>(step)), duration_text(ns(*at - begin)));
    text += '\n';
  }
  return text;
}

std::string MessageTimes::to_json() const {
  JsonWriter json;
  json.begin_object()
      .member("messages", counts_.messages)
      .member("queue_pairs", counts_.queue_pairs)
      .member("complete", counts_.complete)
      .member("in_order", counts_.in_order)
      .member("failed", counts_.failed)
      .member("unplaced", counts_.unplaced)
      .member("events", counts_.events)
      .member("missed", counts_.missed)
      .member("cut", counts_.cut);
  json.key("lacking").begin_object();
  for (size_t step = 1; step < kSteps; ++step)
    json.member(name_of(static_cast<Step>(step)), counts_.lacking[step]);
  json.end_object();
  json.key("segments").begin_array();
  for (const Segment& segment : segments_)
    json.begin_object()
        .member("from", name_of(segment.from))
        .member("to", name_of(segment.to))
        .member("messages", segment.messages)
        .member("median_ns", segment.median_ns)
        .member("p99_ns", segment.p99_ns)
        .member("max_ns", segment.max_ns)
        .end_object();
  json.end_array().key("slowest").begin_array();
  for (const size_t i : slowest_) {
    const TracedMessage& message = messages_[i];
    json.begin_object()
        .member("operation", text_of(message.post.op))
        .member("bytes", message.post.length_bytes)
        .member("address", address_text(message.post.nic))
        .member("qpn", message.post.qpn)
        .member("first_psn", message.post.first_psn)
        .member("wr_id", message.post.wr_id)
        .key("after_post_ns")
        .begin_object();
    const uint64_t begin = *message.at_step(Step::kPosted);
    for (size_t step = 0; step < kSteps; ++step)
      if (const auto at = message.at[step]; at && *at >= begin)
        json.member(name_of(static_cast<Step>(step)), ns(*at - begin));
    json.end_object().end_object();
  }
  return json.end_array().end_object().line().take();
}

}  // namespace hostnic::cli
