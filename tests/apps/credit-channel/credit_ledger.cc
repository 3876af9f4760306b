// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/credit-channel/credit_ledger.h"

namespace hostnic::credit {

CreditLedger::CreditLedger(const Depths& own, const Depths& peer)
    : capacity_{own.data, own.immediate, own.read, own.write},
      local_(capacity_),
      peer_data_(peer.data),
      peer_acks_(peer.immediate),
      remote_data_(peer.data),
      remote_acks_(peer.immediate) {}

bool CreditLedger::take(Share share) {
  if (local_[index(share)] == 0) return false;
  if (share == Share::kData) {
    if (remote_data_ == 0) return false;
    --remote_data_;
  }
  --local_[index(share)];
  return true;
}

bool CreditLedger::acknowledgement_due() const {
  return received_.data >= half(capacity(Share::kData)) ||
         received_.acks >= half(capacity(Share::kImmediate));
}

std::optional<Acknowledgement> CreditLedger::take_acknowledgement() {
  if (!acknowledgement_due() || local_[index(Share::kImmediate)] == 0 || remote_acks_ == 0)
    return std::nullopt;
  --remote_acks_;
  --local_[index(Share::kImmediate)];
  const Acknowledgement ack = received_;
  received_ = {};
  return ack;
}

void CreditLedger::completed(Share share) { ++local_[index(share)]; }

bool CreditLedger::received_data() {
  if (received_.data == capacity(Share::kData)) return false;
  ++received_.data;
  return true;
}

bool CreditLedger::received_acknowledgement(Acknowledgement ack) {
  if (received_.acks == capacity(Share::kImmediate) || ack.data > peer_data_ - remote_data_ ||
      ack.acks > peer_acks_ - remote_acks_)
    return false;
  ++received_.acks;
  remote_data_ = static_cast<uint16_t>(remote_data_ + ack.data);
  remote_acks_ = static_cast<uint16_t>(remote_acks_ + ack.acks);
  return true;
}

uint32_t CreditLedger::posted() const {
  uint32_t sum = 0;
  for (const Share share : {Share::kData, Share::kImmediate, Share::kRead, Share::kWrite})
    sum += posted(share);
  return sum;
}

}  // namespace hostnic::credit
