// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/rdma_cm/cm_agent.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

#include "dataplane/daemon/lcore/clock.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/random_number.h"
#include "dataplane/daemon/trust/foreign_descriptors.h"
#include "protocol/hostif/control_socket.h"
#include "protocol/wire/ipv4.h"

namespace hostnic {
namespace {

constexpr size_t kMaxFiles = 4096;

bool watch(int epoll_fd, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

void CmFile::give_token() {
  if (token_out || events.empty()) return;
  const std::byte token{};
  token_out = send(socket.get(), &token, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

CmAgent::CmAgent(Daemon& daemon, int epoll_fd, Taker others)
    : daemon_(daemon), epoll_fd_(epoll_fd), others_(std::move(others)) {
  // Open devices need descriptors as well.
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  most_files_ =
      UserShares::shares_of(std::min<size_t>(kMaxFiles, std::max<size_t>(limit.rlim_cur / 8, 2)));
  uint32_t index = 0;
  for (NicInstance& instance : daemon_.nics()) {
    CmNic nic;
    nic.instance = &instance;
    nic.index = index++;
    nic.timescale = daemon_.plan().timescale;
    nic.queue = std::make_unique<ManagementQueue>();
    nic.endpoint = std::make_unique<cm::Endpoint>(static_cast<uint32_t>(random_number()),
                                                  be64toh(daemon_.device_info(instance).node_guid),
                                                  kMaxConnections);
    watch(epoll_fd_, nic.queue->event_fd());
    ManagementQueue* queue = nic.queue.get();
    instance.lcore->run_on([&] { instance.nic->set_management(queue); });
    nics_.push_back(std::move(nic));
  }
  daemon_.set_cm(this);
}

CmAgent::~CmAgent() {
  daemon_.set_cm(nullptr);
  while (!files_.empty()) close(files_.begin()->second);
  flush();
  for (CmNic& nic : nics_)
    nic.instance->lcore->run_on([&] { nic.instance->nic->set_management(nullptr); });
}

// ---- files

void CmAgent::open(UniqueFd socket, const OpenCmRequest& request, bool alone) {
  CmFile file;
  file.name = next_file_++;
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) {
    file.pid = peer.pid;
    file.uid = peer.uid;
  }
  const auto of_user = static_cast<size_t>(
      std::ranges::count_if(files_, [&](const auto& each) { return each.second.uid == file.uid; }));
  const auto of_strangers = static_cast<size_t>(std::ranges::count_if(
      files_, [](const auto& each) { return each.second.stranger().has_value(); }));
  if (files_.size() >= most_files_.all ||
      (file.stranger() && (of_user >= most_files_.user || of_strangers >= most_files_.strangers))) {
    ControlReply reply;
    reply.error = EMFILE;
    snprintf(reply.message, sizeof(reply.message),
             "%zu rdma_cm files are open already, %zu of them of user %u", files_.size(), of_user,
             file.uid);
    send_reply(socket.get(), MSG_DONTWAIT, reply);
    return let_go(std::move(socket), file.stranger());
  }
  file.visible_devices = request.visible_devices;
  file.alone = alone;
  const OpenCmReply open_reply{file.name};
  if (!send_reply(socket.get(), MSG_DONTWAIT, ControlReply{},
                  std::as_bytes(std::span(&open_reply, 1))))
    return let_go(std::move(socket), file.stranger());
  file.socket = std::move(socket);
  const int fd = file.socket.get();
  files_.emplace(fd, std::move(file));
}

// Closes a program's connection where nobody waits for that.
void CmAgent::let_go(UniqueFd socket, std::optional<uint32_t> stranger) {
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, socket.get(), nullptr);
  shutdown(socket.get(), SHUT_RDWR);
  closers().close(std::move(socket), stranger);
}

void CmAgent::close(CmFile& file) {
  ids_.destroy_all_of(file);
  const int fd = file.socket.get();
  let_go(std::move(file.socket), file.stranger());
  files_.erase(fd);
}

bool CmAgent::handle(int fd) {
  for (CmNic& nic : nics_) {
    if (nic.queue->event_fd() == fd) {
      serve_queue(nic);
      return true;
    }
  }
  const auto file = files_.find(fd);
  if (file == files_.end()) return false;
  serve(file->second);
  return true;
}

void CmAgent::serve(CmFile& file) {
  ControlDatagram datagram, taken;
  const int fd = file.socket.get();
  // What is taken second is the same datagram. Its descriptors, of which we have our own by then,
  // are not closed for good when it goes; what is not taken goes with the connection.
  switch (receive_datagram(fd, MSG_DONTWAIT | MSG_PEEK, datagram)) {
    case ReceiveResult::kAgain:
      return;
    case ReceiveResult::kClosed:
      close(file);
      return;
    case ReceiveResult::kOk:
      break;
  }
  CmCommand command;
  const bool good = !datagram.cut && datagram.fds.size() == 1 &&
                    is_unix_socket(datagram.fds[0].get()) &&
                    datagram.bytes.size() >= sizeof(command) &&
                    receive_bytes(fd, MSG_DONTWAIT, taken) == ReceiveResult::kOk;
  if (!good) {
    close_apart(std::move(datagram.fds), file.stranger());
    close(file);  // that file is not our library's
    return;
  }
  const std::optional<uint32_t> stranger = file.stranger();
  memcpy(&command, datagram.bytes.data(), sizeof(command));
  const CmResult result = commands_.run(
      file, command, std::span<const std::byte>(datagram.bytes).subspan(sizeof(command)));
  const uint32_t stale = (file.token_out && file.events.empty() ? kCmTokenStale : 0u) |
                         (result.other_token_stale ? kCmOtherTokenStale : 0u);
  const CmAnswer answer{result.error, stale};
  std::vector<std::byte> bytes(sizeof(answer) + result.response.size());
  memcpy(bytes.data(), &answer, sizeof(answer));
  std::copy(result.response.begin(), result.response.end(), bytes.begin() + sizeof(answer));
  send(datagram.fds[0].get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  close_apart(std::move(datagram.fds), stranger);
}

// ---- NICs

void CmAgent::serve_queue(CmNic& nic) {
  nic.queue->listen();
  ManagementDatagram datagram;
  while (nic.queue->pop(datagram)) {
    const auto mad = cm::parse(datagram.bytes);
    if (!mad || (others_ && others_(*nic.instance, datagram, *mad))) continue;
    nic.endpoint->receive({datagram.to, datagram.from}, *mad, nic.now_ns());
    connections_.take_events(nic);
  }
}

void CmAgent::advance() {
  for (CmNic& nic : nics_) {
    const TimeNs now = nic.now_ns();
    if (nic.endpoint->next_deadline_ns() <= now) nic.endpoint->advance(now);
    connections_.take_events(nic);
  }
  connections_.look_at_kept();
  resolution_.look();
  flush();
}

// Sends all that is to be sent, and tells programs what they are to be told.
void CmAgent::flush() {
  for (CmNic& nic : nics_) {
    connections_.settle(nic);
    const std::vector<cm::Outgoing> outgoing = nic.endpoint->take_outgoing();
    if (outgoing.empty()) continue;
    nic.instance->lcore->run_on([&] {
      for (const cm::Outgoing& each : outgoing)
        nic.instance->nic->send_management(each.ends.own, each.ends.peer, 0, cm::build(each.mad));
    });
  }
  for (auto& [fd, file] : files_) file.give_token();
}

int CmAgent::wait_ms() const {
  TimeNs deadline = std::min(connections_.deadline_ns(), resolution_.deadline_ns());
  for (const CmNic& nic : nics_) deadline = std::min(deadline, nic.due_ns());
  if (deadline == UINT64_MAX) return -1;
  const TimeNs now = monotonic_now_ns();
  if (deadline <= now) return 0;
  return static_cast<int>(std::min<TimeNs>((deadline - now) / 1'000'000 + 1, 3'600'000));
}

namespace {

// The state of an id by the kernel's numbers (enum rdma_cm_state).
uint8_t kernel_state_of(const CmId& id) {
  enum : uint8_t {
    kIdle,
    kAddressQuery,
    kAddressResolved,
    kConnect = 5,
    kDisconnect,
    kBound,
    kListen
  };
  if (id.connection != 0) {
    switch (id.nic->endpoint->state_of(id.connection)) {
      case cm::State::kDreqSent:
      case cm::State::kDreqReceived:
      case cm::State::kTimeWait:
      case cm::State::kDone:
        return kDisconnect;
      default:
        return kConnect;
    }
  }
  if (id.listening) return kListen;
  if (raw(id.destination) != 0)
    return id.resolving_until_ns != 0 ? kAddressQuery : kAddressResolved;
  return id.bound ? kBound : kIdle;
}

}  // namespace

CmIdView CmAgent::view(const CmId& id) const {
  const char* state = id.listening ? "listening" : id.bound ? "bound" : "idle";
  if (id.connection != 0)
    state = cm::name_of(id.nic->endpoint->state_of(id.connection));
  else if (raw(id.destination) != 0)
    state = id.resolving_until_ns != 0 ? "resolving" : "resolved";
  const auto shown = [&](Ipv4Address ip, uint16_t port) {
    return fmt::format("{}:{}", addresses_.text_of(ip), port);
  };
  CmIdView view{.id = id.handle,
                .pid = static_cast<uint32_t>(id.file->pid),
                .datagram = id.datagram,
                .state = state};
  if (id.nic != nullptr) view.nic = id.nic->instance->plan.settings.name;
  view.source = shown(id.source, id.source_port);
  if (raw(id.destination) != 0) view.destination = shown(id.destination, id.destination_port);
  view.source_end = {address_of(&daemon_.addresses(), id.source), id.source_port};
  view.destination_end = {address_of(&daemon_.addresses(), id.destination), id.destination_port};
  view.port_space = id.port_space;
  view.kernel_state = kernel_state_of(id);
  return view;
}

std::vector<CmIdView> CmAgent::view(const Asker& asker) const {
  std::vector<CmIdView> views;
  for (const auto& [handle, id] : ids_.all())
    if (asker.sees(id.file->uid)) views.push_back(view(id));
  return views;
}

size_t CmAgent::ended_connections() const {
  size_t ended = 0;
  for (const CmNic& nic : nics_) ended += nic.endpoint->connections() - nic.ids.size();
  return ended;
}

std::string to_text(const CmIdView& id) {
  return fmt::format("id {} pid {} {} {} {}{} {}", id.id, id.pid, id.nic.empty() ? "-" : id.nic,
                     id.datagram ? "datagrams" : "connection", id.source,
                     id.destination.empty() ? "" : " to " + id.destination, id.state);
}

}  // namespace hostnic
