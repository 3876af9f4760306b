// SPDX-License-Identifier: BSD-3-Clause
// A genuine RoCEv2 peer's recorded frames against a NIC of ours (tests/sim/replay.h), in both
// roles: what completes, what is in memory afterwards and what ours says is what was recorded.
#include "tests/sim/replay.h"

namespace hostnic::sim {
namespace {

using namespace replaying;
using driver::Completion;

// Completions by what means something: status, and of those that succeeded what the peer's program
// was told as well.
std::string text_of(bool at_a, const recording::Completion& c) {
  if (c.status != 0) return fmt::format("wr {} status {}", c.wr_id, c.status);
  const bool has_length = !at_a || c.opcode == uint32_t(driver::WcOpcode::kRdmaRead);
  std::string text = fmt::format("wr {} opcode {}", c.wr_id, c.opcode);
  if (has_length) text += fmt::format(" bytes {}", c.byte_len);
  if (!at_a && (c.flags & driver::kWcWithImm) != 0) text += fmt::format(" imm {:#x}", c.imm);
  constexpr uint32_t kRecordedWithInv = 4;
  if (!at_a && (c.flags & (kRecordedWithInv | driver::kWcWithInv)) != 0) text += " invalidated";
  return text;
}
std::string text_of(bool at_a, const Completion& c) {
  recording::Completion same{at_a,       c.wr_id, uint32_t(c.status),       uint32_t(c.opcode),
                             c.byte_len, 0,       c.flags & ~driver::kWcGrh};
  uint32_t imm = c.imm_data;  // in network order
  same.imm = wire::load_be32(reinterpret_cast<const std::byte*>(&imm));
  return text_of(at_a, same);
}

std::vector<std::string> recorded(const Recording& recording, bool at_a) {
  std::vector<std::string> all;
  for (const recording::Completion& c : recording.completions)
    if (c.at_a == at_a && c.opcode != uint32_t(driver::WcOpcode::kBindMw))
      all.push_back(text_of(at_a, c));
  return all;
}

struct Scenario {
  const char* name;
  QpType type = QpType::kRc;
  // The frames that the peer sent in answer are comparable with ours: none was lost, and none was
  // repeated for reasons of time.
  bool same_answers = true;
};
std::ostream& operator<<(std::ostream& out, const Scenario& scenario) {
  return out << scenario.name;
}

class Recorded : public testing::TestWithParam<Scenario> {
 protected:
  Recorded() : recording(recording::read(GetParam().name)), requests(requests_of(recording)) {}
  Recording recording;
  std::vector<Request> requests;
};

// ---- ours is the requester

class RecordedResponder : public Recorded {
 protected:
  RecordedResponder() : replay(recording, true, GetParam().type) {}

  void post_all() {
    std::vector<uint64_t> ids;
    for (const recording::Completion& c : recording.completions)
      if (c.at_a) ids.push_back(c.wr_id);
    ASSERT_EQ(ids.size(), requests.size());
    uint64_t at = 0;
    for (size_t i = 0; i < requests.size(); ++i) post(requests[i], ids[i], at);
  }

  // `at`: where the bytes of this one are, in memory; it moves on.
  void post(const Request& r, uint64_t wr_id, uint64_t& at) {
    const bool answered = r.op == SendOp::kRead;
    const bool atomic = r.op == SendOp::kCompareSwap || r.op == SendOp::kFetchAdd;
    const auto bytes = static_cast<uint32_t>(answered ? r.first.reth.length_bytes
                                             : atomic ? 8
                                                      : r.payload.size());
    if (at + bytes > kBufferBytes) at = 0;
    std::ranges::copy(r.payload, replay.spare.data() + at);
    const Sge sge{replay.spare.address(at), bytes, replay.spare_key};
    at += (bytes + 7) / 8 * 8;
    driver::SendRequest request;
    request.op = r.op;
    request.wr_id = wr_id;
    request.signalled = true;
    if (bytes != 0) request.sges = {&sge, 1};
    request.remote_va = atomic ? r.first.atomic.va : r.first.reth.va;
    request.rkey = atomic ? r.first.atomic.rkey : r.first.reth.key;
    request.imm_data = r.op == SendOp::kSendInv ? r.invalidate_rkey : r.imm_data;
    request.compare_add =
        r.op == SendOp::kCompareSwap ? r.first.atomic.compare : r.first.atomic.swap_or_add;
    request.swap = r.first.atomic.swap_or_add;
    if (GetParam().type == QpType::kUd)
      request.ud = {
          .ip = address_of(1), .hop_limit = 64, .qpn = recording.b.qpn, .qkey = r.first.qkey};
    ASSERT_EQ(replay.ours->post_send(request), 0);
  }

  // The peer's frames, each when ours has sent as often what it had heard before.
  void play() {
    std::map<uint32_t, uint32_t> heard;  // how often, by PSN
    uint32_t last = recording.a.sq_psn;
    for (const recording::Frame& frame : recording.frames) {
      const uint32_t psn = frame.packet.psn.value();
      if (frame.from_a) {
        ++heard[psn];
        last = psn;
        continue;
      }
      replay.world.run_until([&] { return replay.sent_times(last) >= heard[last]; }, kPatienceNs,
                             false);
      replay.inject(frame);
    }
  }

  Replay replay;
};

void expect_same_extensions(const Packet& ours, const Packet& peers) {
  const wire::OpcodeInfo& info = wire::opcode_info(peers.opcode);
  if (info.has_reth) {
    EXPECT_EQ(ours.reth, peers.reth);
  }
  if (info.has_atomic_eth) {
    EXPECT_EQ(ours.atomic.va, peers.atomic.va);
    EXPECT_EQ(ours.atomic.rkey, peers.atomic.rkey);
    EXPECT_EQ(ours.atomic.swap_or_add, peers.atomic.swap_or_add);
    const bool compares = peers.opcode == Opcode::kRcCompareSwap;
    EXPECT_TRUE(!compares || ours.atomic.compare == peers.atomic.compare);
  }
  if (info.has_ieth) {
    EXPECT_EQ(ours.invalidate_rkey, peers.invalidate_rkey);
  }
}

TEST_P(RecordedResponder, GivesTheRecordedCompletions) {
  post_all();
  play();
  const auto expected = recorded(recording, true);
  std::vector<std::string> got;
  for (const Completion& c : take_completions(replay.world, *replay.ours, *replay.ours->send_cq,
                                              expected.size(), kSecond))
    got.push_back(text_of(true, c));
  EXPECT_EQ(got, expected);
}

// Each request in the standard's packets, as the peer's own had been.
TEST_P(RecordedResponder, IsAskedInThePeersWords) {
  if (!GetParam().same_answers) GTEST_SKIP() << "what is repeated depends on time";
  post_all();
  play();
  replay.settle();
  for (const recording::Frame& frame : recording.frames) {
    const Packet& p = frame.packet;
    if (!frame.from_a) continue;
    const auto same = std::ranges::find_if(replay.sent, [&](const Replay::Sent& s) {
      return s.packet.psn == p.psn && s.packet.opcode == p.opcode;
    });
    ASSERT_NE(same, replay.sent.end()) << to_string(p);
    EXPECT_EQ(same->packet.payload_bytes, p.payload_bytes) << to_string(p);
    EXPECT_EQ(same->packet.imm_data, p.imm_data) << to_string(p);
    expect_same_extensions(same->packet, p);
    const auto* const payload =
        reinterpret_cast<const uint8_t*>(frame.bytes.data()) + p.header_bytes;
    EXPECT_TRUE(std::ranges::equal(same->payload, std::span(payload, p.payload_bytes)));
  }
}

// ---- ours is the responder

class RecordedRequester : public Recorded {
 protected:
  RecordedRequester() : replay(recording, false, GetParam().type) {
    for (const recording::Completion& c : recording.completions)
      if (!c.at_a && c.opcode != uint32_t(driver::WcOpcode::kBindMw)) receives.push_back(c);
  }

  void post_receives() {
    const uint32_t bytes = message_is_too_long() ? 16 : kReceiveBytes;
    for (size_t i = 0; i < receives.size(); ++i) {
      const Sge sge{replay.spare.address(i % 4 * kReceiveBytes), bytes, replay.spare_key};
      ASSERT_EQ(replay.ours->post_recv({.wr_id = receives[i].wr_id, .sges = {&sge, 1}}), 0);
    }
  }

  void bind_window() {
    if (recording.window_rkey == 0) return;
    const auto made = replay.ours->host->driver().create_window(1, WindowType::k2);
    ASSERT_TRUE(made.has_value());
    driver::SendRequest request;
    request.op = SendOp::kBindWindow;
    request.signalled = true;
    request.rkey = replay.window_key = *made;
    request.remote_va = replay.memory.address();
    request.binding = {kBufferBytes, replay.key, kAccessRemoteWrite};
    ASSERT_EQ(replay.ours->post_send(request), 0);
    const auto done =
        take_completions(replay.world, *replay.ours, *replay.ours->send_cq, 1, kSecond);
    ASSERT_EQ(done.size(), 1u);
    ASSERT_EQ(done[0].status, WcStatus::kSuccess);
  }

  // A's frames one after the other. In `rnr` the receive is posted when it was: before the frame
  // that B took.
  void play() {
    bind_window();
    const bool late = std::string(GetParam().name).ends_with("rnr");
    if (!late) post_receives();
    const auto taken = std::ranges::find_if(recording.frames, [](const recording::Frame& f) {
      return !f.from_a && is_plain_ack(f.packet);
    });
    for (auto frame = recording.frames.begin(); frame != recording.frames.end(); ++frame) {
      if (!frame->from_a) continue;
      if (late && frame + 1 == taken) post_receives();
      replay.inject(*frame);
      replay.settle();
    }
  }

  // B's buffer after A's requests, all of which succeeded but those at the end that did not.
  Bytes expected_memory() const {
    Bytes bytes(kBufferBytes, kFill);
    std::memcpy(&bytes[kOperandOffset], &kOperand, sizeof kOperand);
    std::vector<uint32_t> statuses;
    for (const recording::Completion& c : recording.completions)
      if (c.at_a) statuses.push_back(c.status);
    for (size_t i = 0; i < requests.size() && statuses[i] == 0; ++i) apply(requests[i], bytes);
    return bytes;
  }
  void apply(const Request& r, Bytes& bytes) const {
    if (is_atomic(r.first.opcode)) {
      uint64_t value;
      const auto at = r.first.atomic.va - recording.b.va;
      std::memcpy(&value, &bytes[at], sizeof value);
      if (r.op == SendOp::kFetchAdd) {
        value += r.first.atomic.swap_or_add;
      } else if (value == r.first.atomic.compare) {
        value = r.first.atomic.swap_or_add;
      }
      std::memcpy(&bytes[at], &value, sizeof value);
    } else if (is_write(r.first.opcode) && !r.payload.empty()) {
      std::ranges::copy(r.payload,
                        bytes.begin() + static_cast<ptrdiff_t>(r.first.reth.va - recording.b.va));
    }
  }

  // For its receive; to that, rxe gives a NAK and a status of its own.
  static bool message_is_too_long() { return std::string(GetParam().name) == "nak_send_len"; }

  Replay replay;
  std::vector<recording::Completion> receives;
};

TEST_P(RecordedRequester, GivesTheRecordedCompletions) {
  play();
  auto expected = recorded(recording, false);
  if (message_is_too_long()) expected = {"wr 1000 status 1"};
  std::vector<std::string> got;
  for (const Completion& c : take_completions(replay.world, *replay.ours, *replay.ours->recv_cq,
                                              expected.size(), kMillisecond))
    got.push_back(text_of(false, c));
  EXPECT_EQ(got, expected);
  const Bytes memory = expected_memory();
  EXPECT_TRUE(std::ranges::equal(memory, std::span(replay.memory.data(), kBufferBytes)));
}

void expect_same_answer(const Replay::Sent& ours, const recording::Frame& frame) {
  const Packet& p = frame.packet;
  const std::string what = to_string(p);
  EXPECT_EQ(ours.packet.opcode, p.opcode) << what;
  EXPECT_EQ(ours.packet.psn, p.psn) << what;
  if (wire::opcode_info(p.opcode).has_aeth) {
    EXPECT_EQ(ours.packet.aeth.kind, p.aeth.kind) << what;
    EXPECT_EQ(ours.packet.aeth.msn, p.aeth.msn) << what;
  }
  if (wire::opcode_info(p.opcode).has_atomic_ack) {
    EXPECT_EQ(ours.packet.atomic_before, p.atomic_before) << what;
  }
  const auto* const payload = reinterpret_cast<const uint8_t*>(frame.bytes.data()) + p.header_bytes;
  EXPECT_TRUE(std::ranges::equal(ours.payload, std::span(payload, p.payload_bytes))) << what;
}

// What is not a plain ACK, which ours may send for several requests at once, says what B's said.
TEST_P(RecordedRequester, HearsThePeersAnswers) {
  if (!GetParam().same_answers) GTEST_SKIP() << "the answers depend on time";
  play();
  replay.settle();
  std::vector<const Replay::Sent*> ours;
  std::vector<const recording::Frame*> peers;
  for (const Replay::Sent& s : replay.sent)
    if (!is_plain_ack(s.packet)) ours.push_back(&s);
  const Packet* last = nullptr;
  for (const recording::Frame& frame : recording.frames) {
    if (frame.from_a) continue;
    last = &frame.packet;
    if (!is_plain_ack(frame.packet)) peers.push_back(&frame);
  }
  ASSERT_EQ(ours.size(), peers.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    expect_same_answer(*ours[i], *peers[i]);
    const wire::Aeth& aeth = peers[i]->packet.aeth;
    if (peers[i]->packet.opcode == Opcode::kRcAck && !message_is_too_long()) {
      EXPECT_EQ(ours[i]->packet.aeth.code, aeth.code);
    }
  }
  if (last == nullptr) return;
  ASSERT_FALSE(replay.sent.empty());
  EXPECT_EQ(replay.sent.back().packet.psn, last->psn);
  EXPECT_EQ(replay.sent.back().packet.aeth.msn, last->aeth.msn);
}

std::string name_of(const testing::TestParamInfo<Scenario>& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '/', '_');
  return name;
}

constexpr Scenario kScenarios[] = {
    {"send_sizes"},
    {"send_imm"},
    {"send_multi"},
    {"send_inv"},
    {"write"},
    {"write_imm"},
    {"read"},
    {"atomics"},
    {"psn_wrap"},
    {"burst"},
    {"mixed"},
    {"nak_write_rkey"},
    {"nak_read_rkey"},
    {"nak_write_bounds"},
    {"nak_send_len"},
    {"rnr"},
    {"tcg/send_multi"},
    {"tcg/write_imm"},
    {"tcg/rnr", QpType::kRc, false},
    {"tcg/mixed", QpType::kRc, false},
    {"lossy", QpType::kRc, false},
    {"uc_all", QpType::kUc},
    {"ud_send", QpType::kUd},
};
INSTANTIATE_TEST_SUITE_P(All, RecordedRequester, testing::ValuesIn(kScenarios), name_of);
INSTANTIATE_TEST_SUITE_P(All, RecordedResponder, testing::ValuesIn(kScenarios), name_of);

}  // namespace
}  // namespace hostnic::sim
