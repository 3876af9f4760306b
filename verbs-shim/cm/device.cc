// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/cm/device.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "protocol/hostif/control_socket.h"
#include "verbs-shim/abi/devices.h"
#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/base/explanation.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/cm/event_words.h"
#include "verbs-shim/cm/files.h"
#include "verbs-shim/cm/known_ids.h"

namespace hostnic::cm_device {
namespace {

// The error that the kernel gives when the module goes away under a program.
constexpr int kGone = ENODEV;
constexpr uint32_t kAnswerLimitS = 60;

int fail(int error) {
  errno = error;
  return -1;
}

UniqueFd connect_to_hostnicd() {
  const auto address = socket_address(default_socket_path());
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  limit_waiting(fd.get(), kAnswerLimitS);
  if (!address || !fd ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0)
    return {};
  return fd;
}

int open_file(uint64_t visible_devices, int flags) {
  UniqueFd fd = connect_to_hostnicd();
  if (!fd) return fail(kGone);
  const OpenCmRequest request{visible_devices};
  if (!send_request(fd.get(), ControlKind::kOpenCm, std::as_bytes(std::span(&request, 1))))
    return fail(kGone);
  const auto reply = receive_reply(fd.get());
  limit_waiting(fd.get(), 0);
  OpenCmReply opened{};
  if (!reply || (reply->header.error == 0 && reply->payload.size() != sizeof(opened)))
    return fail(kGone);
  if (reply->header.error != 0) {
    log_warn("rdma_cm: %s", reply->header.message);
    return fail(reply->header.error);
  }
  memcpy(&opened, reply->payload.data(), sizeof(opened));
  if ((flags & O_NONBLOCK) != 0) fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  const int file = fcntl(fd.get(), (flags & O_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (file < 0 || add_file(file, opened.file)) return file;
  close(file);
  return fail(ENOMEM);
}

// ---- one command

struct Answer {
  CmAnswer header{};
  std::vector<std::byte> response;
};

bool send_whole(int fd, const msghdr& message) {
  for (;;) {
    if (sendmsg(fd, &message, MSG_NOSIGNAL) >= 0) return true;
    if (errno != EAGAIN && errno != EINTR) return false;
    // The send waits for room even so: the program has made its file non-blocking, but that is
    // about events.
    pollfd room{fd, POLLOUT, 0};
    if (errno == EAGAIN) poll(&room, 1, -1);
  }
}

void take_stale_token(int fd);

// Has hostnicd carry out the command. Returns false if hostnicd is gone.
bool call(int fd, const CmCommand& command, std::span<const std::byte> bytes, Answer& answer) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return false;
  const UniqueFd ours(pair[0]);
  {
    const UniqueFd theirs(pair[1]);
    iovec parts[2] = {{const_cast<CmCommand*>(&command), sizeof(command)},
                      {const_cast<std::byte*>(bytes.data()), bytes.size()}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &pair[1], sizeof(int));
    if (!send_whole(fd, message)) return false;
  }
  std::byte buffer[kMaxCmBytes];
  ssize_t received = -1;
  do {
    received = recv(ours.get(), buffer, sizeof(buffer), 0);
  } while (received < 0 && errno == EINTR);
  if (received < static_cast<ssize_t>(sizeof(answer.header))) return false;
  memcpy(&answer.header, buffer, sizeof(answer.header));
  answer.response.assign(buffer + sizeof(answer.header), buffer + received);
  if ((answer.header.stale & kCmTokenStale) != 0) take_stale_token(fd);
  return true;
}

// Takes away the datagram that says that an event waits, where there is none any more. Another
// thread may have been faster.
void take_stale_token(int fd) {
  char token = 0;
  Answer ignored;
  if (recv(fd, &token, 1, MSG_DONTWAIT) == 1) call(fd, {kCmTokenTaken, 0, 0}, {}, ignored);
}

enum class Called { kAnswered, kGone, kFailed };  // hostnicd is gone; errno says why

// What came of waiting for an event's token: recv()'s result and errno.
struct Waited {
  ssize_t taken;
  int error;
};

// Takes the event whose token has been taken. The event may have gone with its id, or to another
// thread: then the answer is EAGAIN.
Called call_for_event(int fd, const Waited& waited, Answer& answer) {
  if (waited.taken == 0 || (waited.taken < 0 && waited.error == ECONNRESET)) return Called::kGone;
  if (waited.taken < 0) {
    errno = waited.error;
    return Called::kFailed;
  }
  return call(fd, {RDMA_USER_CM_CMD_GET_EVENT, 0, 0}, {}, answer) ? Called::kAnswered
                                                                  : Called::kGone;
}

template <typename T>
Answer answer_with(const T& response) {
  const auto bytes = std::as_bytes(std::span(&response, 1));
  return {{}, {bytes.begin(), bytes.end()}};
}

// Answers without hostnicd, which is gone, and with it every device: ids are told so and can be
// destroyed.
Answer answer_alone(uint64_t file, uint32_t command, std::span<const std::byte> bytes) {
  if (command == RDMA_USER_CM_CMD_GET_EVENT) {
    if (const auto event = take_removal(file)) return answer_with(*event);
  } else if (command == RDMA_USER_CM_CMD_DESTROY_ID &&
             bytes.size() >= sizeof(rdma_ucm_destroy_id)) {
    rdma_ucm_destroy_id destroy;
    memcpy(&destroy, bytes.data(), sizeof(destroy));
    if (const auto events = forget_id(file, destroy.id))
      return answer_with(rdma_ucm_destroy_id_resp{*events});
  } else if (command == RDMA_USER_CM_CMD_LEAVE_MCAST) {
    return answer_with(rdma_ucm_destroy_id_resp{0});
  }
  return {{kGone, 0}, {}};
}

// The offset in the command of the response's address; -1: it has none.
int response_offset(uint32_t command) {
  switch (command) {
    case RDMA_USER_CM_CMD_CREATE_ID:
      return offsetof(rdma_ucm_create_id, response);
    case RDMA_USER_CM_CMD_DESTROY_ID:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
    case RDMA_USER_CM_CMD_QUERY:
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
    case RDMA_USER_CM_CMD_GET_EVENT:
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
    case RDMA_USER_CM_CMD_JOIN_MCAST:
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      return 0;
    default:
      return -1;
  }
}

// The descriptor of the file that an id comes from.
int file_left(std::span<const std::byte> bytes) {
  rdma_ucm_migrate_id migrate;
  memcpy(&migrate, bytes.data(), sizeof(migrate));
  return static_cast<int>(migrate.fd);
}

// Adds to the command what it refers to in this process's memory.
bool complete_command(CmCommand& command, std::vector<std::byte>& bytes) {
  if (command.command == RDMA_USER_CM_CMD_SET_OPTION) {
    rdma_ucm_set_option option;
    if (bytes.size() < sizeof(option)) return false;
    memcpy(&option, bytes.data(), sizeof(option));
    if (option.optlen > kMaxCmBytes / 2) return false;
    const auto* value = reinterpret_cast<const std::byte*>(option.optval);
    bytes.resize(sizeof(option));
    bytes.insert(bytes.end(), value, value + option.optlen);
  } else if (command.command == RDMA_USER_CM_CMD_MIGRATE_ID) {
    if (bytes.size() < sizeof(rdma_ucm_migrate_id)) return false;
    command.other_file = file_name(file_left(bytes));
  }
  return true;
}

// The header of a command; nothing where its lengths contradict each other.
std::optional<rdma_ucm_cmd_hdr> header_of(const std::byte* written, size_t size) {
  rdma_ucm_cmd_hdr header;
  if (size < sizeof(header)) return std::nullopt;
  memcpy(&header, written, sizeof(header));
  if (header.in + sizeof(header) > size || header.in > kMaxCmBytes / 2) return std::nullopt;
  const int at = response_offset(header.cmd);
  if (at >= 0 && header.in < at + sizeof(uint64_t)) return std::nullopt;
  return header;
}

// A thread that waits for an event keeps the file, as in a kernel: another thread may close the
// descriptor, whose number may become another file's, and the waiting thread hears of neither.
// (rping ends with an error where it does.) What is kept goes with the thread if it is cancelled.
thread_local OwnFd kept_file;

// Keeps the file of a descriptor; returns a descriptor of it, the same one if there is none left.
int keep_file(int fd) noexcept {
  kept_file = OwnFd::copy_of(fd);
  return kept_file ? kept_file.get() : fd;
}

constexpr ssize_t kNoEvent = -2;

// Says what went wrong, where people want to know.
void tell_failure(uint64_t file, uint32_t command, std::span<const std::byte> bytes,
                  const Answer& answer) {
  std::string words;
  if (rdma_ucm_event_resp event{}; answer.header.error != 0) {
    words = refused_words(command, bytes, answer.header.error);
  } else if (command == RDMA_USER_CM_CMD_GET_EVENT &&
             answer.response.size() >= offsetof(rdma_ucm_event_resp, param)) {
    memcpy(&event, answer.response.data(), offsetof(rdma_ucm_event_resp, param));
    words = event_words(event.event, static_cast<int32_t>(event.status),
                        address_words(destination_of(file, event.id)));
  }
  if (!words.empty()) explain("%s", words.c_str());
}

// Runs the command that is written to the file `file`, of which `fd` is a descriptor. An event has
// been waited for. Returns the bytes taken, -1 with errno, or kNoEvent.
ssize_t run_command(int fd, uint64_t file, const std::byte* written, size_t size,
                    const Waited* waited) {
  const auto header = header_of(written, size);
  if (!header) return fail(EINVAL);
  const std::byte* in = written + sizeof(*header);
  std::vector<std::byte> bytes(in, in + header->in);
  uint64_t response = 0;
  if (const int at = response_offset(header->cmd); at >= 0)
    memcpy(&response, bytes.data() + at, sizeof(response));
  CmCommand command{header->cmd, 0, 0};
  if (!complete_command(command, bytes)) return fail(EINVAL);
  note_written(header->cmd, bytes);
  Answer answer;
  Called called = Called::kAnswered;
  if (waited != nullptr)
    called = call_for_event(fd, *waited, answer);
  else if (!call(fd, command, bytes, answer))
    called = Called::kGone;
  else if ((answer.header.stale & kCmOtherTokenStale) != 0)
    take_stale_token(file_left(bytes));
  if (called == Called::kFailed) return -1;
  if (called == Called::kGone)
    answer = answer_alone(file, header->cmd, bytes);
  else if (waited != nullptr && answer.header.error == EAGAIN)
    return kNoEvent;
  else if (answer.header.error == 0)
    note_carried_out(file, header->cmd, bytes, answer.response);
  if (explanations_wanted()) tell_failure(file, header->cmd, bytes, answer);
  if (answer.header.error != 0) return fail(answer.header.error);
  if (response != 0)
    memcpy(reinterpret_cast<void*>(response), answer.response.data(),
           std::min<size_t>(answer.response.size(), header->out));
  return static_cast<ssize_t>(size);
}

[[gnu::noinline]] ssize_t run_safely(int fd, uint64_t file, const std::byte* written, size_t size,
                                     const Waited* waited) noexcept {
  const CancellationOff cancellation_off;
  try {
    const ssize_t done = run_command(fd, file, written, size, waited);
    if (waited != nullptr && done != kNoEvent) {
      const int error = errno;
      kept_file.reset();
      errno = error;
    }
    return done;
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

[[gnu::noinline]] bool asks_for_event(const std::byte* written, size_t size) noexcept {
  const auto header = header_of(written, size);
  return header && header->cmd == RDMA_USER_CM_CMD_GET_EVENT;
}

}  // namespace

int open_device(int flags) noexcept {
  try {
    uint64_t visible_devices = 0;
    for (const abi::DeviceObject* device : abi::current_devices())
      visible_devices |= uint64_t{1} << (info_of(*device).index & 63);
    return visible_devices == 0 ? -2 : open_file(visible_devices, flags);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

ssize_t write_command(int fd, const void* bytes, size_t size) {
  const auto* const written = static_cast<const std::byte*>(bytes);
  const uint64_t file = file_name(fd);
  if (!asks_for_event(written, size)) return run_safely(fd, file, written, size, nullptr);
  const int kept = keep_file(fd);
  for (;;) {
    char token = 0;
    Waited waited{.taken = recv(kept, &token, 1, 0), .error = 0};
    waited.error = errno;
    const ssize_t done = run_safely(kept, file, written, size, &waited);
    if (done != kNoEvent) return done;
  }
}

}  // namespace hostnic::cm_device
