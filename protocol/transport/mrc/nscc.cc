// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/transport/mrc/nscc.h"

namespace hostnic::mrc {
namespace {

// Eighths of an MTU by which the window grows in a round trip: at most, where there is no queue,
// and where the queue is at its target.
constexpr uint64_t kMostPerRoundTrip = 32, kFairPerRoundTrip = 8;
// All senders grow alike for so many round trips after a decrease.
constexpr uint64_t kFairRoundTrips = 16;
constexpr uint64_t kDelayShare = 8;  // one delay's share of an average
// One packet's share of what is marked, and the part from which marks are all paths' business.
constexpr uint32_t kMarkShare = 8, kWhole = 65536, kCommonMarks = kWhole / 8 * 5;
// The part from which a queue is full whatever the delay says: the shortest round trip may have
// been measured behind that queue.
constexpr uint32_t kLastingMarks = kWhole / 4 * 3;
// Losses that are no errors: so many packets in a round trip, and so many of all.
constexpr uint64_t kLeastLosses = 8, kLossShare = 8;

}  // namespace

void Nscc::reset(const Settings& settings) {
  *this = Nscc();
  settings_ = settings;
  settings_.most_bytes = std::max<uint64_t>(settings.most_bytes, settings.mtu_bytes);
  window_bytes_ = settings_.most_bytes;
}

uint64_t Nscc::target_ns() const {
  const uint64_t of_path = std::max(shortest_ns() / 4 * 3, settings_.least_target_ns);
  // A mark at a queue's threshold is no surprise: it is to come at the target, and not before.
  const uint64_t of_marks =
      marked_delay_ns_ == UINT64_MAX ? UINT64_MAX : marked_delay_ns_ - marked_delay_ns_ / 8;
  return std::max<uint64_t>(std::min(of_path, of_marks), 1);
}

Nscc::Case Nscc::on_sack(uint64_t newly_bytes, uint64_t rtt_ns, bool is_marked, TimeNs now_ns) {
  shortest_ns_ = std::min(shortest_ns_, rtt_ns);
  newest_ns_ = rtt_ns;
  if (now_ns >= period_end_ns_) begin_period(now_ns);
  come_bytes_ += newly_bytes;
  note_marks(newly_bytes / settings_.mtu_bytes, is_marked);
  const uint64_t delay_ns = rtt_ns - shortest_ns_;
  average_delay_ns_ += delay_ns / kDelayShare - average_delay_ns_ / kDelayShare;
  if (is_marked) {
    if (marked_delay_ns_ == UINT64_MAX) marked_delay_ns_ = delay_ns;
    marked_delay_ns_ += delay_ns / kDelayShare - marked_delay_ns_ / kDelayShare;
    const bool is_late = delay_ns >= target_ns() || marked_share_ >= kLastingMarks;
    return is_late && decrease(rtt_ns, now_ns) ? Case::kDecrease : Case::kNothing;
  }
  const uint64_t target = target_ns();
  if (delay_ns >= target ||
      (decreased_ns_ != 0 && now_ns - decreased_ns_ < kFairRoundTrips * rtt_ns)) {
    increase(newly_bytes, kFairPerRoundTrip, 1, 1);
    return Case::kFair;
  }
  increase(newly_bytes, kMostPerRoundTrip, target - delay_ns, target);
  return Case::kProportional;
}

// Each packet that was marked has a SACK of its own, so that one SACK tells of one mark.
void Nscc::note_marks(uint64_t packets, bool is_marked) {
  const uint64_t unmarked = std::min<uint64_t>(packets - (packets != 0 && is_marked), 64);
  for (uint64_t i = 0; i < unmarked; ++i) marked_share_ -= marked_share_ / kMarkShare;
  if (is_marked) marked_share_ += (kWhole - marked_share_) / kMarkShare;
}

void Nscc::begin_period(TimeNs now_ns) {
  period_end_ns_ = now_ns + std::max(newest_ns_, shortest_ns() + target_ns());
  come_before_bytes_ = come_bytes_;
  lost_before_bytes_ = lost_bytes_;
  come_bytes_ = lost_bytes_ = 0;
}

// Grows so much in a round trip of all that the window holds, times `part` of `whole`.
void Nscc::increase(uint64_t newly_bytes, uint64_t eighths, uint64_t part, uint64_t whole) {
  const uint64_t per_round_trip = settings_.mtu_bytes * eighths / 8 * part / whole;
  increase_ += newly_bytes * per_round_trip;
  const uint64_t grown = increase_ / window_bytes_;
  increase_ -= grown * window_bytes_;
  window_bytes_ = std::min(window_bytes_ + grown, settings_.most_bytes);
}

// Only what has left since the last time says that it was not enough. Returns whether marks are
// more than some paths' business.
bool Nscc::decrease(uint64_t rtt_ns, TimeNs now_ns) {
  if (marked_share_ < kCommonMarks) return false;
  if (decreased_ns_ != 0 && now_ns - rtt_ns < decreased_ns_) return true;
  decreased_ns_ = now_ns;
  // By four fifths of the share of the delay that is beyond the target, by half at most. The least
  // is what an average of eight fifths of the target says, three tenths: an average comes late.
  const uint64_t target = target_ns();
  const uint64_t average = std::max(average_delay_ns_, target * 8 / 5 + 1);
  const uint64_t down = window_bytes_ * 4 / 5 * (average - target) / average;
  shrink_to(window_bytes_ - std::min(down, window_bytes_ / 2));
  return true;
}

void Nscc::on_loss(bool is_trimmed, TimeNs sent_ns, TimeNs now_ns) {
  if (now_ns >= period_end_ns_) begin_period(now_ns);
  lost_bytes_ += settings_.mtu_bytes;
  if (sent_ns < decreased_ns_) return;
  const uint64_t come = std::max(come_bytes_, come_before_bytes_);
  const uint64_t lost = std::max(lost_bytes_, lost_before_bytes_);
  if (!is_trimmed && (lost < kLeastLosses * settings_.mtu_bytes || lost * kLossShare < come))
    return;
  decreased_ns_ = now_ns;
  shrink_to(std::min(come, window_bytes_ / 4 * 3));
}

void Nscc::shrink_to(uint64_t bytes) {
  window_bytes_ = std::max<uint64_t>(bytes, settings_.mtu_bytes);
  increase_ = 0;
}

}  // namespace hostnic::mrc
