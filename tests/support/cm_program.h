// SPDX-License-Identifier: BSD-3-Clause
// A program's open file of the rdma_cm device, where the program and hostnicd's CmAgent are one
// process: both ends of the conversation of protocol/hostif/cm_message.h. One thread at a time.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/daemon/rdma_cm/cm_agent.h"
#include "protocol/hostif/cm_message.h"
#include "protocol/hostif/control_message.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

class CmProgram {
 public:
  // Opens the file. `epoll_fd` is the one that the agent was made with. Check open() then. `user`
  // is the program's; only root may name another user than its own.
  CmProgram(CmAgent& agent, int epoll_fd, uid_t user = geteuid()) {
    // The sockets are of whoever this thread, and no other one, is when it makes them.
    const uid_t self = geteuid();
    if (user != self && syscall(SYS_setresuid, -1, user, -1) != 0) return;
    auto file = pair_of_sockets();
    if (user != self && syscall(SYS_setresuid, -1, self, -1) != 0) return;
    auto answers = pair_of_sockets();
    if (!file || !answers) return;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = file->second.get();
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, file->second.get(), &event) != 0) return;
    agent.open(std::move(file->second), {.visible_devices = ~uint64_t{0}}, false);
    std::byte reply[sizeof(ControlReply) + sizeof(OpenCmReply)];
    if (recv(file->first.get(), reply, sizeof reply, MSG_DONTWAIT) != sizeof reply) return;
    OpenCmReply opened;
    memcpy(&opened, reply + sizeof(ControlReply), sizeof opened);
    name_ = opened.file;
    file_ = std::move(file->first);
    answers_ = std::move(answers->first);
    answer_to_ = std::move(answers->second);
  }

  bool open() const { return static_cast<bool>(file_); }
  // What MIGRATE_ID of another file calls this one.
  uint64_t name() const { return name_; }

  // Gives a command; the agent takes it when it is served next.
  bool give(const CmCommand& header, std::span<const std::byte> command) {
    iovec pieces[] = {{const_cast<CmCommand*>(&header), sizeof header},
                      {const_cast<std::byte*>(command.data()), command.size()}};
    const int descriptor = answer_to_.get();
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof descriptor)] = {};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    return sendmsg(file_.get(), &message, 0) ==
           static_cast<ssize_t>(sizeof header + command.size());
  }

  struct Answer {
    CmAnswer result;
    std::vector<std::byte> response;
  };
  // The answer to the last command; nothing: there is none yet.
  std::optional<Answer> answer() {
    std::vector<std::byte> bytes(kMaxCmBytes);
    const ssize_t size = recv(answers_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    Answer answer{};
    if (size < static_cast<ssize_t>(sizeof answer.result)) return std::nullopt;
    memcpy(&answer.result, bytes.data(), sizeof answer.result);
    answer.response.assign(bytes.begin() + sizeof answer.result, bytes.begin() + size);
    return answer;
  }

  // Whether the agent has said that an event waits; takes its word away.
  bool take_token() {
    std::byte token{};
    return recv(file_.get(), &token, 1, MSG_DONTWAIT) == 1;
  }

 private:
  static std::optional<std::pair<UniqueFd, UniqueFd>> pair_of_sockets() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return std::nullopt;
    return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
  }

  uint64_t name_ = 0;
  UniqueFd file_, answers_, answer_to_;
};

}  // namespace hostnic
