// SPDX-License-Identifier: BSD-3-Clause
// The control thread: accepts connections, answers lists and commands, hands opened devices to
// their session threads, and serves the prompt and signals. Everything that changes hostnicd as a
// whole happens here, so commands need no locks among themselves. Split over server.cc (the loop,
// begin and end), connections.cc, requests.cc and sessions.cc.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dataplane/daemon/adapter_watch.h"
#include "dataplane/daemon/clients/session.h"
#include "dataplane/daemon/control/control_listener.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/network_watch.h"
#include "dataplane/daemon/observe/capture.h"
#include "dataplane/daemon/observe/error_watch.h"
#include "dataplane/daemon/observe/inquiries.h"
#include "dataplane/daemon/observe/metrics_listener.h"
#include "dataplane/daemon/observe/sysfs_export.h"
#include "dataplane/daemon/rdma_cm/cm_agent.h"
#include "dataplane/daemon/start/watchdog.h"
#include "dataplane/daemon/trust/penalties.h"

namespace hostnic {

class Prompt;

class ControlServer {
 public:
  // `listeners` are hostnicd's own, then one for each view of the plan. `signal_fd` is a signalfd
  // of the signals that end hostnicd. `prompt` may be null.
  ControlServer(Daemon& daemon, std::vector<ControlListener> listeners, int signal_fd,
                Prompt* prompt);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Has metrics asked for by HTTP; called before run().
  void serve_metrics(std::unique_ptr<MetricsListener> listener);

  // Runs until a signal, `quit`, or the prompt's end. Returns 0 or an exit code.
  int run();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Lines that say what is used up come that seldom: it comes and goes while little is left.
  static constexpr std::chrono::seconds kLinesEvery{60};
  // A connection that has not opened a device.
  struct Connection {
    UniqueFd socket;
    ucred peer{};
    const View* view = nullptr;  // null: all NICs are seen
    std::optional<uint32_t> stranger = {};
    // Its request waits for a thread, until then; nothing is heard of it meanwhile.
    std::optional<TimePoint> waits_until = {};
  };
  using Connections = std::list<Connection>;

  // Functions in connections.cc.
  static UserShares::Limits connections_for(uint64_t descriptors);
  static uint64_t descriptor_limit();
  void watch(int fd) { static_cast<void>(try_watch(fd)); }
  bool try_watch(int fd);
  void accept_connections(size_t listener);
  void make_room(std::optional<uint32_t> stranger);
  void remove_one();
  void remove(Connections::iterator connection);
  void accept_one_without_descriptor(size_t listener);

  // Functions in sessions.cc: devices that are opened, and their end.
  bool open_session(Connection& connection);
  std::string why_no_session(uint32_t uid) const;
  bool hold(Connection& connection);
  void serve_waiting();
  void note_limit(const Connection& connection, const std::string& limit);
  void reap_sessions();

  // Functions in requests.cc.
  // Serves a request; returns false if the connection is to be closed (or was handed over).
  bool serve_connection(Connection& connection);
  bool answer_list(const Connection& connection);
  // Returns false where the connection has become a capture's.
  bool start_capture(Connection& connection, CaptureRequest request);
  bool answer_dump(const Connection& connection, const DumpCapturesRequest& request);
  void end_capture(std::list<std::unique_ptr<Capture>>::iterator capture);
  bool answer_text(const Connection& connection, const std::string& text);
  bool answer_netlink(const Connection& connection, const RdmaNetlink& request);
  void open_cm(Connection& connection, OpenCmRequest request);

  void handle(int fd);
  int wait_ms();
  void look_at_sessions();
  void keep_errors();
  void tell_sessions();

  Daemon& daemon_;
  std::vector<ControlListener> listeners_;
  int signal_fd_;
  Prompt* prompt_;
  UniqueFd epoll_fd_, finished_fd_;
  UniqueFd spare_fd_;  // given up for a moment when descriptors are used up
  TimePoint say_descriptors_from_{}, say_threads_from_{};  // the next line about that
  Inquiries inquiries_;
  CmAgent cm_;
  SysfsExport sysfs_;
  Watchdog watchdog_;
  ErrorWatch error_watch_;
  TimePoint save_errors_from_{};
  std::unique_ptr<MetricsListener> metrics_;  // null: nobody asks by HTTP
  // How many connections there may be, and requests that are being looked at.
  UserShares::Limits most_connections_;
  UserShares opening_;
  Connections connections_;
  size_t waiting_ = 0;  // connections that wait for a thread
  std::list<ClientSession> sessions_;
  std::list<std::unique_ptr<Capture>> captures_;
  uint64_t max_sessions_ = 0;
  bool retired_left_ = false;
  Penalties penalties_;
  std::set<uint32_t> limit_noted_;  // users of whose limit the log says something
  std::chrono::steady_clock::time_point look_at_sessions_{};
  // Both tell the sessions, from their beginning on.
  NetworkWatch network_;
  AdapterWatch adapters_;
};

}  // namespace hostnic
