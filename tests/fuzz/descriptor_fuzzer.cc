// SPDX-License-Identifier: BSD-3-Clause
// A client that writes whatever it likes into its segment: send and urgent descriptors, all
// commands, receive slots, read destinations, ring positions; it comes and goes, and somebody asks
// what the NIC has (`show qp`) at any moment. The NIC must not read or write outside, not change
// memory of others, not disturb another client's connection, and keep nothing afterwards.
//
// An input is a program: operations with their arguments, see step().
#include <sys/mman.h>

#include <memory>
#include <vector>

#include "dataplane/nic/limits.h"
#include "dataplane/simulation/small_eal.h"
#include "dataplane/simulation/world.h"
#include "tests/fuzz/input.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::fuzz {
namespace {

using sim::Endpoint;
using sim::Memory;

constexpr uint32_t kHostileId = 99, kHostilePd = 5, kStatuses = 4;
constexpr uint64_t kArenaBytes = 1 << 16;

// Two hosts with an honest connection, and memory that nobody may change.
struct Honest {
  Honest()
      : world(
            {.hosts = 3, .mtu_bytes = 1024, .windows = {64}, .pool_scale = 0.1, .roce_hosts = {2}}),
        near(world.make_endpoint(0, {.psn = 0x5a5a5a})),
        far(world.make_endpoint(1, {.psn = 0xa5a5a5})),
        source(4096, 0x11),
        target(4096),
        closed(8192, 0x77),
        own(12288, 0x33),
        source_key(near->host->add_mr(source, 0)),
        target_key(far->host->add_mr(target)),
        closed_key(near->host->add_mr(closed)) {
    world.connect(*near, *far);
    MrTable::Init init;
    init.client_id = kHostileId;
    init.pd = kHostilePd;
    init.access = sim::kAllAccess;
    init.va = init.iova = own.address();
    init.length_bytes = own.size();
    init.mem_fd = world.mem_fd();
    // A page is mapped, one is reached by system call, and one is late.
    for (uint64_t at = 0; at < own.size(); at += 4096) {
      auto* host = reinterpret_cast<std::byte*>(own.data() + at);
      init.pieces.push_back({.va = own.address(at),
                             .length_bytes = 4096,
                             .host = at == 0 ? host : nullptr,
                             .space_id = kHostileId,
                             .space_offset = own.address(at),
                             .late_host = at == 8192 ? host : nullptr,
                             .slices = at == 8192 ? &own_slice : nullptr});
    }
    own_key = world.mrs().add(std::move(init));
    require(own_key != 0);
  }

  // The honest connection works.
  void use() {
    // What the hostile one has late comes and goes.
    own_slice =
        static_cast<uint8_t>(generation % 2 == 0 ? SliceState::kAside : SliceState::kFilled);
    std::memset(source.data(), ++generation, 1024);
    const Sge sge{source.address(), 1024, source_key};
    driver::SendRequest request;
    request.wr_id = generation;
    request.op = SendOp::kWrite;
    request.signalled = true;
    request.sges = {&sge, 1};
    request.remote_va = target.address();
    request.rkey = target_key;
    require(near->post_send(request) == 0);
    bool done = false;
    world.run_until(
        [&] {
          for (const auto& c : near->poll(*near->send_cq))
            done = c.status == driver::WcStatus::kSuccess && c.wr_id == generation;
          return done;
        },
        sim::kSecond);
    require(done && std::memcmp(source.data(), target.data(), 1024) == 0);
  }
  void check() {
    require(closed.data()[0] == 0x77 &&
            std::memcmp(closed.data(), closed.data() + 1, closed.size() - 1) == 0);
    for (const Memory* memory : {&source, &target, &closed, &own})
      require(memory->surroundings_intact());
  }

  sim::World world;
  std::unique_ptr<Endpoint> near, far;
  Memory source, target, closed, own;
  uint32_t source_key, target_key, closed_key, own_key = 0;
  uint8_t own_slice = 0;
  uint8_t generation = 0;
};

class Hostile {
 public:
  Hostile(Honest& honest, Input input) : honest_(honest), input_(input) {
    ClientChannel::Settings settings;
    settings.client_id = kHostileId;
    settings.max_qps = kStatuses;
    settings.arena_bytes = kArenaBytes;
    settings.program = "hostile";
    auto made = ClientChannel::create(settings);
    require(made.has_value());
    channel_ = std::move(*made);
    const SegmentMemory& theirs = channel_->memory();
    require(memory_.map(channel_->segment_fd(), theirs.segment_bytes(), channel_->arena_fd(),
                        theirs.arena_bytes()) == 0);
    segment_ = memory_.base();
    require(map_.use(memory_) == 0);
    arena_ = map_.header().arena_offset;
    attach();
  }
  ~Hostile() { nic().detach(channel_.get()); }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 200; ++steps) step();
    turn(4);
    read_responses();
  }

 private:
  Nic& nic() { return honest_.world.host(0).nic(); }

  void step() {
    switch (input_.below(14)) {
      case 0:
        return send(map_.sends);
      case 1:
        return send(map_.urgent);
      case 2:
        return create();
      case 3:
        return modify();
      case 4:
        return raw_command();
      case 5:
        return fill_slots();
      case 6:
        return scribble();
      case 7:
        map_.qp_status(input_.below(kStatuses)).recv_posted.store(input_.number());
        return;
      case 10:
        return window();
      case 11:
        return group();
      case 12:
        return prompt();
      case 13:
        // The session ends and the same rings come back: what they hold is still there.
        nic().detach(channel_.get());
        return attach();
      default:
        turn(1 + input_.below(4));
        read_responses();
    }
  }

  void turn(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      honest_.world.poll_nics();
      honest_.world.advance(500);
    }
  }

  void attach() {
    require(nic().attach(channel_.get()) == 0);
    qpns_.clear();
    windows_.clear();
  }

  // What commands at hostnicd's prompt do to a NIC, but for its impairments.
  void prompt() {
    switch (input_.below(4)) {
      case 0:
        require(!nic().views().nic().name.empty());
        return;
      case 1:
        for (uint32_t from = 0; from != NicViews::kNoMoreQps;)
          for (const QpView& qp : nic().views().qps(from)) require(qp.qpn != 0);
        return;
      case 2:
        require(nic().gauges().early_writes <= kEarlyWriteCapacity);
        return;
      default:
        return nic().clear_counters();
    }
  }

  void read_responses() {
    CommandResponse response;
    while (map_.responses.dequeue_burst(&response, 1) == 1) {
      if (response.qpn != 0) qpns_.push_back(response.qpn);
      if (response.window_key != 0) windows_.push_back(response.window_key);
    }
    MetaReport metas[16];
    while (map_.metas.dequeue_burst(metas, 16) > 0) {
    }
  }

  uint32_t some_qpn() {
    const uint32_t choice = input_.below(8);
    if (choice == 0) return honest_.near->qpn();
    if (choice == 1) return input_.take<uint32_t>();
    return qpns_.empty() ? 0x10011 : qpns_[choice % qpns_.size()];
  }
  uint32_t some_key() {
    const uint32_t keys[] = {
        honest_.own_key,   honest_.own_key, honest_.own_key, honest_.closed_key, 0,
        honest_.target_key};
    const uint32_t choice = input_.below(8);
    return choice < 6 ? keys[choice] : input_.take<uint32_t>();
  }
  uint32_t some_window() {
    const uint32_t choice = input_.below(8);
    if (choice == 0) return input_.take<uint32_t>();
    if (choice == 1) return some_key();
    const uint32_t key = windows_.empty() ? kWindowKeyBit : windows_[choice % windows_.size()];
    return choice == 2 ? key ^ input_.take<uint8_t>() : key;
  }
  uint64_t some_address() {
    const uint32_t choice = input_.below(8);
    const auto offset = input_.take<uint16_t>();
    if (choice < 5) return honest_.own.address(offset % 12300);
    if (choice == 5) return honest_.closed.address(offset % 8200);
    return choice == 6 ? uint64_t{0} - offset : input_.take<uint64_t>();
  }
  Sge some_sge() { return {some_address(), input_.take<uint16_t>(), some_key()}; }
  uint64_t some_offset() {
    const uint32_t choice = input_.below(16);
    return choice < 14 ? arena_ + choice * 4096 : input_.take<uint64_t>();
  }

  void send(RingEnd& ring) {
    RingElement elements[1 + 16] = {};
    SendDescriptor d{};
    d.op = static_cast<SendOp>(input_.below(10));
    d.flags = input_.take<uint8_t>();
    d.attempt = input_.take<uint8_t>();
    d.extra_elements = static_cast<uint8_t>(input_.below(12));
    d.qpn = some_qpn();
    d.psn = input_.number();
    d.length_bytes = input_.below(4) == 0 ? input_.take<uint32_t>() : input_.take<uint16_t>();
    d.va = some_address();
    d.key = input_.below(2) == 0 ? input_.number() : some_key();
    d.message_bytes = input_.below(4) == 0 ? input_.take<uint32_t>() : d.length_bytes;
    d.imm_data = input_.number();
    d.recv_sn = input_.number();
    d.first_response_psn = input_.number();
    d.epoch = static_cast<uint8_t>(input_.number());
    d.sge_count = static_cast<uint8_t>(input_.below(20));
    d.sge0 = some_sge();
    std::memcpy(&elements[0], &d, sizeof(d));
    // Not always as many as it says.
    const uint32_t extra = input_.below(8) == 0 ? input_.below(16) : d.extra_elements;
    for (uint32_t i = 0; i < extra; ++i) {
      for (uint32_t k = 0; k < kSgesPerElement && !input_.empty(); ++k) {
        const Sge sge = some_sge();
        std::memcpy(elements[1 + i].bytes + k * sizeof(Sge), &sge, sizeof(sge));
      }
    }
    ring.enqueue_bulk(elements, 1 + extra);
  }

  QpType some_type(uint8_t choice) {
    if (choice < 128) return QpType::kRc;
    if (choice < 136) return static_cast<QpType>(input_.take<uint32_t>());
    return choice < 200 ? QpType::kUd : QpType::kUc;
  }

  void window() {
    Command command{};
    switch (input_.below(4)) {
      case 0:
        command.kind = CommandKind::kCreateWindow;
        command.create_window = {kHostilePd, static_cast<WindowType>(input_.below(4))};
        break;
      case 1:
        command.kind = CommandKind::kDestroyWindow;
        command.destroy_window.key = some_window();
        break;
      case 2:
        command.kind = CommandKind::kBindWindow;
        command.bind_window = {
            .qpn = some_qpn(),
            .key = some_window(),
            .mr_key = some_key(),
            .access = input_.below(4) == 0 ? input_.take<uint32_t>() : input_.below(64),
            .va = some_address(),
            .length_bytes =
                input_.below(8) == 0 ? input_.take<uint64_t>() : input_.take<uint16_t>()};
        break;
      default:
        command.kind = CommandKind::kInvalidateWindow;
        command.invalidate_window = {some_qpn(), some_window()};
    }
    map_.commands.enqueue_bulk(&command, 1);
  }

  void group() {
    Command command{};
    if (input_.below(4) == 0) {
      command.kind = CommandKind::kFindHost;
      command.find_host.ip =
          input_.below(2) == 0 ? input_.take<uint32_t>() : raw(sim::address_of(input_.below(3)));
      map_.commands.enqueue_bulk(&command, 1);
      return;
    }
    command.kind = input_.below(3) == 0 ? CommandKind::kDetachGroup : CommandKind::kAttachGroup;
    command.group = {
        some_qpn(), input_.below(8) == 0 ? input_.take<uint32_t>() : 0xef000000u + input_.below(4)};
    map_.commands.enqueue_bulk(&command, 1);
  }

  void create() {
    Command command{};
    command.kind = CommandKind::kCreateQp;
    const auto choice = input_.take<uint8_t>();
    command.create_qp = {.status_index = choice % (kStatuses + 1),
                         .pd = kHostilePd,
                         .recv_queue_offset = some_offset(),
                         .recv_completion_offset = some_offset(),
                         .read_destination_offset = some_offset(),
                         .recv_entries = 1u << input_.below(8),
                         .recv_max_sge = static_cast<uint16_t>(input_.below(18)),
                         .read_destination_entries = static_cast<uint16_t>(1u << input_.below(5)),
                         .type = some_type(choice),
                         .recv_pd = kHostilePd};
    // A shared queue, whose words any other block of the arena may be, scribbles included.
    if (input_.below(4) == 0) command.create_qp.srq_offset = some_offset();
    if (input_.below(16) == 0) command.create_qp.recv_entries = input_.take<uint32_t>();
    if (input_.below(16) == 0) command.create_qp.read_destination_entries = input_.take<uint16_t>();
    map_.commands.enqueue_bulk(&command, 1);
  }

  QpState some_state() {
    const uint32_t choice = input_.below(9);
    return static_cast<QpState>(choice < 8 ? choice : input_.take<uint32_t>());
  }

  void modify() {
    Command command{};
    if (input_.below(8) == 0) {
      command.kind = CommandKind::kDestroyQp;
      command.destroy_qp.qpn = some_qpn();
      map_.commands.enqueue_bulk(&command, 1);
      return;
    }
    command.kind = CommandKind::kModifyQp;
    const uint32_t psn = input_.number();
    command.modify_qp = {.qpn = some_qpn(),
                         .state = some_state(),
                         .dest_qpn = some_qpn(),
                         .dest_ip = raw(sim::address_of(input_.below(3))),
                         .sq_psn = psn,
                         .rq_psn = input_.below(4) == 0 ? input_.number() : psn,
                         .access = input_.below(4) == 0 ? input_.take<uint32_t>() : sim::kAllAccess,
                         .path_mtu_bytes = static_cast<uint16_t>(256u << input_.below(6)),
                         .max_dest_rd_atomic = static_cast<uint8_t>(input_.below(20)),
                         .min_rnr_timer = input_.take<uint8_t>(),
                         .traffic_class = 0,
                         .hop_limit = 64,
                         .restart_sends = static_cast<uint8_t>(psn % 16 == 7),
                         .source_index = static_cast<uint8_t>(input_.below(4)),
                         .qkey = psn,
                         .peer_silent = static_cast<uint8_t>(psn % 8 == 3),
                         .reserved = {}};
    map_.commands.enqueue_bulk(&command, 1);
  }

  void raw_command() {
    Command command = input_.take<Command>();
    map_.commands.enqueue_bulk(&command, 1);
  }

  // Receive slots or read destinations, or anything, somewhere in the arena.
  void fill_slots() {
    const uint64_t at = input_.below(16) * 4096 + input_.below(8) * 16;
    if (input_.below(2) == 0) {
      RecvSlot slot{};
      slot.sn = input_.number();
      slot.sge_count = input_.below(20);
      std::memcpy(segment_ + arena_ + at, &slot, sizeof(slot));
      const Sge sge = some_sge();
      std::memcpy(segment_ + arena_ + at + sizeof(slot), &sge, sizeof(sge));
      return;
    }
    ReadDestination slot{};
    slot.read_number = input_.number();
    slot.length_bytes = input_.take<uint16_t>();
    slot.first_response_psn = input_.number();
    slot.sge_count = input_.below(20);
    slot.sge[0] = some_sge();
    std::memcpy(segment_ + arena_ + at, &slot, std::min(sizeof(slot), kArenaBytes - at));
  }

  // Ring positions, the words of the header, whole statuses.
  void scribble() {
    const uint32_t ring = input_.below(kRingCount);
    auto& indices = map_.header().rings[ring];
    switch (input_.below(4)) {
      case 0:
        indices.producer.fetch_add(input_.number());
        break;
      case 1:
        indices.consumer.store(input_.take<uint32_t>());
        break;
      case 2: {
        auto* status = reinterpret_cast<uint8_t*>(&map_.qp_status(input_.below(kStatuses)));
        const uint32_t at = input_.take<uint16_t>() % sizeof(QpStatus);
        const uint8_t value = input_.take<uint8_t>();
        std::memset(status + at, value, std::min<size_t>(64, sizeof(QpStatus) - at));
        break;
      }
      default: {
        const uint32_t at = input_.take<uint16_t>() % sizeof(SegmentHeader);
        segment_[at] = std::byte{input_.take<uint8_t>()};
      }
    }
  }

  Honest& honest_;
  Input input_;
  std::unique_ptr<ClientChannel> channel_;
  SegmentMemory memory_;
  std::byte* segment_ = nullptr;
  driver::SegmentMap map_;
  uint64_t arena_ = 0;
  std::vector<uint32_t> qpns_, windows_;
};

void nothing_left(Honest& honest) {
  static uint32_t inputs = 0;
  if (++inputs % 64 == 0) {
    honest.world.check_at_rest();
  } else {
    honest.world.run_for(20 * sim::kMicrosecond);
  }
  if (honest.world.failed()) {
    fmt::print(stderr, "{}\n", honest.world.report());
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
    hostnic::sim::free_unused();
    delete eal;
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Never destroyed: EAL is gone before static objects are.
  static auto& honest = *new hostnic::fuzz::Honest;
  hostnic::fuzz::Hostile(honest, {data, size}).run();
  honest.use();
  honest.check();
  hostnic::fuzz::nothing_left(honest);
  return 0;
}
