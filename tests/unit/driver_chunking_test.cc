// How work requests become descriptors: every byte once, every PSN once, at all alignments of
// message and scatter list against every path MTU; and how much is handed over at a time.
#include <random>

#include "tests/unit/driver_fake_nic.h"

namespace hostnic::driver {
namespace {

constexpr uint32_t kPeerWindow = 1024;
constexpr uint32_t kMtus[] = {256, 512, 1024, 2048, 4096};

class Chunking : public testing::TestWithParam<uint32_t> {
 protected:
  void connect(const DriverSettings& settings = {}, uint32_t sq_psn = 0xfffff0) {
    mtu_ = GetParam();
    driver_ = std::make_unique<Driver>(nic_, nic_.channel().segment_fd(), nic_.segment(),
                                       nic_.channel().segment_bytes(), settings);
    ASSERT_EQ(driver_->error(), 0);
    cq_ = driver_->create_cq(64, nullptr, nullptr);
    qp_ = make_qp(sq_psn);
    next_psn_ = Psn(sq_psn);
  }
  // In RTS.
  Qp* make_qp(uint32_t sq_psn) {
    QpInit init;
    init.send_cq = init.recv_cq = cq_.get();
    init.caps = {.max_send_wr = 16,
                 .max_recv_wr = 1,
                 .max_send_sge = kMaxSge,
                 .max_recv_sge = 1,
                 .max_inline_bytes = kMaxInlineBytes};
    auto made = driver_->create_qp(init);
    EXPECT_TRUE(made);
    if (!made) return nullptr;
    QpAttr attr;
    attr.path_mtu_bytes = mtu_;
    attr.dest_qpn = 0x10003;
    attr.dest_ip = Ipv4Address{0x0a000002};
    attr.sq_psn = sq_psn;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 16;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    const auto move = [&](QpState state, uint32_t mask) {
      attr.state = state;
      EXPECT_EQ(driver_->modify_qp(*made, attr, mask | kQpState), 0);
    };
    move(QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    move(QpState::kRtr,
         kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
    move(QpState::kRts, kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic);
    return *made;
  }
  ~Chunking() override {
    if (qp_ != nullptr) {
      EXPECT_EQ(driver_->destroy_qp(qp_), 0);
    }
  }
  void progress() {
    std::lock_guard lock(driver_->mutex());
    driver_->progress(now_ns_ += 1000);
  }
  int post(const SendRequest& request) { return driver_->post_send(qp_, request, now_ns_); }
  int post_far_more_than_a_window() {
    const Sge sge{0, 1u << 26, 1};
    SendRequest request;
    request.op = SendOp::kWrite;
    request.sges = {&sge, 1};
    return post(request);
  }
  void acknowledge_all() {
    nic_.transmitted(next_psn_);
    nic_.acknowledge(next_psn_, kPeerWindow);
    progress();
  }
  // What is posted after this waits in the driver until acknowledge_all().
  void fill_window() {
    const Sge sge{0, kInitialWindow * mtu_, 1};
    SendRequest request;
    request.op = SendOp::kWrite;
    request.sges = {&sge, 1};
    ASSERT_EQ(post(request), 0);
    for (int turn = 0; turn < 16; ++turn) {
      for (const Chunk& chunk : nic_.sends()) next_psn_ += chunk.d.length_bytes / mtu_;
      nic_.transmitted(next_psn_);
      progress();
    }
    ASSERT_EQ(next_psn_, Psn(0xfffff0) + kInitialWindow);
  }
  bool completed(uint64_t wr_id) {
    Completion completion;
    if (cq_->poll(&completion, 1) != 1) return false;
    EXPECT_EQ(completion.wr_id, wr_id);
    EXPECT_EQ(completion.status, WcStatus::kSuccess);
    return true;
  }

  // Posts one request, lets the fake NIC take and acknowledge all of it, and checks that its
  // descriptors are the message.
  void check_message(SendRequest request);
  void check_chunk(const Chunk& chunk, const SendRequest& request, uint32_t length,
                   uint32_t offset);

  FakeNic nic_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Cq> cq_;
  Qp* qp_ = nullptr;
  uint32_t mtu_ = 0;
  TimeNs now_ns_ = 1'000'000;
  Psn next_psn_;
  uint32_t next_recv_sn_ = 0;
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

SendRequest request_of(SendOp op, std::span<const Sge> sges) {
  SendRequest request;
  request.op = op;
  request.sges = sges;
  request.remote_va = 0x7000'0000'0123;
  request.rkey = 0xabc123;
  request.imm_data = 0x11223344;
  return request;
}

TEST_P(Chunking, Rule4_ChunksOfAllSizesAreAtMost64KiB) {
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

// ---- READs: pulls of at most 64 KiB

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

// ---- how much at a time

uint32_t packets_in(const std::vector<Chunk>& chunks, uint32_t mtu) {
  uint32_t packets = 0;
  for (const Chunk& chunk : chunks)
    packets += chunk.d.length_bytes == 0 ? 1 : (chunk.d.length_bytes + mtu - 1) / mtu;
  return packets;
}

TEST_P(Chunking, WindowBeforeAndAfterTheFirstAck) {
  DriverSettings settings;
  settings.queued_bytes_limit = settings.sole_queued_bytes_limit = UINT32_MAX;
  connect(settings);
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  const auto take_all = [this] {
    std::vector<Chunk> chunks, more;
    do {
      progress();
      more = nic_.sends();
      chunks.insert(chunks.end(), more.begin(), more.end());
    } while (!more.empty());
    return chunks;
  };
  std::vector<Chunk> chunks = take_all();
  EXPECT_EQ(packets_in(chunks, mtu_), kInitialWindow) << "before the first ACK";
  EXPECT_NE(chunks.back().d.flags & kSendAckRequest, 0) << "the packet after which it pauses";
  next_psn_ += kInitialWindow;
  for (const uint32_t peer_window : {1u, 7u, 64u, 1024u}) {
    nic_.transmitted(next_psn_);
    nic_.acknowledge(next_psn_, peer_window);
    chunks = take_all();
    EXPECT_EQ(packets_in(chunks, mtu_), peer_window);
    EXPECT_NE(chunks.back().d.flags & kSendAckRequest, 0);
    next_psn_ += peer_window;
  }
  // A peer that would take more than our own window.
  nic_.transmitted(next_psn_);
  nic_.acknowledge(next_psn_, kWindowLimit);
  EXPECT_EQ(packets_in(take_all(), mtu_), settings.window);
}

TEST_P(Chunking, Rule20_EveryQuarterWindowAsksForAnAck) {
  DriverSettings settings;
  settings.queued_bytes_limit = settings.sole_queued_bytes_limit = UINT32_MAX;
  connect(settings);
  nic_.acknowledge(next_psn_, kPeerWindow);
  progress();
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  uint32_t unasked = 0, asked = 0;
  for (int turn = 0; turn < 40; ++turn) {
    for (const Chunk& chunk : nic_.sends()) {
      unasked += packets_in({chunk}, mtu_);
      EXPECT_LE(unasked, settings.window / 4);
      if ((chunk.d.flags & kSendAckRequest) == 0) continue;
      unasked = 0;
      ++asked;
    }
    progress();
  }
  EXPECT_EQ(asked, 4u);
}

TEST_P(Chunking, UnsignalledRequestsAskOnlyWhenTheQueueEnds) {
  connect();
  ASSERT_NO_FATAL_FAILURE(fill_window());
  const Sge sge{0, 1, 1};
  for (int i = 0; i < 8; ++i) ASSERT_EQ(post(request_of(SendOp::kWrite, {&sge, 1})), 0);
  ASSERT_TRUE(nic_.sends().empty());
  acknowledge_all();
  const std::vector<Chunk> chunks = nic_.sends();
  ASSERT_EQ(chunks.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ((chunks[i].d.flags & kSendAckRequest) != 0, i == 7) << i;
}

TEST_P(Chunking, Rule4_ABoundedAmountWaitsInTheNic) {
  DriverSettings settings;
  settings.queued_bytes_limit = settings.sole_queued_bytes_limit = 64 * 1024;
  connect(settings);
  nic_.acknowledge(next_psn_, kPeerWindow);
  progress();
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  uint64_t handed_over = 0, transmitted = 0;
  const auto take_all = [&] {
    for (int i = 0; i < 20; ++i, progress()) {
      for (const Chunk& chunk : nic_.sends()) handed_over += chunk.d.length_bytes;
    }
  };
  take_all();
  EXPECT_GE(handed_over, std::min<uint64_t>(settings.queued_bytes_limit, kPeerWindow * mtu_));
  EXPECT_LT(handed_over, settings.queued_bytes_limit + kMaxChunkBytes);
  EXPECT_TRUE(driver_->turn_wanted()) << "nobody reports transmission: it must look again";
  for (const uint32_t packets : {1u, 10u, 16u}) {
    transmitted += uint64_t{packets} * mtu_;
    nic_.transmitted(next_psn_ + static_cast<uint32_t>(transmitted / mtu_));
    take_all();
    EXPECT_GE(handed_over - transmitted, settings.queued_bytes_limit);
    EXPECT_LT(handed_over - transmitted, settings.queued_bytes_limit + kMaxChunkBytes);
  }
}

TEST_P(Chunking, Rule4_LessWaitsInTheNicWhileOthersSend) {
  DriverSettings settings;
  settings.queued_bytes_limit = 64 * 1024;
  settings.sole_queued_bytes_limit = 192 * 1024;
  connect(settings);
  Qp* other = make_qp(0xfffff0);
  ASSERT_NE(qp_, nullptr);
  ASSERT_NE(other, nullptr);
  nic_.acknowledge(next_psn_, kPeerWindow);
  progress();
  ASSERT_EQ(post_far_more_than_a_window(), 0);
  uint64_t handed_over = 0;
  const auto queued_when = [&](uint64_t transmitted_bytes) {
    nic_.transmitted(next_psn_ + static_cast<uint32_t>(transmitted_bytes / mtu_));
    for (int i = 0; i < 20; ++i, progress())
      for (const Chunk& chunk : nic_.sends())
        if (chunk.d.length_bytes != 1) handed_over += chunk.d.length_bytes;
    return handed_over - transmitted_bytes;
  };
  EXPECT_EQ(queued_when(0), settings.sole_queued_bytes_limit);
  const Sge sge{0, 1, 1};
  const SendRequest small = request_of(SendOp::kWrite, {&sge, 1});
  ASSERT_EQ(driver_->post_send(other, small, now_ns_), 0);
  EXPECT_EQ(queued_when(96 * 1024), 96u * 1024) << "more than the other's request may wait for";
  EXPECT_EQ(queued_when(160 * 1024), 32u * 1024 + kMaxChunkBytes);
  now_ns_ += 20'000'000;
  EXPECT_EQ(queued_when(192 * 1024),
            std::min<uint64_t>(settings.sole_queued_bytes_limit, kPeerWindow * mtu_ - 192 * 1024))
      << "the other is done";
  EXPECT_EQ(driver_->destroy_qp(other), 0);
}

INSTANTIATE_TEST_SUITE_P(Driver, Chunking, testing::ValuesIn(kMtus),
                         [](const auto& info) { return "Mtu" + std::to_string(info.param); });

}  // namespace
}  // namespace hostnic::driver
