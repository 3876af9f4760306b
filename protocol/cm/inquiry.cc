// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/cm/inquiry.h"

#include <algorithm>
#include <cstring>

#include "protocol/wire/bytes.h"

namespace hostnic::cm {
namespace {

constexpr uint32_t kMagic = 0x484e'4951;  // "HNIQ"
constexpr uint8_t kFormat = 1;
constexpr uint32_t kMost24 = 0xff'ffff;
constexpr uint32_t kMostResources = 0xffff;
// The values that wire::Policy and a wanted transport have, as in peer.cc.
constexpr uint8_t kPolicies = 3;

// The question's fields.
constexpr size_t kFormatAt = 4, kAskerAt = 8, kQpnAt = 12, kBytesAt = 16;

enum QpBit : uint8_t {
  kStoppedBit = 1,
  kSharedBit = 2,
  kRefusedBit = 4,
  kWithProgramBit = 8,
  kNamesHostBit = 16,
  kPsnsBit = 32,
  kQpBits = 63,
};
enum RefusalBit : uint8_t { kWindowBit = 1, kReceiveBit = 2, kRefusalBits = 3 };

// An answer has one description of its layout, the walk functions below: a Reader or a Writer goes
// along it. A Reader notes whether a value is one that there is.
class Reader {
 public:
  Reader(const std::byte* at, bool& good) : at_(at), good_(good) {}
  void u8(uint8_t& value, uint8_t first, uint8_t last) {
    value = wire::load_u8(at_++);
    if (value < first || value > last) good_ = false;
  }
  void u32(uint32_t& value, uint32_t most = UINT32_MAX) {
    value = wire::load_be32(at_);
    at_ += 4;
    if (value > most) good_ = false;
  }
  void u64(uint64_t& value) {
    value = wire::load_be64(at_);
    at_ += 8;
  }
  void name(std::string& value) {
    const auto* const text = reinterpret_cast<const char*>(at_);
    at_ += kToldNameBytes;
    value.assign(text, strnlen(text, kToldNameBytes));
    if (value != told_name(value)) good_ = false;
  }

 private:
  const std::byte* at_;
  bool& good_;
};

class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  void u8(const uint8_t& value, uint8_t, uint8_t) { wire::store_u8(at_++, value); }
  void u32(const uint32_t& value, uint32_t most = UINT32_MAX) {
    wire::store_be32(at_, std::min(value, most));
    at_ += 4;
  }
  void u64(const uint64_t& value) {
    wire::store_be64(at_, value);
    at_ += 8;
  }
  void name(const std::string& value) {
    std::memset(at_, 0, kToldNameBytes);
    const std::string told = told_name(value);
    std::memcpy(at_, told.data(), told.size());
    at_ += kToldNameBytes;
  }

 private:
  std::byte* at_;
};

struct Flags {
  uint8_t qp = 0, refusal = 0, standing = 0, wanted = 0;
};

// In the private data.
template <typename Io, typename A, typename F>
void walk_answer(Io&& io, A& a, F& flags) {
  io.u8(a.facts.version, 0, UINT8_MAX);
  io.u8(a.facts.policy, 0, kPolicies - 1);
  io.u8(flags.wanted, 0, kWantedTransports - 1);
  io.u8(flags.standing, 0, static_cast<uint8_t>(Standing::kPeer));
  io.u32(a.heard_bytes, kMostInquiryBytes);
  io.name(a.version);
  io.name(a.nic);
  auto& qp = a.qp;
  io.u8(qp.type, 0, kLastToldType);
  io.u8(qp.state, 0, kLastToldState);
  io.u8(qp.transport, 0, kLastToldTransport);
  io.u8(flags.qp, 0, kQpBits);
  io.u32(qp.dest_qpn, kMost24);
  io.u32(qp.rq_psn, kMost24);
  io.u32(qp.expected, kMost24);
  io.u32(qp.sent_packets, kMost24);
  io.u32(qp.mtu_bytes, kMostInquiryBytes);
  io.u32(qp.responder_resources, kMostResources);
  io.u32(qp.receives_waiting);
  io.u32(qp.pid);
  io.u32(qp.gone_ms);
  io.u32(qp.other_qpn, kMost24);
  io.name(qp.program);
}

// In the additional information.
template <typename Io, typename R, typename F>
void walk_refusal(Io&& io, R& r, F& flags) {
  io.u8(r.op, 0, kLastToldOp);
  io.u8(r.code, 0, kLastToldCode);
  io.u8(r.fault, 0, kLastToldFault);
  io.u8(flags.refusal, 0, kRefusalBits);
  io.u32(r.key);
  io.u64(r.va);
  io.u64(r.length_bytes);
  io.u64(r.region_va);
  io.u64(r.region_bytes);
  io.u64(r.receive_bytes);
  io.u32(r.packet_bytes);
  io.u8(r.qp_access, 0, UINT8_MAX);
  io.u8(r.region_access, 0, UINT8_MAX);
  io.u8(r.wanted_access, 0, UINT8_MAX);
}

constexpr size_t kHeadBytes = 8;  // magic, format
constexpr size_t kAnswerBytes = kHeadBytes + 8 + 2 * kToldNameBytes + 4 + 10 * 4 + kToldNameBytes;
static_assert(kAnswerBytes <= kSidrRepPrivateBytes);
constexpr size_t kRefusalBytes = 4 + 4 + 5 * 8 + 4 + 3;
static_assert(kRefusalBytes <= kSidrRepInfoBytes);

std::optional<InquiryAnswer> told_in(const SidrRep& rep) {
  const std::byte* const at = rep.private_data.data();
  if (wire::load_be32(at) != kMagic || wire::load_u8(at + kFormatAt) != kFormat)
    return std::nullopt;
  InquiryAnswer answer;
  Flags flags;
  bool good = true;
  walk_answer(Reader(at + kHeadBytes, good), answer, flags);
  walk_refusal(Reader(rep.info.data(), good), answer.refusal, flags);
  answer.standing = Standing{flags.standing};
  answer.facts.wanted = Transport{flags.wanted};
  const bool is_about_qp = answer.standing > Standing::kNone;
  if (!good || !is_wanted(flags.wanted) || (is_about_qp && answer.qp.type < kFirstToldType))
    return std::nullopt;
  answer.qp.is_stopped = (flags.qp & kStoppedBit) != 0;
  answer.qp.shared_receives = (flags.qp & kSharedBit) != 0;
  answer.qp.has_refused = (flags.qp & kRefusedBit) != 0;
  answer.qp.with_its_program = (flags.qp & kWithProgramBit) != 0;
  answer.qp.names_asker_host = (flags.qp & kNamesHostBit) != 0;
  answer.qp.has_psns = (flags.qp & kPsnsBit) != 0;
  answer.refusal.is_window = (flags.refusal & kWindowBit) != 0;
  answer.refusal.bad_receive = (flags.refusal & kReceiveBit) != 0;
  return answer;
}

uint8_t bit(bool set, uint8_t value) { return set ? value : 0; }

}  // namespace

std::string told_name(std::string_view name) {
  std::string told(name.substr(0, kToldNameBytes - 1));
  for (char& c : told)
    if (c < ' ' || c > '~') c = '?';
  return told;
}

std::optional<Inquiry> inquiry_in(const Mad& mad) {
  const auto* const req = std::get_if<SidrReq>(&mad.message);
  if (req == nullptr || req->service_id != kInquiryService) return std::nullopt;
  const std::byte* const at = req->private_data.data();
  const Inquiry inquiry{mad.transaction_id, req->request_id, wire::load_be32(at + kAskerAt),
                        wire::load_be32(at + kQpnAt), wire::load_be32(at + kBytesAt)};
  if (wire::load_be32(at) != kMagic || wire::load_u8(at + kFormatAt) != kFormat ||
      inquiry.asker_qpn > kMost24 || inquiry.qpn > kMost24 || inquiry.datagram_bytes < kMadBytes ||
      inquiry.datagram_bytes > kMostInquiryBytes)
    return std::nullopt;
  return inquiry;
}

std::optional<HeardAnswer> inquiry_answer_in(const Mad& mad) {
  const auto* const rep = std::get_if<SidrRep>(&mad.message);
  if (rep == nullptr) return std::nullopt;
  HeardAnswer heard;
  if (rep->status == static_cast<uint8_t>(SidrStatus::kSuccess) &&
      rep->service_id == kInquiryService) {
    if (auto told = told_in(*rep)) {
      heard.known = true;
      heard.answer = std::move(*told);
    }
  }
  heard.answer.transaction_id = mad.transaction_id;
  heard.answer.request_id = rep->request_id;
  return heard;
}

Mad mad_of(const Inquiry& inquiry) {
  SidrReq req{.request_id = inquiry.request_id, .service_id = kInquiryService};
  std::byte* const at = req.private_data.data();
  wire::store_be32(at, kMagic);
  wire::store_u8(at + kFormatAt, kFormat);
  wire::store_be32(at + kAskerAt, inquiry.asker_qpn & kMost24);
  wire::store_be32(at + kQpnAt, inquiry.qpn & kMost24);
  wire::store_be32(at + kBytesAt, inquiry.datagram_bytes);
  return {inquiry.transaction_id, req};
}

Mad mad_of(const InquiryAnswer& answer) {
  SidrRep rep{.request_id = answer.request_id,
              .info_bytes = kSidrRepInfoBytes,
              .service_id = kInquiryService};
  wire::store_be32(rep.private_data.data(), kMagic);
  wire::store_u8(rep.private_data.data() + kFormatAt, kFormat);
  const ToldQp& qp = answer.qp;
  const ToldRefusal& refusal = answer.refusal;
  const Flags flags{
      .qp = static_cast<uint8_t>(
          bit(qp.is_stopped, kStoppedBit) | bit(qp.shared_receives, kSharedBit) |
          bit(qp.has_refused, kRefusedBit) | bit(qp.with_its_program, kWithProgramBit) |
          bit(qp.names_asker_host, kNamesHostBit) | bit(qp.has_psns, kPsnsBit)),
      .refusal = static_cast<uint8_t>(bit(refusal.is_window, kWindowBit) |
                                      bit(refusal.bad_receive, kReceiveBit)),
      .standing = static_cast<uint8_t>(answer.standing),
      .wanted = static_cast<uint8_t>(answer.facts.wanted)};
  walk_answer(Writer(rep.private_data.data() + kHeadBytes), answer, flags);
  walk_refusal(Writer(rep.info.data()), refusal, flags);
  return {answer.transaction_id, rep};
}

}  // namespace hostnic::cm
