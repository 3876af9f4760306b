// SPDX-License-Identifier: BSD-3-Clause
// One open device in a real process: the connection to hostnicd, the segment, the Driver on it,
// memory registration, and the service thread (service_thread.h). The ABI layer talks to this and
// to Driver/Qp/Cq, never to sockets or rings.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/control_message.h"
#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/driver/driver.h"
#include "verbs-shim/runtime/context_error.h"
#include "verbs-shim/runtime/live_gids.h"

namespace hostnic::memory {
struct Registration;
}

namespace hostnic::runtime {

struct MemoryRegistration {
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint64_t va = 0, length_bytes = 0;
  uint64_t number = 0;  // of memory::Registration
};

class Context final : private driver::NicLink {
 public:
  // Connects and opens device `index`. Starts no thread if it fails.
  static Expected<std::unique_ptr<Context>, ContextError> open(uint32_t device_index);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The device as it was when it was opened; and with the GID table of now. Any thread.
  const DeviceInfo& device() const { return device_; }
  DeviceInfo device_now() const { return gids_.on(device_); }
  driver::Driver& driver() { return *driver_; }

  // May be called by any thread. Length 0 gives a key that reaches nothing. `replaced`, unless
  // null, is what the new registration takes the key of and takes the place of, if it succeeds.
  // Fails with EINVAL (wrap-around, REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE), EFAULT (not
  // mapped, or not writable when access asks for writing), ENOMEM (limits), EBUSY (windows are
  // bound to what is to be replaced), EIO (hostnicd gone).
  Expected<MemoryRegistration, ContextError> register_memory(uint32_t pd, uint64_t va,
                                                             uint64_t length_bytes, uint64_t iova,
                                                             uint32_t access,
                                                             const MemoryRegistration* replaced);
  int deregister_memory(const MemoryRegistration& registration);
  // Makes the pages of this process's memory present. Returns 0, or EFAULT: not all of it is
  // mapped, or not for such an access.
  int prefetch(uint64_t va, uint64_t length_bytes, bool for_writing);

  // Gives the number by which the NIC knows a host (protocol/gid.h), for queue pairs and datagrams:
  // IPv4 addresses are their own; others hostnicd is asked for once. An error is an errno value:
  // ENOMEM (kMaxNamedHosts), EIO (hostnicd gone). Any thread.
  Expected<Ipv4Address, int> number_of(const Gid& host);

  // May be called by any thread. Returns 0, EINVAL when more completions are queued than fit, or
  // ENOMEM.
  int resize_cq(driver::Cq& cq, uint32_t entries);

  // Called on ibv_poll_cq's path, by any thread: drives the protocol without blocking (try-lock)
  // and fills `out`. Long runs of empty polls yield the CPU.
  int poll_cq(driver::Cq& cq, driver::Completion* out, int max);
  int post_send(driver::Qp& qp, const driver::SendRequest& request);
  int post_recv(driver::Qp& qp, const driver::RecvRequest& request);
  int post_srq_recv(driver::Srq& srq, const driver::RecvRequest& request);
  // Called before a queue pair of UC can hear its peer: of WRITEs that find no page nobody would
  // know. May take as long as copying all that has been registered a moment before.
  static void take_unreliable_writes();

  // False once hostnicd died or dropped this client, or in a forked child: every call then fails
  // with EIO.
  bool alive() const { return alive_.load(std::memory_order_acquire); }
  // Whether the device's port carries packets. A dead device says what was so when it was opened.
  bool port_up() const;
  // The largest IB MTU whose packets fit the port now.
  uint32_t port_mtu_bytes() const;
  // Called in a forked child: forgets descriptors and threads without touching the parent's
  // session.
  void abandon_after_fork();
  // The program ends: see driver::Driver::let_all_leave(). Without effect in a forked child.
  void let_all_leave() {
    if (alive()) driver_->let_all_leave();
  }

 private:
  struct Parts;
  Context();
  void kick() override;
  void wait_for_response() override;
  void pause(uint32_t pause_ns) override;
  std::optional<driver::Why> ask_why(const ExplainRequest& request) override;
  void owe_line(const driver::OwedLine& line) override;
  Expected<void, ContextError> map_segment(std::vector<UniqueFd> fds, const OpenReply& reply);
  void prepare_threads(bool move_threads);
  bool refresh_gids();
  Expected<RegisterMrReply, ContextError> send_registration(
      const memory::Registration& registration, const RegisterMrRequest& request);

  std::unique_ptr<Parts> parts_;
  DeviceInfo device_{};
  LiveGids gids_;
  std::unique_ptr<driver::Driver> driver_;
  std::atomic<bool> alive_{false};
};

}  // namespace hostnic::runtime
