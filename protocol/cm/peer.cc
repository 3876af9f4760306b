// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/cm/peer.h"

#include "protocol/wire/bytes.h"

namespace hostnic {

namespace cm {
namespace {

constexpr uint32_t kMagic = 0x484e'4943;  // "HNIC"
constexpr uint8_t kFormat = 1;
constexpr size_t kFormatOffset = 4, kVersionOffset = 5, kPolicyOffset = 6, kWantedOffset = 7;
constexpr size_t kFactsBytes = 8;
// The values that wire::Policy has.
constexpr uint8_t kPolicies = 3;
static_assert(Transport{kWantedTransports - 1} == Transport::kMrc);

// What stands behind the facts is for later formats, and not looked at.
template <size_t Bytes>
std::optional<PeerFacts> facts_in(const PrivateData<Bytes>& data) {
  static_assert(Bytes >= kFactsBytes);
  const std::byte* const at = data.data();
  const uint8_t policy = wire::load_u8(at + kPolicyOffset);
  const uint8_t wanted = wire::load_u8(at + kWantedOffset);
  if (wire::load_be32(at) != kMagic || wire::load_u8(at + kFormatOffset) != kFormat ||
      policy >= kPolicies || !is_wanted(wanted))
    return std::nullopt;
  return PeerFacts{wire::load_u8(at + kVersionOffset), policy, Transport{wanted}};
}

template <size_t Bytes>
void put_facts(const PeerFacts& facts, PrivateData<Bytes>& data) {
  std::byte* const at = data.data();
  wire::store_be32(at, kMagic);
  wire::store_u8(at + kFormatOffset, kFormat);
  wire::store_u8(at + kVersionOffset, facts.version);
  wire::store_u8(at + kPolicyOffset, facts.policy);
  wire::store_u8(at + kWantedOffset, static_cast<uint8_t>(facts.wanted));
}

}  // namespace

std::optional<PeerQuestion> question_in(const Mad& mad) {
  const auto* const req = std::get_if<SidrReq>(&mad.message);
  if (req == nullptr || req->service_id != kPeerService) return std::nullopt;
  const auto facts = facts_in(req->private_data);
  if (!facts) return std::nullopt;
  return PeerQuestion{mad.transaction_id, req->request_id, *facts};
}

std::optional<PeerAnswer> answer_in(const Mad& mad) {
  const auto* const rep = std::get_if<SidrRep>(&mad.message);
  if (rep == nullptr) return std::nullopt;
  PeerAnswer answer{mad.transaction_id, rep->request_id, std::nullopt};
  if (rep->status == static_cast<uint8_t>(SidrStatus::kSuccess) && rep->service_id == kPeerService)
    answer.facts = facts_in(rep->private_data);
  return answer;
}

Mad mad_of(const PeerQuestion& question) {
  SidrReq req{.request_id = question.request_id, .service_id = kPeerService};
  put_facts(question.facts, req.private_data);
  return {question.transaction_id, req};
}

Mad mad_of(const PeerAnswer& answer) {
  SidrRep rep{.request_id = answer.request_id, .service_id = kPeerService};
  if (answer.facts) {
    put_facts(*answer.facts, rep.private_data);
  } else {
    rep.status = static_cast<uint8_t>(SidrStatus::kUnsupported);
  }
  return {answer.transaction_id, rep};
}

}  // namespace cm
}  // namespace hostnic
