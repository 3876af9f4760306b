// SPDX-License-Identifier: BSD-3-Clause
#include "tests/hostile/raw_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace hostnic::hostile {
namespace {

constexpr std::chrono::seconds kAnswerLimit{10};

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

void give_up(const std::string& why) {
  fmt::print(stderr, "hostnic-hostile: {}\n", why);
  std::exit(1);
}

UniqueFd connect_to(const std::string& socket_path) {
  const auto address = socket_address(socket_path);
  need(address.has_value(), "socket path too long");
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0)
    give_up(fmt::format("connect {}: {}", socket_path, strerror(errno)));
  return fd;
}

Answer ask(const std::string& socket, const std::string& command,
           std::span<const int> descriptors) {
  const UniqueFd fd = connect_to(socket);
  need(send_request(fd.get(), ControlKind::kText, std::as_bytes(std::span(command)), descriptors),
       "sending a command");
  const auto reply = receive_reply(fd.get());
  if (!reply) return {EPIPE, "no answer"};
  return {reply->header.error,
          std::string(reinterpret_cast<const char*>(reply->payload.data()), reply->payload.size())};
}

RawClient::RawClient(const std::string& socket, uint32_t device) : socket_(connect_to(socket)) {
  OpenRequest request{};
  request.device_index = device;
  request.pid = static_cast<uint32_t>(getpid());
  std::strcpy(request.program, "hostnic-hostile");
  const UniqueFd memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  need(bool{memory}, "opening /proc/self/mem");
  const int fds[] = {memory.get()};
  need(send_request(socket_.get(), ControlKind::kOpen, bytes_of(request), fds), "sending open");
  auto reply = receive_reply(socket_.get());
  if (!reply) {
    error_ = EPIPE;
    return;
  }
  error_ = reply->header.error;
  message_ = reply->header.message;
  if (error_ != 0) return;
  OpenReply opened{};
  need(reply->payload.size() == sizeof(opened) && reply->fds.size() >= 5, "the answer to open");
  std::memcpy(&opened, reply->payload.data(), sizeof(opened));
  device_ = opened.device;
  segment_ = std::move(reply->fds[0]);
  arena_ = std::move(reply->fds[1]);
  mirror_ = std::move(reply->fds[2]);
  doorbell_ = std::move(reply->fds[3]);
  need(memory_.map(segment_.get(), opened.segment_bytes, arena_.get(), opened.arena_bytes) == 0,
       "mapping the segment");
  need(map_.use(memory_) == 0, "the segment is of another build");
}

bool RawClient::rings_in_huge_pages() const {
  struct statfs file_system {};
  return fstatfs(segment_.get(), &file_system) == 0 && file_system.f_type == HUGETLBFS_MAGIC;
}

void RawClient::kick() { eventfd_write(doorbell_.get(), 1); }

void RawClient::post(const Command& command) {
  while (!map_.commands.enqueue_bulk(&command, 1) && !dropped()) std::this_thread::yield();
  kick();
}

void RawClient::post(const SendDescriptor& descriptor) {
  while (!map_.sends.enqueue_bulk(&descriptor, 1) && !dropped()) std::this_thread::yield();
  kick();
}

bool RawClient::dropped() const {
  return map_.header().device_fatal.load(std::memory_order_acquire) != 0;
}

bool RawClient::ended() const {
  pollfd end{socket_.get(), POLLIN, 0};
  return poll(&end, 1, 0) != 0;
}

std::optional<CommandResponse> RawClient::execute(Command command) {
  command.correlation = ++correlation_;
  post(command);
  const auto end = std::chrono::steady_clock::now() + kAnswerLimit;
  CommandResponse response;
  while (std::chrono::steady_clock::now() < end) {
    if (map_.responses.dequeue_burst(&response, 1) == 1) {
      if (response.correlation == command.correlation) return response;
      continue;
    }
    if (dropped()) return std::nullopt;
    std::this_thread::yield();
  }
  return std::nullopt;
}

RegisterMrReply RawClient::register_memory(uint64_t va, uint64_t length_bytes,
                                           std::span<const MemoryRegion> regions,
                                           std::span<const int> files) {
  RegisterMrRequest request{};
  request.va = request.iova = va;
  request.length_bytes = length_bytes;
  request.access = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead;
  request.pd = 1;
  request.region_count = static_cast<uint32_t>(regions.size());
  std::vector<std::byte> payload(sizeof(request) + regions.size_bytes());
  std::memcpy(payload.data(), &request, sizeof(request));
  std::memcpy(payload.data() + sizeof(request), regions.data(), regions.size_bytes());
  need(send_request(socket_.get(), ControlKind::kRegisterMr, payload, files),
       "sending a registration");
  const auto reply = receive_reply(socket_.get());
  RegisterMrReply answer{};
  error_ = reply ? reply->header.error : EPIPE;
  message_ = reply ? reply->header.message : "no answer";
  if (error_ == 0) std::memcpy(&answer, reply->payload.data(), sizeof(answer));
  return answer;
}

RegisterMrReply RawClient::register_memory(const void* at, uint64_t length_bytes) {
  const auto va = reinterpret_cast<uint64_t>(at);
  const MemoryRegion region{va, length_bytes, RegionKind::kMemFd, 0, 0};
  return register_memory(va, length_bytes, {&region, 1});
}

int RawClient::say_filled(uint32_t lkey) { return ask_about(ControlKind::kMemoryFilled, lkey); }

int RawClient::deregister_memory(uint32_t lkey) {
  return ask_about(ControlKind::kDeregisterMr, lkey);
}

int RawClient::change_memory(const MemoryChange& change) {
  need(send_request(socket_.get(), ControlKind::kChangeMemory, bytes_of(change)),
       "sending a change of memory");
  const auto reply = receive_reply(socket_.get());
  return reply ? reply->header.error : EPIPE;
}

int RawClient::name_host(uint32_t number) {
  NameHostRequest request{};
  request.gid[0] = 0xfd;
  std::memcpy(request.gid + 12, &number, sizeof(number));
  need(send_request(socket_.get(), ControlKind::kNameHost, bytes_of(request)), "naming a host");
  const auto reply = receive_reply(socket_.get());
  return reply ? reply->header.error : EPIPE;
}

int RawClient::ask_about(ControlKind kind, uint32_t lkey) {
  static_assert(sizeof(DeregisterMrRequest) == sizeof(lkey));
  static_assert(sizeof(MemoryFilledRequest) == sizeof(lkey));
  need(send_request(socket_.get(), kind, bytes_of(lkey)), "sending a request about a region");
  const auto reply = receive_reply(socket_.get());
  return reply ? reply->header.error : EPIPE;
}

uint32_t RawClient::create_qp(uint32_t status_index, QpType type, uint32_t recv_entries) {
  Command command{};
  command.kind = CommandKind::kCreateQp;
  constexpr uint16_t kDestinations = 16;
  command.create_qp = {
      .status_index = status_index,
      .pd = 1,
      .recv_queue_offset = map_.allocate(uint64_t{recv_entries} * recv_slot_bytes(1) + 64),
      .recv_completion_offset = map_.allocate(recv_entries * sizeof(RecvCompletion) + 64),
      .read_destination_offset = map_.allocate(kDestinations * sizeof(ReadDestination)),
      .srq_offset = 0,
      .recv_entries = recv_entries,
      .recv_max_sge = 1,
      .read_destination_entries = kDestinations,
      .type = type,
      .recv_pd = 1};
  map_.make_status_pages(status_index);
  map_.make_pages(command.create_qp.recv_completion_offset, recv_entries * sizeof(RecvCompletion));
  map_.make_pages(command.create_qp.read_destination_offset,
                  kDestinations * sizeof(ReadDestination));
  const auto response = execute(command);
  error_ = response ? response->error : EPIPE;
  return error_ == 0 ? response->qpn : 0;
}

std::optional<CommandResponse> RawClient::modify(ModifyQpCommand command) {
  Command whole{};
  whole.kind = CommandKind::kModifyQp;
  whole.modify_qp = command;
  return execute(whole);
}

bool RawClient::connect(uint32_t qpn, uint32_t peer) {
  ModifyQpCommand command{};
  command.qpn = qpn;
  command.dest_qpn = peer;
  command.dest_ip = device_.ip;
  command.path_mtu_bytes = static_cast<uint16_t>(device_.mtu_bytes);
  command.access = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead;
  command.max_dest_rd_atomic = 16;
  command.hop_limit = 64;
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    command.state = state;
    const auto response = modify(command);
    if (!response || response->error != 0) return false;
  }
  return true;
}

}  // namespace hostnic::hostile
