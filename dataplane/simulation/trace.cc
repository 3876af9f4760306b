// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/trace.h"

#include <fmt/format.h>

#include <cstdlib>

namespace hostnic::sim {

Trace::Trace(bool on)
    : print_all_(std::getenv("HOSTNIC_SIM_TRACE") != nullptr), on_(on || print_all_) {}

void Trace::packet(TimeNs now_ns, const rte_mbuf* packet, bool has_icrc) {
  if (!on_) return;
  Event event{.at_ns = now_ns, .is_packet = true};
  const std::span<const std::byte> first(rte_pktmbuf_mtod(packet, const std::byte*),
                                         packet->data_len);
  const wire::ParseError error = wire::parse(first, packet->pkt_len, has_icrc, event.headers);
  if (error != wire::ParseError::kNone) {
    event.is_packet = false;
    event.note = fmt::format("{} bytes: {}", packet->pkt_len, wire::to_string(error));
  }
  event.headers.unread_headers = nullptr;  // the packet will be gone
  event.headers.sack.word_count = 0;
  add(std::move(event));
}

void Trace::note(TimeNs now_ns, std::string text) {
  if (on_) add({.at_ns = now_ns, .is_packet = false, .headers = {}, .note = std::move(text)});
}

void Trace::add(Event event) {
  if (print_all_) fmt::print("{}\n", line(event));
  if (events_.size() < kKept) {
    events_.push_back(std::move(event));
  } else {
    events_[next_] = std::move(event);
    next_ = (next_ + 1) % kKept;
  }
}

std::string Trace::line(const Event& event) {
  return fmt::format("{:>12.3f} us  {}", static_cast<double>(event.at_ns) / 1000.0,
                     event.is_packet ? wire::to_string(event.headers) : event.note);
}

std::string Trace::text() const {
  std::string out;
  for (size_t i = 0; i < events_.size(); ++i)
    out += line(events_[(next_ + i) % events_.size()]) + "\n";
  return out;
}

}  // namespace hostnic::sim
