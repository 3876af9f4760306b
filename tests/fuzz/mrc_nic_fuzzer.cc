// SPDX-License-Identifier: BSD-3-Clause
// Frames of MRC from somebody on the network, for a NIC that speaks it (docs/mrc.md): WRITEs at
// every PSN, with right and wrong keys, numbers and lengths, whole and trimmed; SACKs, NACKs,
// transport ACKs and probes about what was and was not sent; endpoint packets; bytes changed
// anywhere. The NIC must not read or write outside, not change memory whose key nobody has said,
// not disturb another connection, and keep nothing afterwards. How many frames there were is said
// at the end.
//
// An input is a program: operations with their arguments, see step().
#include <memory>
#include <vector>

#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/simulation/resources.h"
#include "dataplane/simulation/small_eal.h"
#include "dataplane/simulation/world.h"
#include "protocol/wire/mrc/packet.h"
#include "tests/fuzz/input.h"

namespace hostnic::fuzz {
namespace {

namespace wm = wire::mrc;
using sim::Endpoint;
using sim::Memory;

constexpr uint32_t kMtu = 1024, kFirstPsn = 0xfffff8;
constexpr uint16_t kSomePort = 0xc123;

sim::WorldSettings settings() {
  sim::WorldSettings settings;
  settings.mtu_bytes = kMtu;
  settings.windows = {128};
  settings.pool_scale = 0.1;
  settings.transport = Transport::kMrc;
  settings.mrc_entropy_values = 4;
  settings.trace = false;
  return settings;
}

sim::QpSettings qp_settings() {
  sim::QpSettings qp;
  qp.psn = kFirstPsn;
  qp.timeout = 1;  // gives up after 64 ms
  return qp;
}

uint64_t frames_sent = 0;

// What the victim sent last, which answers may be about.
struct Sent {
  Psn psn{kFirstPsn};
  uint16_t entropy = kSomePort, timestamp = 0;
};

// Host 1's queue pair is attacked, in the name of host 0's; beside it runs an honest connection.
struct Ground {
  Ground()
      : world(settings()),
        honest_near(world.make_endpoint(0, qp_settings())),
        honest_far(world.make_endpoint(1, qp_settings())),
        peer(world.make_endpoint(0, qp_settings())),
        victim(world.make_endpoint(1, qp_settings())),
        source(4096, 0x11),
        target(4096),
        open(16384, 0x33),
        closed(8192, 0x77),
        secret(8192, 0x55),
        source_key(honest_near->host->add_mr(source, 0)),
        target_key(honest_far->host->add_mr(target)),
        open_key(victim->host->add_mr(open)),
        closed_key(victim->host->add_mr(closed, kAccessLocalWrite, sim::Reach::kMapped, 2)),
        secret_key(victim->host->add_mr(secret)) {
    world.connect(*honest_near, *honest_far);
    world.to_init(*peer);
    world.to_init(*victim);
    world.wire().set_tap([this](uint32_t from, uint32_t, rte_mbuf* packet) {
      wire::Packet p;
      if (from != 1 || parse_packet(packet, p) != wire::ParseError::kNone) return;
      if (raw(p.dest_qpn) != peer->qpn() || !wire::opcode_info(p.opcode).has_payload) return;
      sent = {p.psn, p.src_port, wm::headers_at(p.unread_headers).timestamp.value};
    });
  }

  void connect() {
    world.reset_to_init(*victim);
    world.reset_to_init(*peer);
    world.to_rtr(*victim, *peer);
    world.to_rts(*victim);
    sent = {};
  }

  // The honest connection works.
  void use() {
    std::memset(source.data(), ++generation, kMtu);
    const Sge sge{source.address(), kMtu, source_key};
    driver::SendRequest request;
    request.wr_id = generation;
    request.op = SendOp::kWrite;
    request.signalled = true;
    request.sges = {&sge, 1};
    request.remote_va = target.address();
    request.rkey = target_key;
    require(honest_near->post_send(request) == 0);
    bool done = false;
    world.run_until(
        [&] {
          for (const auto& c : honest_near->poll(*honest_near->send_cq))
            done = c.status == driver::WcStatus::kSuccess && c.wr_id == generation;
          return done;
        },
        sim::kSecond);
    require(done && std::memcmp(source.data(), target.data(), kMtu) == 0);
  }

  void check() {
    for (const auto& [memory, byte] : {std::pair{&closed, 0x77}, std::pair{&secret, 0x55}})
      require(memory->data()[0] == byte &&
              std::memcmp(memory->data(), memory->data() + 1, memory->size() - 1) == 0);
    for (const Memory* memory : {&source, &target, &open, &closed, &secret})
      require(memory->surroundings_intact());
  }

  sim::World world;
  std::unique_ptr<Endpoint> honest_near, honest_far, peer, victim;
  // A frame that says their key may write the victim's: but not `closed`, since its rights say so,
  // nor `secret`, since its key is in no frame.
  Memory source, target, open, closed, secret;
  uint32_t source_key, target_key, open_key, closed_key, secret_key;
  Sent sent;
  uint8_t generation = 0;
};

constexpr wm::Opcode kAnswers[] = {wm::Opcode::kAck,
                                   wm::Opcode::kSack,
                                   wm::Opcode::kSack,
                                   wm::Opcode::kNack,
                                   wm::Opcode::kSack,
                                   wm::Opcode::kProbe,
                                   wm::Opcode::kEndpointRequest,
                                   wm::Opcode::kEndpointResponse};
constexpr wm::NackReason kReasons[] = {
    wm::NackReason::kTrimmed,        wm::NackReason::kTrimmedLastHop,
    wm::NackReason::kNoBitmap,       wm::NackReason::kNoPacketBuffer,
    wm::NackReason::kNoResource,     wm::NackReason::kPsnOutOfWindow,
    wm::NackReason::kUnexpectedEvent};

class Attack {
 public:
  Attack(Ground& ground, Input input) : ground_(ground), input_(input) { ground_.connect(); }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 200; ++steps) step();
    ground_.world.run_for(20 * sim::kMicrosecond);
    ground_.victim->poll(*ground_.victim->send_cq);
    ground_.victim->poll(*ground_.victim->recv_cq);
  }

 private:
  void step() {
    switch (input_.below(12)) {
      case 0:
        // Now and then until probes, retransmissions and timeouts are due.
        return ground_.world.run_for(input_.below(8) == 0 ? input_.below(80) * sim::kMillisecond / 8
                                                          : input_.below(64) * sim::kMicrosecond);
      case 1:
        return post();
      case 2: {
        const Sge sge{ground_.open.address(input_.below(64) * 64), input_.below(16) * 256u,
                      ground_.open_key};
        ground_.victim->post_recv({.wr_id = 1, .sges = {&sge, 1}});
        return;
      }
      case 3:
        return again();
      case 4:
      case 5:
      case 6:
        return send(answer());
      default:
        return send(write());
    }
  }

  // The victim asks for something itself, so that answers may mean something.
  void post() {
    const Sge sge{ground_.open.address(8192 + input_.below(32) * 64), input_.below(14) * 512u,
                  ground_.open_key};
    driver::SendRequest request;
    request.wr_id = 2;
    request.op = input_.below(4) == 0 ? SendOp::kWriteImm : SendOp::kWrite;
    request.signalled = true;
    request.sges = {&sge, 1};
    request.remote_va = 0x1000;
    request.rkey = 1;
    ground_.victim->post_send(request);
  }

  // Mostly what comes next or near it, or the edges of the window.
  Psn near(Psn psn) {
    const auto choice = input_.take<uint8_t>();
    if (choice < 0xc0) return psn + choice % 8;
    if (choice < 0xf0) return psn + (input_.take<uint8_t>() + Psn::kMask - 100);
    return Psn(input_.take<uint32_t>());
  }

  wm::Packet headers(wm::Opcode opcode) {
    wm::Packet p;
    p.opcode = opcode;
    const auto flags = input_.take<uint8_t>();
    p.ack_request = (flags & 1) != 0;
    p.solicited = (flags & 2) != 0;
    p.retransmission = (flags & 4) != 0;
    p.has_timestamp = (flags & 8) != 0;
    p.dest_qpn = Qpn{ground_.victim->qpn()};
    if ((flags & 0xf0) == 0xf0) p.dest_qpn = wm::kEndpointQpn;
    return p;
  }

  wm::Packet write() {
    wm::Packet p = headers(wm::Opcode{static_cast<uint8_t>(0xc6 + input_.below(6))});
    p.psn = near(next_);
    const auto choice = input_.take<uint8_t>();
    const uint32_t numbers = choice % 4;
    p.meth = {static_cast<uint16_t>(numbers == 0 ? input_.take<uint16_t>() : next_imm_),
              static_cast<uint16_t>(next_imm_ + numbers)};
    Memory& memory = choice < 0x20 ? ground_.closed : choice < 0x30 ? ground_.secret : ground_.open;
    const uint32_t key = &memory == &ground_.closed ? ground_.closed_key : ground_.open_key;
    const bool is_only =
        p.opcode == wm::Opcode::kWriteOnly || p.opcode == wm::Opcode::kWriteOnlyImm;
    const uint32_t bytes = choice < 0x80 ? kMtu : input_.number() % (kMtu + 64);
    p.payload_bytes = static_cast<uint16_t>(bytes);
    p.reth = {memory.address() + input_.take<uint8_t>() * uint64_t{64},
              input_.below(16) == 0 ? input_.take<uint32_t>() : key,
              is_only ? bytes : bytes + input_.number()};
    if (input_.below(16) == 0) p.reth.length_bytes = input_.take<uint32_t>();
    return p;
  }

  wm::Packet answer() {
    wm::Packet p = headers(kAnswers[input_.below(8)]);
    const Sent& sent = ground_.sent;
    const auto flags = input_.take<uint8_t>();
    const Psn about = near(sent.psn + (Psn::kMask - 3));
    const uint32_t entropy = (flags & 1) != 0 ? input_.take<uint32_t>() : sent.entropy;
    const uint16_t timestamp = (flags & 2) != 0 ? input_.take<uint16_t>() : sent.timestamp;
    p.psn = about;
    p.aeth = {(flags & 4) != 0 ? wire::AckKind::kAck : wire::AckKind{input_.take<uint8_t>()},
              static_cast<uint8_t>(input_.below(32)), flags};
    const auto offset = static_cast<int16_t>((flags & 8) != 0 ? input_.take<uint16_t>() : 1);
    p.seth = {.mark = wm::PathMark{static_cast<uint8_t>(flags >> 4 & 3)},
              .answers_probe = (flags & 0x40) != 0,
              .ack_offset = offset,
              .probe_id = static_cast<uint16_t>(flags & 7),
              .entropy = entropy,
              .contexts = {},
              .cumulative_psn = about,
              .mpr_units = static_cast<uint8_t>(input_.below(4)),
              .sack_offset = offset,
              .bitmap = (flags & 0x80) != 0 ? input_.take<uint64_t>() : input_.take<uint8_t>()};
    p.cc_state = {.timestamp = timestamp,
                  .out_of_order_count = flags,
                  .restores_window = (flags & 1) != 0,
                  .window_penalty = static_cast<uint8_t>((flags & 0x20) != 0 ? flags : 0),
                  .received_units = flags};
    p.neth.reason = kReasons[flags % std::size(kReasons)];
    p.neth.psn = about;
    p.neth.entropy = entropy;
    p.neth.timestamp = timestamp;
    p.peth.probe_id = timestamp;
    p.erth.operation = p.eeth.operation = wm::EndpointOperation{static_cast<uint8_t>(flags & 3)};
    p.erth.port_status_mask = entropy;
    return p;
  }

  void send(wm::Packet headers) {
    if (!wm::find_opcode(headers.opcode)->is_write) headers.payload_bytes = 0;
    // Strangers attack the honest connection, too.
    const bool is_stranger = input_.below(32) == 0;
    if (is_stranger) headers.dest_qpn = Qpn{ground_.honest_far->qpn()};
    auto flow = wire::make_flow_template({}, {}, sim::address_of(is_stranger ? 7 : 0),
                                         sim::address_of(1), kSomePort, 0);
    wire::set_source_port(flow, static_cast<uint16_t>(kSomePort + input_.below(4)));
    const size_t bytes = wire::kFlowBytes + wm::header_bytes(headers) + headers.payload_bytes;
    frame_.assign(bytes, std::byte{0x44});
    wire::write_flow(flow, bytes - wire::kEthernetBytes, frame_.data());
    wm::build(headers, false, std::span(frame_).subspan(wire::kFlowBytes));
    deliver();
    if (headers.psn == next_ && headers.payload_bytes != 0) {
      next_ = headers.psn + 1;
      next_imm_ += headers.opcode == wm::Opcode::kWriteLastImm ||
                   headers.opcode == wm::Opcode::kWriteOnlyImm;
    }
  }

  // The frame before once more.
  void again() {
    if (!frame_.empty()) deliver();
  }

  // The frame arrives, now and then with other bytes or another length, marked, or trimmed.
  void deliver() {
    const uint32_t choice = input_.below(32);
    for (uint32_t changes = choice < 8 ? choice & 3 : 0; changes > 0; --changes)
      frame_[wire::kFlowBytes + input_.take<uint16_t>() % (frame_.size() - wire::kFlowBytes)] =
          std::byte{input_.take<uint8_t>()};
    size_t bytes = frame_.size();
    const bool is_trimmed = choice == 8;
    if (is_trimmed || choice == 9 || choice == 10) {
      bytes = wire::kFlowBytes + input_.take<uint16_t>() % (kMtu + 128);
      frame_.resize(std::max(bytes, frame_.size()), std::byte{0x44});
      if (choice != 10)
        wire::set_ip_bytes(frame_, static_cast<uint16_t>(bytes - wire::kEthernetBytes));
    }
    if (choice == 11) wire::mark_congestion(frame_);
    if (says_secret_key()) return;
    rte_mbuf* packet = rte_pktmbuf_alloc(ground_.world.pools().data);
    if (packet == nullptr) return;
    std::memcpy(rte_pktmbuf_mtod(packet, std::byte*), frame_.data(), bytes);
    packet->data_len = static_cast<uint16_t>(bytes);
    packet->pkt_len = packet->data_len;
    if (is_trimmed) packet->ol_flags |= trimmed_flag();
    ++frames_sent;
    ground_.world.wire().inject(1, packet);
    ground_.world.run_for(sim::kMicrosecond);
  }

  bool says_secret_key() const {
    const uint32_t key = __builtin_bswap32(ground_.secret_key);
    const auto bytes = std::as_bytes(std::span(&key, 1));
    const auto headers = std::span(frame_).first(std::min(frame_.size(), wire::kMaxHeaderBytes));
    return std::search(headers.begin(), headers.end(), bytes.begin(), bytes.end()) != headers.end();
  }

  Ground& ground_;
  Input input_;
  std::vector<std::byte> frame_;
  Psn next_{kFirstPsn};
  uint16_t next_imm_ = 0;
};

void nothing_left(Ground& ground) {
  static uint32_t inputs = 0;
  if (++inputs % 64 == 0) {
    // What was received ahead is marked until the next connection.
    ground.connect();
    ground.world.check_at_rest();
  }
  if (ground.world.failed()) {
    fmt::print(stderr, "{}\n", ground.world.report());
    std::abort();
  }
}

}  // namespace
}  // namespace hostnic::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  static hostnic::SmallEal* eal = nullptr;
  eal = new hostnic::SmallEal("fuzz");
  hostnic::fuzz::require(bool{*eal});
  std::atexit([] {
    fmt::print(stderr, "{} frames\n", hostnic::fuzz::frames_sent);
    hostnic::sim::free_unused();
    delete eal;
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Never destroyed: EAL is gone before static objects are.
  static auto& ground = *new hostnic::fuzz::Ground;
  hostnic::fuzz::Attack(ground, {data, size}).run();
  ground.use();
  ground.check();
  hostnic::fuzz::nothing_left(ground);
  return 0;
}
