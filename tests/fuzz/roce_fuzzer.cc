// SPDX-License-Identifier: BSD-3-Clause
// Frames of the standard's RC from somebody on the network, for a NIC that speaks it: every opcode
// at every PSN, right and wrong keys, lengths and payloads, answers to what was and was not asked
// for, frames that a genuine peer sent, and bytes changed anywhere. The NIC must not read or write
// outside, not change memory that no key opens, not disturb another connection, and keep nothing
// afterwards. How many frames there were is said at the end.
//
// An input is a program: operations with their arguments, see step().
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/simulation/resources.h"
#include "dataplane/simulation/small_eal.h"
#include "dataplane/simulation/world.h"
#include "tests/fuzz/input.h"
#include "tests/support/rxe_recording.h"

namespace hostnic::fuzz {
namespace {

using sim::Endpoint;
using sim::Memory;

constexpr uint32_t kMtu = 1024, kFirstPsn = 0xfffff8;

sim::WorldSettings settings() {
  sim::WorldSettings settings;
  settings.mtu_bytes = kMtu;
  settings.windows = {64};
  settings.pool_scale = 0.1;
  settings.transport = Transport::kRoce;
  return settings;
}

sim::QpSettings qp_settings() {
  sim::QpSettings qp;
  qp.psn = kFirstPsn;
  qp.max_rd_atomic = 4;
  qp.timeout = 1;  // gives up after 64 ms
  return qp;
}

// The frames of a genuine peer at this path MTU, in the order in which they were sent.
struct RecordedFrame {
  wire::Packet packet;
  std::vector<std::byte> payload;
  bool begins = false;  // a recording
};

std::vector<RecordedFrame> read_recorded() {
  std::vector<RecordedFrame> frames;
  for (const auto& entry : std::filesystem::directory_iterator(recording::folder())) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().filename().string();
    bool begins = true;
    for (const auto& f : recording::read(name.substr(0, name.find('.'))).frames) {
      const auto payload =
          std::span(f.bytes).subspan(f.packet.header_bytes, f.packet.payload_bytes);
      frames.push_back({f.packet, {payload.begin(), payload.end()}, begins});
      begins = false;
    }
  }
  return frames;
}

uint64_t frames_sent = 0;

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
        source_key(honest_near->host->add_mr(source, 0)),
        target_key(honest_far->host->add_mr(target)),
        open_key(victim->host->add_mr(open)),
        closed_key(victim->host->add_mr(closed, kAccessLocalWrite, sim::Reach::kMapped, 2)) {
    world.connect(*honest_near, *honest_far);
    world.to_init(*peer);
    world.to_init(*victim);
  }

  void connect() {
    world.reset_to_init(*victim);
    world.reset_to_init(*peer);
    world.to_rtr(*victim, *peer);
    world.to_rts(*victim);
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
    require(closed.data()[0] == 0x77 &&
            std::memcmp(closed.data(), closed.data() + 1, closed.size() - 1) == 0);
    for (const Memory* memory : {&source, &target, &open, &closed})
      require(memory->surroundings_intact());
  }

  sim::World world;
  std::unique_ptr<Endpoint> honest_near, honest_far, peer, victim;
  Memory source, target, open, closed;
  uint32_t source_key, target_key, open_key, closed_key;
  std::vector<RecordedFrame> recorded = read_recorded();
  uint8_t generation = 0;
};

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
    switch (input_.below(8)) {
      case 0:
        return ground_.world.run_for(input_.below(64) * sim::kMicrosecond);
      case 1:
        return post();
      case 2: {
        const Sge sge{ground_.open.address(input_.below(64) * 64), input_.below(16) * 256u,
                      ground_.open_key};
        ground_.victim->post_recv({.wr_id = 1, .sges = {&sge, 1}});
        return;
      }
      case 3:
      case 4:
        return recorded();
      default:
        return frame();
    }
  }

  // The victim asks for something itself, so that answers may mean something.
  void post() {
    const Sge sge{ground_.open.address(8192 + input_.below(32) * 64), input_.below(8) * 512u,
                  ground_.open_key};
    driver::SendRequest request;
    request.wr_id = 2;
    request.op = static_cast<SendOp>(1 + input_.below(7));
    request.signalled = true;
    request.sges = {&sge, 1};
    request.remote_va = 0x1000;
    request.rkey = 1;
    ground_.victim->post_send(request);
  }

  wire::Opcode some_opcode() {
    const auto choice = input_.take<uint8_t>();
    if (choice < 0x18) return wire::Opcode{choice};
    return choice < 0x20 ? wire::Opcode::kCnp : wire::Opcode{static_cast<uint8_t>(choice % 0x18)};
  }

  wire::Packet headers() {
    wire::Packet p;
    p.opcode = some_opcode();
    if (wire::find_opcode(wire::Dialect::kRocev2, p.opcode) == nullptr)
      p.opcode = wire::Opcode::kRcAck;
    const auto flags = input_.take<uint8_t>();
    p.ack_request = (flags & 1) != 0;
    p.solicited = (flags & 2) != 0;
    p.fecn = (flags & 4) != 0;
    p.dest_qpn = Qpn{ground_.victim->qpn()};
    // Mostly what comes next or near it.
    p.psn = (flags & 8) != 0 ? Psn(input_.take<uint32_t>()) : next_ + (flags >> 4);
    Memory& memory = (flags & 0x30) == 0x30 ? ground_.closed : ground_.open;
    const uint64_t offset = input_.take<uint8_t>() * uint64_t{64};
    const uint32_t key = &memory == &ground_.closed ? ground_.closed_key : ground_.open_key;
    const uint32_t length = input_.below(8) == 0 ? input_.take<uint32_t>() : input_.number();
    p.reth = {memory.address() + offset, input_.below(8) == 0 ? input_.take<uint32_t>() : key,
              length};
    p.atomic = {memory.address() + offset, p.reth.key, input_.take<uint64_t>(), flags};
    p.aeth = {static_cast<wire::AckKind>(input_.below(4)), static_cast<uint8_t>(input_.below(32)),
              flags};
    p.payload_bytes = 0;
    if (wire::opcode_info(p.opcode).has_payload) {
      const uint32_t choice = input_.below(4);
      p.payload_bytes =
          static_cast<uint16_t>(choice == 0   ? kMtu
                                : choice == 1 ? std::min(length, kMtu)
                                              : input_.take<uint16_t>() % (kMtu + 64));
    }
    return p;
  }

  void frame() {
    const wire::Packet p = headers();
    send(p, {});
  }

  // A frame of a genuine peer, the one that followed the last or any, addressed to the victim: its
  // queue pair, a PSN near what comes next, memory that there is.
  void recorded() {
    const auto flags = input_.take<uint8_t>();
    const auto& frames = ground_.recorded;
    if ((flags & 1) == 0) recorded_ = input_.take<uint16_t>();
    recorded_ %= frames.size();
    const RecordedFrame& frame = frames[recorded_++];
    if (frame.begins) shift_psns_ = next_.value() - frame.packet.psn.value();
    wire::Packet p = frame.packet;
    p.dest_qpn = Qpn{ground_.victim->qpn()};
    p.psn = (flags & 2) != 0 ? next_ + (flags >> 4) : p.psn + shift_psns_;
    const uint64_t va = ground_.open.address() + p.reth.va % ground_.open.size();
    if ((flags & 4) == 0) {
      p.reth.va = p.atomic.va = va;
      p.reth.key = p.atomic.rkey = ground_.open_key;
    }
    send(p, frame.payload);
  }

  void send(const wire::Packet& p, std::span<const std::byte> payload) {
    rte_mbuf* packet = rte_pktmbuf_alloc(ground_.world.pools().data);
    if (packet == nullptr) return;
    const auto flow =
        wire::make_flow_template({}, {}, sim::address_of(0), sim::address_of(1), 0xc123, 0);
    auto* bytes = rte_pktmbuf_mtod(packet, std::byte*);
    const size_t header_bytes = wire::build(flow, p, false, {}, {bytes, wire::kMaxHeaderBytes});
    std::memset(bytes + header_bytes, 0x44, p.payload_bytes);
    if (!payload.empty()) std::memcpy(bytes + header_bytes, payload.data(), payload.size());
    packet->data_len = static_cast<uint16_t>(header_bytes + p.payload_bytes);
    packet->pkt_len = packet->data_len;
    // Now and then bytes are others.
    const uint32_t choice = input_.below(16);
    for (uint32_t changes = choice < 4 ? choice : 0; changes > 0; --changes)
      bytes[wire::kFlowBytes + input_.take<uint16_t>() % (packet->data_len - wire::kFlowBytes)] =
          std::byte{input_.take<uint8_t>()};
    ++frames_sent;
    ground_.world.wire().inject(1, packet);
    ground_.world.run_for(sim::kMicrosecond);
    if (p.psn == next_ && wire::is_request(p.opcode)) next_ = p.psn + 1;
  }

  Ground& ground_;
  Input input_;
  Psn next_{kFirstPsn};
  size_t recorded_ = 0;
  uint32_t shift_psns_ = 0;  // from a recording's PSNs to the victim's
};

void nothing_left(Ground& ground) {
  static uint32_t inputs = 0;
  if (++inputs % 64 == 0) {
    require(ground.world.modify_state(*ground.victim, QpState::kReset) == 0);
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
