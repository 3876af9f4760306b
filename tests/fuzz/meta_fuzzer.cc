// SPDX-License-Identifier: BSD-3-Clause
// A NIC that says whatever it likes: meta reports, statuses, receive completions, command
// responses, ring positions. The driver half must not crash, hang, or deliver a completion that was
// not asked for, twice or out of order.
//
// An input is a program: operations with their arguments, see step().
#include <memory>
#include <vector>

#include "dataplane/nic/client/client_channel.h"
#include "tests/fuzz/input.h"
#include "verbs-shim/driver/driver.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::fuzz {
namespace {

using namespace driver;

constexpr uint32_t kQps = 2;
constexpr uint32_t kWindow = 64;

// Answers commands as a NIC does; all else is the input's business.
class LyingNic final : public NicLink {
 public:
  LyingNic() {
    ClientChannel::Settings settings;
    settings.max_qps = 4;
    settings.arena_bytes = 1 << 18;
    auto made = ClientChannel::create(settings);
    require(made.has_value());
    channel_ = std::move(*made);
  }
  ClientChannel& channel() { return *channel_; }
  std::byte* segment() { return reinterpret_cast<std::byte*>(&channel_->header()); }
  void kick() override { serve(); }
  void wait_for_response() override { serve(); }
  void pause(uint32_t) override {}

 private:
  void serve() {
    Command command;
    while (channel_->commands.dequeue_burst(&command, 1) == 1) {
      CommandResponse response{};
      response.correlation = command.correlation;
      response.qpn = command.kind == CommandKind::kCreateQp
                         ? 0x10010 + command.create_qp.status_index
                         : command.modify_qp.qpn;
      channel_->responses.enqueue_bulk(&response, 1);
    }
  }
  std::unique_ptr<ClientChannel> channel_;
};

// What one queue pair's program knows.
struct Program {
  Qp* qp = nullptr;
  std::unique_ptr<Cq> send_cq, recv_cq;
  std::vector<bool> signalled;  // by wr_id
  uint64_t next_send = 0;       // wr_id that may complete next
  uint64_t receives = 0, next_receive = 0;
};

class Run {
 public:
  Run(const uint8_t* data, size_t size)
      : input_(data, size),
        driver_(nic_, nic_.channel().memory(),
                {.max_qps = 4, .mtu_bytes = 1024, .window = kWindow}) {
    require(driver_.error() == 0);
    for (Program& program : programs_) open(program);
  }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 300; ++steps) step();
    progress();
    for (Program& program : programs_) {
      poll(program);
      // However confused, it can be closed.
      require(driver_.destroy_qp(program.qp) == 0);
    }
  }

 private:
  void open(Program& program) {
    program.send_cq = driver_.create_cq(256, nullptr, nullptr);
    program.recv_cq = driver_.create_cq(256, nullptr, nullptr);
    QpInit init;
    init.send_cq = program.send_cq.get();
    init.recv_cq = program.recv_cq.get();
    init.caps = {.max_send_wr = 32,
                 .max_recv_wr = 16,
                 .max_send_sge = 4,
                 .max_recv_sge = 2,
                 .max_inline_bytes = 128};
    auto made = driver_.create_qp(init);
    require(made.has_value());
    program.qp = *made;
    connect(program);
  }
  void connect(Program& program) {
    QpAttr attr;
    attr.path_mtu_bytes = 1024;
    attr.dest_qpn = 0x10020;
    attr.dest_ip = Ipv4Address{0x0a000002};
    attr.is_global = true;
    attr.sq_psn = attr.rq_psn = 0xfffff0;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 8;
    attr.timeout = 14;
    attr.retry_cnt = 3;
    attr.rnr_retry = 3;
    const auto move = [&](QpState state, uint32_t mask) {
      attr.state = state;
      require(driver_.modify_qp(program.qp, attr, mask | kQpState) == 0);
    };
    move(QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    move(QpState::kRtr,
         kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
    move(QpState::kRts, kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic);
  }

  void step() {
    const uint32_t number = input_.below(kQps);
    Program& program = programs_[number];
    switch (input_.below(12)) {
      case 0:
      case 1:
        return post_send(program);
      case 2:
        return post_receive(program);
      case 3:
      case 4:
        return acknowledge(number);
      case 5:
        return change_status(number);
      case 6:
        return complete_receives(number);
      case 7:
        return report();
      case 8:
        return take_descriptors();
      case 9:
        return lie_about_rings();
      case 10:
        return change_state(program);
      default:
        progress();
        poll(program);
    }
  }

  void post_send(Program& program) {
    Sge sges[4];
    SendRequest request;
    request.op = static_cast<SendOp>(1 + input_.below(7));
    request.wr_id = program.signalled.size();
    request.signalled = input_.below(4) != 0;
    request.fence = input_.below(8) == 0;
    const uint32_t count = input_.below(5);
    const bool large = input_.below(16) == 0;
    for (uint32_t i = 0; i < count; ++i)
      sges[i] = {0x10000, large ? input_.below(200) * 1024u : input_.number() % 4096, 7};
    request.sges = {sges, count};
    const bool atomic = request.op == SendOp::kCompareSwap || request.op == SendOp::kFetchAdd;
    if (atomic) {
      sges[0] = {0x10000, 8, 7};
      request.sges = {sges, 1};
    }
    if (driver_.post_send(program.qp, request, now_ns_) == 0)
      program.signalled.push_back(request.signalled);
  }

  void post_receive(Program& program) {
    const Sge sge{0x20000, 4096, 7};
    if (driver_.post_recv(program.qp, {.wr_id = program.receives, .sges = {&sge, 1}}) == 0)
      ++program.receives;
  }

  // An ACK that could be true: it gets the driver further.
  void acknowledge(uint32_t number) {
    QpStatus& status = nic_.channel().qp_status(number);
    status.sequence.fetch_add(1);
    status.una_psn = (status.una_psn + input_.below(20)) & 0xffffff;
    status.sack_end_psn = (status.una_psn + input_.below(40)) & 0xffffff;
    status.sack[status.una_psn / 64 % kBitmapWords] = input_.take<uint64_t>();
    status.highest_acceptable_psn = (status.una_psn + input_.below(80)) & 0xffffff;
    status.response_una_psn = (status.response_una_psn + input_.below(6)) & 0xffffff;
    ++status.ack_count;
    status.transmitted_psn.store((status.una_psn + input_.below(30)) & 0xffffff);
    status.sequence.fetch_add(1);
    send_report(number, 0x10010 + number);
  }

  // Any word of the status's NIC part.
  void change_status(uint32_t number) {
    QpStatus& status = nic_.channel().qp_status(number);
    auto* bytes = reinterpret_cast<std::byte*>(&status);
    const uint32_t words = offsetof(QpStatus, recv_posted) / 4;
    const uint32_t at = input_.below(4) == 0 ? input_.take<uint16_t>() % words : input_.below(34);
    const uint32_t value = input_.number();
    std::memcpy(bytes + at * 4, &value, 4);
    // A writer that stopped in the middle has a test of its own; here it would stop everything.
    if (at == 0) status.sequence.fetch_and(~1u);
    send_report(number, 0x10010 + number);
  }

  void complete_receives(uint32_t number) {
    QpStatus& status = nic_.channel().qp_status(number);
    auto& header = nic_.channel().header();
    const uint64_t at = header.arena_offset + input_.take<uint16_t>() * 16 % (1 << 16);
    RecvCompletion completion{.sn = input_.number(),
                              .status = input_.below(5),
                              .byte_len = input_.number(),
                              .imm_data = 1,
                              .flags = input_.below(8),
                              .reserved = {}};
    std::memcpy(nic_.segment() + at, &completion, sizeof(completion));
    const uint32_t completed = status.recv_completed.load();
    status.recv_completed.store(input_.below(8) == 0 ? input_.take<uint32_t>()
                                                     : completed + input_.below(4));
    send_report(number, 0x10010 + number);
  }

  void send_report(uint32_t index, uint32_t qpn) {
    const MetaReport report{.status_index = index, .qpn = qpn, .reserved = {}};
    nic_.channel().metas.enqueue_bulk(&report, 1);
  }
  void report() { send_report(input_.number(), 0x10010 + input_.number()); }

  void take_descriptors() {
    SendDescriptor d;
    RingElement extra[kMaxExtraElements];
    for (RingEnd* ring : {&nic_.channel().sends, &nic_.channel().urgent}) {
      while (ring->dequeue_burst(&d, 1) == 1) {
        // The driver says nothing that would cost it its connection, whatever it was told.
        require(d.op >= SendOp::kWrite && d.op <= SendOp::kCreditNotify);
        require(d.length_bytes <= kMaxChunkBytes && d.extra_elements <= kMaxExtraElements);
        require(d.extra_elements == 0 ||
                ring->dequeue_burst(extra, d.extra_elements) == d.extra_elements);
      }
    }
  }

  // Not about the command and response ring: a command that is never answered is waited for until
  // hostnicd's connection ends, as it must be.
  void lie_about_rings() {
    auto& rings = nic_.channel().header().rings;
    switch (input_.below(4)) {
      case 0:
        rings[kSendRing].consumer.fetch_add(input_.number());
        break;
      case 1:
        rings[kUrgentRing].consumer.fetch_add(input_.number());
        break;
      case 2:
        rings[kMetaRing].producer.fetch_add(input_.number());
        break;
      default: {
        // An answer that nobody waits for.
        const auto response = input_.take<CommandResponse>();
        if (nic_.channel().responses.free_count() > 8)
          nic_.channel().responses.enqueue_bulk(&response, 1);
      }
    }
  }

  void change_state(Program& program) {
    QpAttr attr;
    attr.state = input_.below(2) == 0 ? QpState::kErr : QpState::kReset;
    if (driver_.modify_qp(program.qp, attr, kQpState) != 0) return;
    if (attr.state == QpState::kErr) return;
    poll_nothing(program);
    program.next_send = program.signalled.size();
    program.next_receive = program.receives;
    connect(program);
  }

  void progress() {
    now_ns_ += 1 + input_.below(8) * input_.number() % 50'000'000ull;
    std::lock_guard lock(driver_.mutex());
    driver_.progress(now_ns_);
  }

  void poll(Program& program) {
    Completion completions[16];
    for (int n; (n = program.send_cq->poll(completions, 16)) > 0;) {
      for (int i = 0; i < n; ++i) {
        const uint64_t id = completions[i].wr_id;
        require(id >= program.next_send && id < program.signalled.size());
        // Unsignalled ones complete in error only; signalled ones are never passed over.
        require(program.signalled[id] || completions[i].status != WcStatus::kSuccess);
        for (; program.next_send < id; ++program.next_send)
          require(!program.signalled[program.next_send]);
        program.next_send = id + 1;
      }
    }
    for (int n; (n = program.recv_cq->poll(completions, 16)) > 0;) {
      for (int i = 0; i < n; ++i)
        require(completions[i].wr_id == program.next_receive++ &&
                program.next_receive <= program.receives);
    }
  }
  // RESET has taken the completions with it.
  static void poll_nothing(Program& program) {
    Completion completion;
    require(program.send_cq->poll(&completion, 1) == 0);
    require(program.recv_cq->poll(&completion, 1) == 0);
  }

  Input input_;
  LyingNic nic_;
  Driver driver_;
  Program programs_[kQps];
  TimeNs now_ns_ = 1'000'000'000;
};

}  // namespace
}  // namespace hostnic::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hostnic::fuzz::Run(data, size).run();
  return 0;
}
