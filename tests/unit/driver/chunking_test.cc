// SPDX-License-Identifier: BSD-3-Clause
// How work requests become descriptors: every byte once, every PSN once, at all alignments of
// message and scatter list against every path MTU.
#include <cerrno>
#include <random>

#include "protocol/message_limits.h"
#include "tests/unit/driver/bench.h"

namespace hostnic::driver {
namespace {

class Chunking : public DriverBench {
 protected:
  // Posts one request, lets the fake NIC take and acknowledge all of it, and checks that its
  // descriptors are the message.
  void check_message(SendRequest request);
  void check_chunk(const Chunk& chunk, const SendRequest& request, uint32_t length,
                   uint32_t offset);
};

uint32_t total(std::span<const Sge> sges) {
  uint32_t bytes = 0;
  for (const Sge& sge : sges) bytes += sge.length_bytes;
  return bytes;
}

// The list with empty pieces left out and pieces that continue each other joined, so that two ways
// of cutting the same memory compare equal.
std::vector<Sge> joined(std::span<const Sge> sges) {
  std::vector<Sge> list;
  for (const Sge& sge : sges) {
    if (sge.length_bytes == 0) continue;
    if (!list.empty() && list.back().lkey == sge.lkey &&
        list.back().addr + list.back().length_bytes == sge.addr) {
      list.back().length_bytes += sge.length_bytes;
    } else {
      list.push_back(sge);
    }
  }
  return list;
}
bool same(const std::vector<Sge>& a, const std::vector<Sge>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Sge)) == 0);
}

void Chunking::check_chunk(const Chunk& chunk, const SendRequest& request, uint32_t length,
                           uint32_t offset) {
  const SendDescriptor& d = chunk.d;
  const bool last = offset + d.length_bytes == length;
  ASSERT_EQ(d.op, request.op);
  ASSERT_EQ(d.qpn, FakeNic::kQpn);
  ASSERT_EQ(d.attempt, 0);
  ASSERT_EQ(d.psn, next_psn_.value());
  ASSERT_LE(d.length_bytes, kMaxChunkBytes);
  ASSERT_LE(offset + d.length_bytes, length);
  ASSERT_EQ((d.flags & kSendCont) != 0, offset != 0);
  ASSERT_EQ((d.flags & kSendMore) != 0, !last);
  ASSERT_EQ((d.flags & kSendSolicited) != 0, request.solicited);
  ASSERT_EQ((d.flags & kSendInline) != 0, request.inline_data);
  ASSERT_EQ(d.flags & kSendRetransmit, 0);
  if (last) {
    ASSERT_NE(d.flags & kSendAckRequest, 0) << "the last of a signalled request";
  } else {
    ASSERT_NE(d.length_bytes, 0u);
    ASSERT_EQ(d.length_bytes % mtu_, 0u) << "only the last packet may be short";
  }
  if (request.op == SendOp::kSend || request.op == SendOp::kSendImm) {
    ASSERT_EQ(d.va, offset);
    ASSERT_EQ(d.key, next_recv_sn_);
    ASSERT_EQ(d.message_bytes, length);
  } else {
    ASSERT_EQ(d.va, request.remote_va + offset);
    ASSERT_EQ(d.key, request.rkey);
  }
  if (request.op == SendOp::kWriteImm) {
    ASSERT_EQ(d.recv_sn, next_recv_sn_);
  }
  if (request.op == SendOp::kWriteImm || request.op == SendOp::kSendImm) {
    ASSERT_EQ(d.imm_data, request.imm_data);
  }
  if (!request.inline_data) {
    ASSERT_EQ(total(chunk.sges), d.length_bytes);
  }
}

void Chunking::check_message(SendRequest request) {
  static uint64_t wr_id = 0;
  request.wr_id = ++wr_id;
  request.signalled = true;
  const uint32_t length = total(request.sges);
  std::vector<std::byte> inline_bytes;
  if (request.inline_data) {
    for (const Sge& sge : request.sges) {
      const auto* from = reinterpret_cast<const std::byte*>(sge.addr);
      inline_bytes.insert(inline_bytes.end(), from, from + sge.length_bytes);
    }
  }
  ASSERT_EQ(post(request), 0);
  std::vector<Sge> covered;
  std::vector<std::byte> carried;
  uint32_t offset = 0, psns = 0, turns = 0;
  for (bool done = false; !done;) {
    for (const Chunk& chunk : nic_.sends()) {
      ASSERT_NO_FATAL_FAILURE(check_chunk(chunk, request, length, offset))
          << length << " bytes, at " << offset;
      const uint32_t packets =
          chunk.d.length_bytes == 0 ? 1 : (chunk.d.length_bytes + mtu_ - 1) / mtu_;
      offset += chunk.d.length_bytes;
      psns += packets;
      next_psn_ += packets;
      covered.insert(covered.end(), chunk.sges.begin(), chunk.sges.end());
      carried.insert(carried.end(), chunk.inline_bytes.begin(), chunk.inline_bytes.end());
    }
    acknowledge_all();
    done = completed(request.wr_id);
    ASSERT_LT(++turns, 10'000u) << "stuck at " << offset << " of " << length;
  }
  ASSERT_EQ(offset, length);
  ASSERT_EQ(psns, length == 0 ? 1 : (length + mtu_ - 1) / mtu_);
  ASSERT_TRUE(nic_.urgent().empty()) << "nothing was lost";
  if (request.inline_data) {
    ASSERT_EQ(carried, inline_bytes);
  } else {
    ASSERT_TRUE(same(joined(covered), joined(request.sges))) << length << " bytes";
  }
  if (request.op != SendOp::kWrite) ++next_recv_sn_;
}

// What the port advertises (ibv_port_attr::max_msg_sz) is what a post takes.
TEST_P(Chunking, AMessageIsAtMostAsLongAsAdvertised) {
  connect();
  const Sge most[] = {{0, kMaxMessageBytes - 1, 1}, {0, 1, 1}},
            more[] = {{0, kMaxMessageBytes, 1}, {0, 1, 1}};
  for (const SendOp op : {SendOp::kWrite, SendOp::kSend, SendOp::kRead}) {
    EXPECT_EQ(post(request_of(op, more)), EINVAL);
    EXPECT_EQ(post(request_of(op, most)), 0);
  }
}

TEST_P(Chunking, Rule4_ChunksOfAllSizesAreBounded) {
  connect();
  for (const SendOp op : {SendOp::kWrite, SendOp::kWriteImm, SendOp::kSend, SendOp::kSendImm}) {
    for (const uint32_t packets :
         {0u, 1u, 2u, 3u, kMaxChunkBytes / mtu_ - 1, kMaxChunkBytes / mtu_,
          kMaxChunkBytes / mtu_ + 1, 3 * kMaxChunkBytes / mtu_, 10 * kMaxChunkBytes / mtu_}) {
      for (const int32_t delta : {-1, 0, 1}) {
        if (packets == 0 && delta < 0) continue;
        const uint32_t length = packets * mtu_ + static_cast<uint32_t>(delta);
        const Sge sge{0x10000 + length % 64, length, 77};
        SendRequest request = request_of(op, {&sge, 1});
        request.solicited = packets % 2 == 1;
        ASSERT_NO_FATAL_FAILURE(check_message(request)) << "op " << static_cast<int>(op);
      }
    }
  }
}

TEST_P(Chunking, TwoPiecesCutAnywhere) {
  connect();
  // The cut passes every position of a packet, its edges and the second packet's start included.
  const uint32_t length = 2 * mtu_ + 1;
  for (uint32_t cut = 0; cut <= mtu_ + 2; ++cut) {
    const Sge sges[] = {{0x100001, cut, 1}, {0x900007 + cut % 64, length - cut, 2}};
    ASSERT_NO_FATAL_FAILURE(check_message(request_of(SendOp::kWrite, sges))) << "cut at " << cut;
  }
}

TEST_P(Chunking, RandomScatterLists) {
  connect();
  std::mt19937 random(mtu_);
  const auto below = [&random](uint32_t n) { return random() % n; };
  for (int i = 0; i < 400; ++i) {
    std::vector<Sge> sges(below(kMaxSge + 1));
    // Sometimes a few bytes each, sometimes across packets, sometimes across chunks; some empty.
    const uint32_t limit = i % 3 == 0 ? 40 : i % 3 == 1 ? 3 * mtu_ : kMaxChunkBytes;
    for (uint32_t k = 0; k < sges.size(); ++k) {
      sges[k] = {(uint64_t{k} << 32) + below(4096),
                 static_cast<uint32_t>(below(6) == 0 ? 0 : below(limit)), k};
    }
    const SendOp op = below(2) == 0 ? SendOp::kWrite : SendOp::kSend;
    ASSERT_NO_FATAL_FAILURE(check_message(request_of(op, sges))) << "list " << i;
  }
}

TEST_P(Chunking, InlineBytesOfEveryLength) {
  connect();
  std::vector<std::byte> memory(2 * kMaxInlineBytes);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (uint32_t length = 0; length <= kMaxInlineBytes; ++length) {
    const uint32_t cut = length / 3;
    const Sge sges[] = {{reinterpret_cast<uint64_t>(&memory[length % 64]), cut, 0},
                        {reinterpret_cast<uint64_t>(&memory[600]), 0, 0},
                        {reinterpret_cast<uint64_t>(&memory[512 - cut]), length - cut, 0}};
    SendRequest request = request_of(length % 2 == 0 ? SendOp::kSend : SendOp::kWrite, sges);
    request.inline_data = true;
    ASSERT_NO_FATAL_FAILURE(check_message(request)) << length;
  }
}

TEST_P(Chunking, Rule35_InlineBytesMayBeOverwrittenAfterThePost) {
  connect();
  ASSERT_NO_FATAL_FAILURE(fill_window());
  std::vector<std::byte> memory(kMaxInlineBytes, std::byte{1});
  const Sge sge{reinterpret_cast<uint64_t>(memory.data()), kMaxInlineBytes, 0};
  SendRequest request = request_of(SendOp::kWrite, {&sge, 1});
  request.inline_data = request.signalled = true;
  ASSERT_EQ(post(request), 0);
  ASSERT_EQ(post(request), 0);
  std::fill(memory.begin(), memory.end(), std::byte{2});
  ASSERT_TRUE(nic_.sends().empty());
  acknowledge_all();
  uint32_t bytes = 0;
  for (int turn = 0; turn < 16; ++turn) {
    for (const Chunk& chunk : nic_.sends()) {
      for (const std::byte b : chunk.inline_bytes) ASSERT_EQ(b, std::byte{1});
      bytes += chunk.d.length_bytes;
      next_psn_ += (chunk.d.length_bytes + mtu_ - 1) / mtu_;
    }
    acknowledge_all();
  }
  EXPECT_EQ(bytes, 2 * kMaxInlineBytes);
}

// ---- READs: pulls of bounded size

TEST_P(Chunking, ReadsArePulledOnceInOrder) {
  connect();
  Psn next_response(0);
  uint32_t read_number = 0;
  for (const uint32_t length : {0u, 1u, mtu_ - 1, mtu_, mtu_ + 1, kMaxChunkBytes - 1,
                                kMaxChunkBytes, kMaxChunkBytes + 1, 5 * kMaxChunkBytes + 3}) {
    const Sge sge{0x10000, length, 5};
    SendRequest request = request_of(SendOp::kRead, {&sge, 1});
    request.wr_id = read_number;
    request.signalled = true;
    ASSERT_EQ(post(request), 0);
    std::vector<Chunk> pulls = nic_.sends();
    ASSERT_EQ(pulls.size(), 1u) << "one request";
    const uint32_t request_psn = next_psn_.value();
    next_psn_ += 1;
    uint32_t offset = 0;
    bool done = false;
    for (int turn = 0; turn < 100 && !done; ++turn) {
      for (const Chunk& pull : pulls) {
        const SendDescriptor& d = pull.d;
        ASSERT_EQ(d.op, SendOp::kRead);
        ASSERT_EQ(d.psn, request_psn) << "a pull repeats the request's PSN";
        ASSERT_EQ(d.va, request.remote_va);
        ASSERT_EQ(d.key, request.rkey);
        ASSERT_EQ(d.message_bytes, length);
        ASSERT_EQ(d.recv_sn, read_number);
        ASSERT_EQ(d.read_offset_bytes, offset);
        ASSERT_EQ(d.first_response_psn, next_response.value());
        ASSERT_LE(d.length_bytes, kMaxChunkBytes);
        ASSERT_TRUE(d.length_bytes % mtu_ == 0 || offset + d.length_bytes == length);
        offset += d.length_bytes;
        next_response += (d.length_bytes + mtu_ - 1) / mtu_;
      }
      nic_.transmitted(next_psn_);
      nic_.acknowledge(next_psn_, kPeerWindow, next_response);
      progress();
      done = completed(read_number);
      ASSERT_TRUE(nic_.sends().empty());
      pulls = nic_.urgent();
    }
    ASSERT_TRUE(done) << length << " bytes, pulled " << offset;
    ASSERT_EQ(offset, length);
    ++read_number;
  }
}

INSTANTIATE_TEST_SUITE_P(Driver, Chunking, testing::ValuesIn(kMtus),
                         [](const auto& info) { return "Mtu" + std::to_string(info.param); });

}  // namespace
}  // namespace hostnic::driver
