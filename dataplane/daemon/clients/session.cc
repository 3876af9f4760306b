// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/clients/session.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <system_error>

#include "dataplane/daemon/clients/wait_status.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/start/huge_pages.h"
#include "dataplane/daemon/trust/foreign_descriptors.h"
#include "dataplane/memory/hole_guard.h"
#include "dataplane/memory/mirror.h"
#include "protocol/bytes_of.h"

namespace hostnic {
namespace {

constexpr std::chrono::milliseconds kReferenceLimitAtExit{500};
// What a program posted before it closed its device, or ended, is sent if that takes no longer.
constexpr std::chrono::milliseconds kLastSendsLimit{100};

// What /proc says that a descriptor leads to; the file is not asked.
std::string link_of(int fd) {
  char target[256];
  const ssize_t length =
      readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), target, sizeof(target));
  return {target, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

// Whether a descriptor is /proc/PID/mem: a NIC's lcore reads and writes it, and a file of another
// kind could block the lcore for ever.
bool is_proc_mem(int fd) {
  struct statfs file_system {};
  if (fstatfs(fd, &file_system) != 0 || file_system.f_type != PROC_SUPER_MAGIC) return false;
  return link_of(fd).ends_with("/mem");
}

// Whether a descriptor is a pidfd, which says at once whether its process has ended. Files of other
// kinds may keep whoever polls them.
bool is_pid_fd(int fd) {
  const std::string link = link_of(fd);
  return link == "anon_inode:[pidfd]" || link.starts_with("pidfd:[");
}

void close_all(std::vector<UniqueFd>& fds) {
  for (UniqueFd& fd : fds) close_with_contents(std::move(fd));
  fds.clear();
}

void say_whether_holes_are_guarded() {
  static std::once_flag said;
  std::call_once(said, [] {
    if (!can_guard_holes())
      log_line(
          "pages that other users' programs take out of what they share are made anew, and "
          "hostnicd pays for them: there is no userfaultfd here (Linux before 5.11, or a filter of "
          "system calls)");
  });
}

}  // namespace

ClientSession::ClientSession(Daemon& daemon, UniqueFd socket, const ucred& peer, int finished_fd,
                             const View* view, UserShares& opening)
    : daemon_(daemon),
      socket_(std::move(socket)),
      finished_fd_(finished_fd),
      view_(view),
      opening_(opening),
      pid_(peer.pid) {
  info_.uid = peer.uid;
}

bool ClientSession::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // RLIMIT_NPROC, the control group's pids.max
    return false;
  }
  return true;
}

ClientSession::~ClientSession() {
  if (!thread_.joinable()) return;
  request_stop();
  thread_.join();
}

namespace {

// Opens a pidfd of whoever connected, for a program that can't open one of itself (valgrind knows
// no pidfd_open). Returns none if that is in a PID namespace that is not below ours: then its
// socket alone says that it ended, a little later where a forked child keeps that.
UniqueFd pid_fd_of_peer(int socket) {
#ifndef SO_PEERPIDFD
  constexpr int SO_PEERPIDFD = 77;  // since Linux 6.5
#endif
  int fd = -1;
  socklen_t bytes = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) == 0) return UniqueFd(fd);
  ucred peer{};
  bytes = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid <= 0) return {};
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

}  // namespace

void ClientSession::request_stop() {
  std::lock_guard lock(socket_mutex_);
  shutdown(socket_.get(), SHUT_RDWR);
}

void ClientSession::run() {
  {
    std::vector<UniqueFd> fds;
    auto request = take_request(fds);
    auto opened = request ? open(*request, fds) : Unexpected(request.error());
    if (!opened) {
      refuse(opened.error());
      log_problem("{} (pid {}) was refused: {}", info_.program, info_.pid, opened.error().message);
      close_down(nullptr);
    }
    close_all(fds);
    // A request that is refused is done with when its descriptors are.
    if (!opened) close_descriptors();
    opening_.give_back(limited_user(info_.uid));
    if (opened) serve();
  }
  close_descriptors();
  finished_.store(true, std::memory_order_release);
  eventfd_write(finished_fd_, 1);
}

// Here and not when the object goes: closing a stranger's file may take for ever.
void ClientSession::close_descriptors() {
  UniqueFd socket;
  {
    std::lock_guard lock(socket_mutex_);
    socket = std::move(socket_);
  }
  for (UniqueFd* fd : {&socket, &mem_fd_, &pid_fd_, &mirror_fd_, &userfaultfd_})
    close_with_contents(std::move(*fd));
}

// ---- opening

Expected<OpenDevice, ControlError> ClientSession::take_request(std::vector<UniqueFd>& fds) {
  info_.pid = static_cast<uint32_t>(pid_);
  ControlDatagram datagram;
  if (receive_datagram(socket_.get(), MSG_DONTWAIT, datagram) != ReceiveResult::kOk)
    return Unexpected(ControlError{EPIPE, "the client did not wait for the answer"});
  fds = std::move(datagram.fds);
  if (datagram.cut)
    return Unexpected(ControlError{EMSGSIZE, "request too long, or with too many descriptors"});
  auto call = parse_control_request(datagram.bytes, fds.size());
  if (!call) return Unexpected(call.error());
  auto* open = std::get_if<OpenDevice>(&*call);
  if (open == nullptr) return Unexpected(ControlError{EINVAL, "open a device first"});
  // A view has one device.
  if (view_ != nullptr)
    open->device_index = open->device_index == 0 ? static_cast<uint32_t>(view_->nic) : UINT32_MAX;
  return std::move(*open);
}

Expected<void, ControlError> ClientSession::open(const OpenDevice& request,
                                                 std::vector<UniqueFd>& fds) {
  info_.pid = request.pid;
  info_.program = request.program;
  if (request.device_index >= daemon_.nics().size())
    return control_error(ENODEV, fmt::format("no device {}: there are {}", request.device_index,
                                             daemon_.nics().size()));
  unit_ = &daemon_.nics()[request.device_index];
  info_.client_id = daemon_.clients().next_id();
  info_.nic = request.device_index;
  if (auto taken = take_descriptors(request, fds); !taken) return taken;
  if (auto done = attach(); !done) return done;
  if (!send_open_reply()) return control_error(EPIPE, "the client did not wait for the answer");
  // These descriptors have been mapped or duplicated where they are still needed.
  channel_->close_segment_file();
  mirror_fd_.reset();
  userfaultfd_.reset();
  return {};
}

Expected<void, ControlError> ClientSession::take_descriptors(const OpenDevice& request,
                                                             std::vector<UniqueFd>& fds) {
  mem_fd_ = std::move(fds[0]);
  pid_fd_ = request.has_pid_fd ? std::move(fds[1]) : pid_fd_of_peer(socket_.get());
  if (!is_proc_mem(mem_fd_.get()))
    return control_error(EBADF, "the first descriptor is not /proc/self/mem");
  if (request.has_pid_fd && !is_pid_fd(pid_fd_.get()))
    return control_error(EBADF, "the second descriptor is not a pidfd");
  if (request.has_mirror) {
    mirror_fd_ = std::move(fds.back());
    if (auto good = check_mirror(mirror_fd_.get()); !good)
      return control_error(EBADF, good.error());
  } else {
    auto mirror = create_mirror();
    if (!mirror) return control_error(ENOMEM, mirror.error());
    mirror_fd_ = UniqueFd(*mirror);
  }
  if (daemon_.plan().lend_userfaultfd)
    userfaultfd_ = UniqueFd(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  doorbell_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_fd_) return control_error(errno, fmt::format("eventfd: {}", strerror(errno)));
  return {};
}

Expected<void, ControlError> ClientSession::attach() {
  ClientChannel::Settings settings;
  settings.client_id = info_.client_id;
  settings.max_qps = unit_->plan.settings.max_qps;
  settings.program = info_.program;
  settings.pid = info_.pid;
  settings.uid = info_.uid;
  if (!is_owner(info_.uid)) {
    settings.user_qps = daemon_.plan().user_qps;
    settings.user_windows = kMaxWindows / 2;
    settings.is_strangers = true;
    settings.page_tables = daemon_.regions().page_tables().of(info_.uid);
    say_whether_holes_are_guarded();
  }
  settings.pages = daemon_.clients().segment_pages();
  auto channel = ClientChannel::create(settings);
  if (!channel && settings.pages == SegmentPages::kHuge)
    return control_error(
        ENOMEM, too_few_huge_pages(ClientChannel::huge_bytes_for(settings.max_qps) / kHugePageBytes,
                                   count_huge_pages()));
  if (!channel) return control_error(ENOMEM, channel.error());
  channel_ = std::move(*channel);
  info_.huge_pages = channel_->in_huge_pages();
  info_.use = channel_->use;
  tell_port_state();
  regions_ =
      std::make_unique<ClientRegions>(daemon_, *unit_, info_, *channel_,
                                      ClientRegions::Terms{.mem_fd = mem_fd_.get(),
                                                           .mirror_fd = mirror_fd_.get(),
                                                           .pid = pid_,
                                                           .all_mrs = daemon_.plan().all_mrs});
  if (const int error = unit_->lcore->watch(doorbell_fd_.get()))
    return control_error(error, fmt::format("watching the doorbell: {}", strerror(error)));
  int error = 0;
  unit_->lcore->run_on([&] { error = unit_->nic->attach(channel_.get()); });
  if (error != 0)
    return control_error(
        error, fmt::format("{} has no room for another client", unit_->plan.settings.name));
  attached_ = true;
  daemon_.clients().add(info_);
  return {};
}

DeviceInfo ClientSession::device() const {
  const DeviceInfo info = daemon_.device_info(*unit_);
  return view_ != nullptr ? view_->shown(info) : info;
}

bool ClientSession::send_open_reply() {
  OpenReply open_reply{};
  open_reply.device = device();
  open_reply.segment_bytes = channel_->memory().segment_bytes();
  open_reply.arena_bytes = channel_->memory().arena_bytes();
  open_reply.client_id = info_.client_id;
  open_reply.has_userfaultfd = userfaultfd_ ? 1 : 0;
  int fds[6] = {channel_->segment_fd(), channel_->arena_fd(),        mirror_fd_.get(),
                doorbell_fd_.get(),     unit_->lcore->doorbell_fd(), userfaultfd_.get()};
  return send_reply(socket_.get(), 0, ControlReply{}, bytes_of(open_reply),
                    std::span<const int>(fds, userfaultfd_ ? 6 : 5));
}

// ---- serving

void ClientSession::serve() {
  ControlDatagram datagram;
  const char* why = nullptr;
  set_serving(true);
  while (why == nullptr) {
    why = wait_for_request();
    if (why != nullptr) break;
    switch (receive_datagram(socket_.get(), MSG_DONTWAIT, datagram)) {
      case ReceiveResult::kAgain:
        break;
      case ReceiveResult::kClosed:
        why = "closed";
        break;
      case ReceiveResult::kOk:
        if (!handle(datagram)) why = "gone while being answered";
        break;
    }
    close_all(datagram.fds);
  }
  close_down(why);
}

// Waits for a request, and brings pages meanwhile: returns null when one can be read, else why the
// session ends.
const char* ClientSession::wait_for_request() {
  for (;;) {
    pollfd watched[2] = {{socket_.get(), POLLIN, 0}, {pid_fd_.get(), POLLIN, 0}};
    const int ready = poll(watched, 2, regions_->has_filled() ? 0 : -1);
    if (const char* why = why_over()) return why;
    if (ready == 0) regions_->bring_filled();
    if (ready <= 0) continue;
    if (watched[1].revents != 0) return "ended";
    if (watched[0].revents != 0) return nullptr;
  }
}

// The reason why the session is over; null: the NIC still serves the client.
const char* ClientSession::why_over() const {
  const DropReason dropped = channel_->dropped.load(std::memory_order_acquire);
  if (dropped != DropReason::kNone) return to_string(dropped);
  return channel_->has_lost_memory() ? "cut off memory that it had registered" : nullptr;
}

void ClientSession::set_serving(bool on) {
  std::lock_guard lock(serving_mutex_);
  serving_ = on;
}

void ClientSession::look() {
  std::lock_guard lock(serving_mutex_);
  if (!serving_) return;
  const auto note = [&](const std::atomic<bool>& met, const char* limit) {
    if (met.load(std::memory_order_relaxed)) daemon_.clients().note_limit(info_.client_id, limit);
  };
  note(channel_->qp_limit_met,
       "the queue pairs that it may have (limits.max_qps, user_qps, nic_qps)");
  note(channel_->window_limit_met, "the memory windows that it may have, or the NIC has");
  note(channel_->table_limit_met,
       "the page tables that hostnicd may have for queues of a user's programs "
       "(limits.user_page_tables_mb), which lie too scattered");
  note(channel_->neighbour_limit_met, "the ARP table, whose entries are all in use");
  if (const uint32_t keys = channel_->keys_cut_off.exchange(0); keys != 0)
    log_problem(
        "{}: client {} ({}, pid {}) cut off memory that it had registered (a file is "
        "shorter now): {} of its keys are no longer good",
        unit_->plan.settings.name, info_.client_id, info_.program, info_.pid, keys);
  if (why_over() != nullptr) return request_stop();  // its thread wakes and looks as well
  tell_port_state();
}

ClientSession::ClientObjects ClientSession::objects() {
  std::lock_guard lock(serving_mutex_);
  if (!serving_) return {};
  return {info_.client_id, channel_->objects()};
}

// Tells the client what the port is like; the driver makes IBV_EVENT_PORT_ERR, PORT_ACTIVE and
// GID_CHANGE of it.
void ClientSession::tell_port_state() {
  SegmentHeader& header = channel_->header();
  bool news = false;
  // The comparison is with what the client can write; whatever it wrote concerns itself only.
  const auto tell = [&](std::atomic<uint32_t>& word, uint32_t value) {
    if (word.load(std::memory_order_relaxed) == value) return;
    word.store(value, std::memory_order_release);
    news = true;
  };
  if (unit_->network != nullptr) {
    tell(header.mtu_bytes, unit_->network->ib_mtu_bytes());
  }
  const uint32_t changes = unit_->network == nullptr ? 0 : unit_->network->address_changes();
  tell(header.address_changes, changes + unit_->gids->moves());
  if (daemon_.port_up(*unit_) != port_is_up(port_changes_)) ++port_changes_;
  tell(header.port_changes, port_changes_);
  if (news) channel_->wake_driver();
}

bool ClientSession::refuse(const ControlError& error) {
  return send_reply(socket_.get(), 0, error_reply(error));
}

// ---- the end

// Whether the program has ended, or ends: its memory goes a moment before it is known to be gone.
bool ClientSession::program_ended() const {
  constexpr int kPatienceMs = 100;
  pollfd ended{pid_fd_.get(), POLLIN, 0};
  return pid_fd_ && poll(&ended, 1, kPatienceMs) == 1;
}

// Waits until the NIC has sent what the program handed over last.
void ClientSession::let_sends_leave() {
  const auto until = std::chrono::steady_clock::now() + kLastSendsLimit;
  bool waits = true;
  while (waits && !daemon_.quitting() && std::chrono::steady_clock::now() < until) {
    unit_->lcore->run_on([&] { waits = unit_->nic->has_sends(channel_.get()); });
    if (waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Whether the program was killed, or failed, while its packets were captured: it had queue pairs
// then, and did not end well as far as can be known.
bool ClientSession::was_captured_death() const {
  bool captured = false;
  unit_->lcore->run_on([&] { captured = unit_->nic->captures_queue_pairs_of(channel_.get()); });
  if (!captured || daemon_.quitting() || !program_ended()) return false;
  return wait_status_of(pid_fd_.get(), pid_, std::chrono::milliseconds(100)).value_or(1) != 0;
}

void ClientSession::close_down(const char* why) {
  set_serving(false);
  if (channel_ != nullptr) {
    const DropReason dropped = channel_->dropped.load(std::memory_order_acquire);
    const bool impossible = dropped != DropReason::kNone && dropped != DropReason::kMemoryGone;
    if (impossible || (channel_->has_lost_memory() && !program_ended()))
      log_problem("{}: client {} ({}, pid {}) was dropped: {}", unit_->plan.settings.name,
                  info_.client_id, info_.program, info_.pid, why);
    if (attached_) let_sends_leave();
    const bool died = attached_ && was_captured_death();
    unit_->lcore->run_on([&] {
      if (died) unit_->nic->note_death(info_.pid);
      // A driver that is still alive then sees at once that the device is gone.
      channel_->header().device_fatal.store(1 + static_cast<uint32_t>(dropped),
                                            std::memory_order_release);
      channel_->wake_driver();
      if (attached_) unit_->nic->detach(channel_.get());
    });
    // The lcore is out of that memory by now: it may have slept there until the program had ended.
    took_memory_away_ = channel_->memory_taken.load() && limited_user(info_.uid).has_value();
    unit_->lcore->unwatch(doorbell_fd_.get());
    channel_->mem_fd_helper.store(nullptr, std::memory_order_relaxed);
    regions_->release(std::move(channel_),
                      daemon_.quitting() ? kReferenceLimitAtExit : ClientRegions::kReferenceLimit);
  }
  for (const Ipv4Address number : named_hosts_)
    daemon_.addresses().release(number, limited_user(info_.uid));
  named_hosts_.clear();
  if (attached_) daemon_.clients().remove(info_.client_id);
  shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace hostnic
