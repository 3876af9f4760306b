// SPDX-License-Identifier: BSD-3-Clause
// One open device: the thread that serves its control socket from kOpen until the client goes, and
// all that the client has. A thread of its own, so that mapping a gigabyte, or waiting for packets
// to leave memory that is deregistered, holds up nobody else's requests.
//
// The end comes in five ways, all treated alike: the client closes the socket, its process ends
// (pidfd; a forked child may hold the socket open), the NIC finds nonsense in its rings, its memory
// goes away, or hostnicd stops.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/daemon/clients/client_regions.h"
#include "dataplane/daemon/control/control_request.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/trust/owner.h"
#include "protocol/hostif/control_socket.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

class ClientSession {
 public:
  // `finished_fd` is an eventfd of the control thread, written when finished() has become true.
  // `view` is null unless the client is one of a view's. Of `opening` one has been taken for the
  // client's user, which is given back when the request has been answered.
  ClientSession(Daemon& daemon, UniqueFd socket, const ucred& peer, int finished_fd,
                const View* view, UserShares& opening);
  // Starts the thread, which takes the open request from the socket first, and answers it: the
  // descriptors that come along are its own to close. Returns false if no thread is left; the
  // session then has the socket, and nothing else.
  bool start();
  // Waits for the thread, if there is one.
  ~ClientSession();
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  bool finished() const { return finished_.load(std::memory_order_acquire); }
  uint32_t uid() const { return info_.uid; }
  // Whether another user's program took memory away that the NIC was using; once finished().
  bool took_memory_away() const { return took_memory_away_; }
  // The socket of a session that could not be started.
  UniqueFd take_socket() { return std::move(socket_); }
  // Ends the session as if the client had closed the socket; called by the control thread.
  void request_stop();
  // Looks whether the NIC has given the client up, and whether the port is up; called by the
  // control thread every 100 ms. A thousand threads that look themselves would wake ten thousand
  // times a second.
  void look();
  // What the client has of objects that the NIC does not know; nothing: it is not served. Called by
  // the control thread.
  struct ClientObjects {
    uint32_t client_id = 0;
    std::vector<ObjectLine> lines;
  };
  ClientObjects objects();

  // The descriptors that a session takes while it opens; later it keeps fewer.
  static constexpr uint32_t kDescriptors = 10;

 private:
  void run();
  Expected<OpenDevice, ControlError> take_request(std::vector<UniqueFd>& fds);
  Expected<void, ControlError> open(const OpenDevice& request, std::vector<UniqueFd>& fds);
  Expected<void, ControlError> take_descriptors(const OpenDevice& request,
                                                std::vector<UniqueFd>& fds);
  Expected<void, ControlError> attach();
  DeviceInfo device() const;
  bool send_open_reply();
  void serve();
  const char* wait_for_request();
  void tell_port_state();
  const char* why_over() const;
  void set_serving(bool on);
  bool refuse(const ControlError& error);
  // Requests: session_requests.cc.
  bool handle(ControlDatagram& datagram);
  bool answer(const Expected<void, ControlError>& done);
  bool handle_name(const NameHost& call);
  bool handle_explain(const ExplainRequest& request);
  uint32_t owe(const QpView& qp, const ExplainRequest& request);
  bool handle_list();
  void close_descriptors();
  bool program_ended() const;
  void let_sends_leave();
  bool was_captured_death() const;
  void close_down(const char* why);

  Daemon& daemon_;
  std::mutex socket_mutex_;  // the socket is not closed while it is held
  UniqueFd socket_, mem_fd_, pid_fd_, mirror_fd_, doorbell_fd_, userfaultfd_;
  int finished_fd_;
  const View* view_;
  UserShares& opening_;
  NicInstance* unit_ = nullptr;
  ClientInfo info_;
  std::unique_ptr<ClientChannel> channel_;
  std::unique_ptr<ClientRegions> regions_;
  pid_t pid_ = 0;  // as the kernel says; 0: in another PID namespace
  // Questions about peers at hosts that are being asked; the session thread's.
  static constexpr size_t kMostOwed = 16;
  struct OwedExplanation {
    uint32_t ticket;
    QpView qp;
    ExplainRequest request;
  };
  std::vector<OwedExplanation> owed_;
  uint32_t next_ticket_ = 0;
  // The numbers of hosts that the client has named by IPv6 addresses.
  std::vector<Ipv4Address> named_hosts_;
  bool attached_ = false;
  std::mutex serving_mutex_;
  uint32_t port_changes_ = 0;  // what the driver was told; under serving_mutex_
  bool serving_ = false;       // channel_ stays while this is true; under serving_mutex_
  bool took_memory_away_ = false;
  std::atomic<bool> finished_{false};
  std::thread thread_;
};

}  // namespace hostnic
