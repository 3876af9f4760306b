// SPDX-License-Identifier: BSD-3-Clause
#include "bench/micro/nic_bench.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <sys/mman.h>

#include <cstring>
#include <stdexcept>

#include "dataplane/nic/packet/packet_release.h"

namespace hostnic::bench {
namespace {

constexpr uint32_t kPd = 1;
constexpr uint32_t kAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead;
constexpr uint64_t kReadDestinationBytes = kOutstandingReads * sizeof(ReadDestination);
// Segment memory of a QP's: receive queue, completions, read destinations.
constexpr uint64_t kQpArenaBytes = 64 + 64 + kReadDestinationBytes;

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

}  // namespace

Ipv4Address address_of(uint32_t index) { return Ipv4Address{0x0a000001u + index}; }

uint16_t NullPort::transmit(uint16_t, rte_mbuf** packets, uint16_t count) {
  for (uint16_t i = 0; i < count; ++i) release_packet(packets[i]);
  transmitted_ += count;
  return count;
}

Buffer::Buffer(size_t bytes, uint8_t seed) : bytes_(bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(at != MAP_FAILED, fmt::format("no memory for a buffer of {} bytes", bytes));
  data_ = static_cast<std::byte*>(at);
  // 251 is prime: no two pages look alike.
  for (size_t i = 0; i < bytes; ++i)
    data_[i] = static_cast<std::byte>(seed == 0 ? 0 : seed + i % 251);
}
Buffer::~Buffer() { munmap(data_, bytes_); }

NicBench::NicBench(Port& port, const Buffer& memory, const NicBenchSettings& settings)
    : memory_(memory) {
  static uint32_t number = 0;
  if (settings.pools == nullptr) {
    own_pools_ =
        create_mbuf_pools(fmt::format("bench{}", number++), kMtuBytes, kPoolScale, SOCKET_ID_ANY);
    require(own_pools_.header != nullptr, fmt::format("packet pools: {}", rte_strerror(rte_errno)));
  }
  NicSettings nic;
  nic.index = settings.index;
  nic.ip = address_of(settings.index);
  nic.mtu_bytes = kMtuBytes;
  nic.max_qps = settings.qps;
  nic.always_icrc = settings.with_icrc;
  nic.segmentation = settings.segmentation;
  nic.transport = settings.transport;
  nic_ = std::make_unique<Nic>(nic, mrs_, settings.pools == nullptr ? own_pools_ : *settings.pools,
                               port);
  auto channel = ClientChannel::create({.client_id = 1,
                                        .max_qps = settings.qps,
                                        .arena_bytes = (1 << 20) + 2 * kQpArenaBytes * settings.qps,
                                        .program = "bench",
                                        .pid = 0});
  require(channel.has_value(), "client segment");
  channel_ = std::move(*channel);
  require(nic_->attach(channel_.get()) == 0, "attach");
  require(segment_.use(channel_->memory()) == 0, "the driver's ends of the rings");
  MrTable::Init init{.client_id = 1,
                     .pd = kPd,
                     .access = kAccess,
                     .va = memory.address(),
                     .iova = memory.address(),
                     .length_bytes = memory.size()};
  init.pieces.push_back({.va = memory.address(),
                         .length_bytes = memory.size(),
                         .host = memory.data(),
                         .space_id = settings.index + 1,
                         .space_offset = memory.address()});
  key_ = mrs_.add(std::move(init));
  for (uint32_t index = 0; index < settings.qps; ++index) {
    read_destinations_.push_back(segment_.allocate(kReadDestinationBytes));
    Command command{};
    command.kind = CommandKind::kCreateQp;
    command.create_qp = {.status_index = index,
                         .pd = kPd,
                         .recv_queue_offset = segment_.allocate(64),
                         .recv_completion_offset = segment_.allocate(64),
                         .read_destination_offset = read_destinations_.back(),
                         .recv_entries = 0,
                         .recv_max_sge = 1,
                         .read_destination_entries = kOutstandingReads,
                         .type = QpType::kRc};
    qpns_.push_back(execute(command).qpn);
  }
}

NicBench::~NicBench() {
  nic_->detach(channel_.get());
  nic_.reset();
  if (own_pools_.header != nullptr) free_mbuf_pools(own_pools_);
}

CommandResponse NicBench::execute(Command command) {
  CommandResponse response{};
  require(segment_.commands.enqueue_bulk(&command, 1), "the command ring is full");
  poll();
  require(segment_.responses.dequeue_burst(&response, 1) == 1, "a command was not answered");
  require(response.error == 0, fmt::format("a command failed: {}", strerror(response.error)));
  return response;
}

void NicBench::connect(uint32_t peer_index, std::span<const uint32_t> peer_qpns,
                       uint32_t path_mtu_bytes) {
  for (size_t i = 0; i < qpns_.size(); ++i) {
    for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      Command command{};
      command.kind = CommandKind::kModifyQp;
      command.modify_qp.qpn = qpns_[i];
      command.modify_qp.state = state;
      command.modify_qp.dest_qpn = peer_qpns[i];
      command.modify_qp.max_dest_rd_atomic = 16;
      command.modify_qp.dest_ip = raw(address_of(peer_index));
      command.modify_qp.access = kAccess;
      command.modify_qp.path_mtu_bytes = static_cast<uint16_t>(path_mtu_bytes);
      command.modify_qp.hop_limit = 64;
      execute(command);
    }
  }
}

SendDescriptor NicBench::make_write(Psn psn, uint64_t at, uint32_t length_bytes,
                                    uint64_t peer_address, uint32_t peer_key) const {
  SendDescriptor d{};
  d.op = SendOp::kWrite;
  d.flags = kSendAckRequest;
  d.qpn = qpns_[0];
  d.psn = psn.value();
  d.length_bytes = length_bytes;
  d.va = peer_address + at;
  d.key = peer_key;
  d.message_bytes = length_bytes;
  d.sge_count = 1;
  d.sge0 = {memory_.address() + at, length_bytes, key_};
  return d;
}

SendDescriptor NicBench::make_read(uint32_t length_bytes, uint64_t peer_address,
                                   uint32_t peer_key) {
  auto* const slots = reinterpret_cast<ReadDestination*>(segment_.at(read_destinations_[0]));
  for (uint32_t i = 0; i < kOutstandingReads; ++i)
    slots[i] = {.length_bytes = length_bytes, .sge_count = 1};
  SendDescriptor d{};
  d.op = SendOp::kRead;
  d.qpn = qpns_[0];
  d.length_bytes = d.message_bytes = length_bytes;
  d.va = peer_address;
  d.key = peer_key;
  return d;
}

void NicBench::number_read(SendDescriptor& d, uint32_t number, Psn psn, Psn first_response_psn,
                           uint64_t at) {
  auto* const slots = reinterpret_cast<ReadDestination*>(segment_.at(read_destinations_[0]));
  ReadDestination& slot = slots[number % kOutstandingReads];
  slot.read_number = number;
  slot.first_response_psn = first_response_psn.value();
  slot.sge[0] = {memory_.address() + at, d.length_bytes, key_};
  d.psn = psn.value();
  d.recv_sn = number;
  d.first_response_psn = first_response_psn.value();
}

uint32_t NicBench::take_reports() {
  MetaReport report;
  uint32_t taken = 0;
  for (; segment_.metas.dequeue_burst(&report, 1) == 1; ++taken)
    segment_.qp_status(report.status_index).dirty.exchange(0);
  return taken;
}

}  // namespace hostnic::bench
