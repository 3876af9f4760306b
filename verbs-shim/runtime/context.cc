// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/context.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "protocol/hostif/shared_fence.h"
#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/base/clock.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/memory/own_process.h"
#include "verbs-shim/runtime/context_parts.h"
#include "verbs-shim/runtime/last_sends.h"
#include "verbs-shim/runtime/use_counts.h"

namespace hostnic::runtime {

using driver::Completion;
using driver::Cq;
using driver::Driver;
using driver::DriverSettings;
using driver::NicLink;
using driver::Qp;
using driver::RecvRequest;
using driver::SendRequest;
using driver::Srq;

namespace {

using memory::AsideTable;
using memory::MemoryRegistrar;

constexpr uint32_t kFullPollsBeforeTurn = 8;
constexpr uint32_t kYieldsBeforeSleep = 64;

}  // namespace

Context::Context() = default;

namespace {

// The devices of a process share one mirror, which hostnicd makes for the first of them: opens take
// turns, so that there is a first one. A forked child begins with a gate of its own, because the
// thread that holds the inherited one may not exist there.
struct OpeningGate {
  const pid_t pid = getpid();
  std::mutex mutex;
};

OpeningGate& opening_gate() {
  static constinit std::atomic<OpeningGate*> current{nullptr};
  OpeningGate* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->pid == getpid()) return *found;
  auto* fresh = new OpeningGate;
  if (current.compare_exchange_strong(found, fresh)) return *fresh;  // the parent's stays for ever
  delete fresh;
  return *found;
}

// What hostnicd's answer to an open brings: the segment, its arena, and what wakes and is woken.
constexpr size_t kOpenDescriptors = 5;

// The kernel leaves out descriptors that would be more than the process may have.
Unexpected<ContextError> too_few_descriptors(size_t got) {
  rlimit open_files{};
  getrlimit(RLIMIT_NOFILE, &open_files);
  return failure(EMFILE, "hostnicd's answer has " + std::to_string(kOpenDescriptors) +
                             " descriptors, and " + std::to_string(got) +
                             " of them fit: this process may have " +
                             std::to_string(open_files.rlim_cur) + " open (ulimit -n)");
}

}  // namespace

Expected<std::unique_ptr<Context>, ContextError> Context::open(uint32_t device_index) {
  if (memory::OwnProcess::is_bare_child())
    return failure(EOPNOTSUPP, std::string("no device is opened: ") + memory::kBareChild);
  const auto move_threads = may_move_threads();
  if (!move_threads) return Unexpected(move_threads.error());
  const std::lock_guard taking_turns(opening_gate().mutex);
  MemoryRegistrar& registrar = MemoryRegistrar::process();
  registrar.open_own_memory();
  if (registrar.mem_fd() < 0)
    return failure(EACCES, "/proc/self/mem can't be opened: is /proc mounted?");
  auto control = ControlClient::connect();
  if (!control) return Unexpected(control.error());
  const UniqueFd pid_fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));

  OpenRequest request{};
  request.device_index = device_index;
  request.pid = static_cast<uint32_t>(getpid());
  request.has_mirror = registrar.mirror_fd() >= 0 ? 1 : 0;
  snprintf(request.program, sizeof(request.program), "%s", program_invocation_short_name);
  // If there is no pidfd hostnicd opens one of its own.
  std::vector<int> fds = {registrar.mem_fd()};
  if (pid_fd) fds.push_back(pid_fd.get());
  if (request.has_mirror != 0) fds.push_back(registrar.mirror_fd());
  auto answer = control->call(ControlKind::kOpen, bytes_of(request), fds);
  if (!answer) return Unexpected(answer.error());
  control->wait_without_limit();
  if (answer->fds.size() < kOpenDescriptors) return too_few_descriptors(answer->fds.size());
  const auto reply = answer->as<OpenReply>();

  std::unique_ptr<Context> context(new Context);
  context->parts_ = std::make_unique<Parts>(std::move(*control));
  context->device_ = reply.device;
  if (reply.has_userfaultfd != 0 && answer->fds.size() > 5)
    registrar.set_lent_userfaultfd(answer->fds[5].get());
  if (auto ready = registrar.init(answer->fds[2].get()); !ready) {
    return failure(ready.error().error, ready.error().message);
  }
  if (auto mapped = context->map_segment(std::move(answer->fds), reply); !mapped)
    return Unexpected(mapped.error());
  context->prepare_threads(*move_threads);
  context->parts_->user = std::make_unique<Parts::User>(*context->parts_);
  registrar.attach(*context->parts_->user);
  context->alive_.store(true, std::memory_order_release);
  if (const int error = context->parts_->service->start(); error != 0) {
    return failure(error, std::string("service thread: ") + strerror(error));
  }
  note_open(*context);
  log_debug("%s opened; memory: %s", context->device_.name, registrar.status().c_str());
  return context;
}

// Makes what the program's threads and the service thread share cores by.
void Context::prepare_threads(bool move_threads) {
  Parts& p = *parts_;
  p.cores.emplace(*p.header, *p.doorbell, move_threads);
  p.service.emplace(ServiceThread::Served{device_, *driver_, *p.header, p.control, *p.cores, alive_,
                                          [this] { return refresh_gids(); },
                                          [this] { return parts_->owed.settle(monotonic_ns()); }});
}

Expected<void, ContextError> Context::map_segment(std::vector<UniqueFd> fds,
                                                  const OpenReply& reply) {
  Parts& p = *parts_;
  p.arena_fd = OwnFd::copy_of(fds[1].get());
  p.doorbell_fd = OwnFd::copy_of(fds[3].get());
  if (!p.arena_fd || !p.doorbell_fd)
    return failure(errno, std::string("no descriptors for hostnicd's files: ") + strerror(errno));
  if (const int error = p.segment.map(fds[0].get(), reply.segment_bytes, p.arena_fd.get(),
                                      reply.arena_bytes, SegmentMemory::Access::kOpened);
      error != 0)
    return failure(error, std::string("mapping the segment: ") + strerror(error));
  void* doorbell = mmap(nullptr, sizeof(DoorbellPage), PROT_READ, MAP_SHARED, fds[4].get(), 0);
  if (doorbell == MAP_FAILED)
    return failure(errno, std::string("mapping the doorbell: ") + strerror(errno));
  p.doorbell = static_cast<const DoorbellPage*>(doorbell);
  p.lcore_fences =
      takes_shared_fences() && p.doorbell->shares_fences.load(std::memory_order_acquire) != 0;
  p.header = reinterpret_cast<SegmentHeader*>(p.segment.base());
  DriverSettings settings;
  settings.max_qps = device_.max_qps;
  settings.max_rd_atomic = device_.offer.max_qp_rd_atom;
  settings.mtu_bytes = device_.mtu_bytes;
  settings.window = device_.window;
  settings.policy = wire::Policy{static_cast<uint8_t>(device_.policy)};
  settings.paths = std::clamp<uint32_t>(device_.paths, 1, kMostPaths);
  settings.relaxed_ordering = device_.relaxed_ordering != 0;
  settings.adversary_seed = device_.adversary_seed;
  settings.line_rate_mbps = device_.speed_mbps;
  settings.congestion_allowance_ns = uint64_t{device_.congestion_allowance_us} * 1000;
  settings.traffic = claim_use_counts();
  settings = with_timescale(settings, std::max(device_.timescale, 1u));
  NicLink& link = *this;
  driver_ = std::make_unique<Driver>(link, p.segment, settings);
  if (driver_->error() != 0) {
    return failure(driver_->error(), std::string("hostnicd's segment does not fit this library: ") +
                                         strerror(driver_->error()));
  }
  return {};
}

Context::~Context() {
  if (parts_ == nullptr) return;
  note_closed(*this);
  parts_->detach();
  parts_->service.reset();
  driver_.reset();
}

void Context::kick() {
  note_handover(*parts_->header, sched_getcpu());
  if (doorbell_wanted(*parts_->doorbell, parts_->lcore_fences)) {
    const CancellationOff cancellation_off;
    eventfd_write(parts_->doorbell_fd.get(), 1);
  }
}

void Context::wait_for_response() {
  static thread_local uint32_t waits = 0;
  if (++waits % kYieldsBeforeSleep != 0) {
    sched_yield();
    return;
  }
  pause_for(20'000);
}

void Context::pause(uint32_t pause_ns) { pause_for(pause_ns); }

uint32_t Context::port_mtu_bytes() const {
  const uint32_t fits = alive() ? parts_->header->mtu_bytes.load(std::memory_order_relaxed) : 0;
  return fits == 0 ? device_.mtu_bytes : std::min(fits, device_.mtu_bytes);
}

bool Context::port_up() const {
  if (!alive()) return device_.link_up != 0;
  return port_is_up(parts_->header->port_changes.load(std::memory_order_acquire));
}

int Context::prefetch(uint64_t va, uint64_t length_bytes, bool for_writing) {
  return memory::prefetch(va, length_bytes, for_writing);
}

void Context::take_unreliable_writes() { MemoryRegistrar::process().bring_all(); }

// The NIC or the driver gets some time before a queue is made too small: an adapter has long
// written the completions of what was sent before the call; here neither may have had a core yet.
int Context::resize_cq(Cq& cq, uint32_t entries) {
  constexpr uint32_t kTries = 100;
  constexpr uint32_t kPauseNs = 100'000;
  for (uint32_t i = 0; i < kTries && alive() && cq.held() <= entries; ++i) {
    const uint64_t expected = uint64_t{cq.held()} + driver_->outstanding_sends(cq);
    if (entries >= cq.entries() || expected <= entries) break;
    pause_for(kPauseNs);
    driver_->try_progress(monotonic_ns());
  }
  return cq.resize(entries);
}

int Context::poll_cq(Cq& cq, Completion* out, int max) {
  static thread_local uint32_t empty_polls = 0, rounds = 0;
  static thread_local uint32_t full_polls = 0;
  int taken = cq.poll(out, max);
  // A program that finds a completion at each poll is polling too, and its send queues want to go
  // on while it works through the completions.
  const bool looks = taken == 0 || ++full_polls % kFullPollsBeforeTurn == 0;
  if (!alive()) return taken;
  Parts& p = *parts_;
  TimeNs now = 0;
  if (looks) {
    now = monotonic_ns();
    expect_look_until(*p.header, now + kPollingNs);
    if (driver_->turn_due(now)) {
      driver_->try_progress(now);
      if (taken == 0) taken = cq.poll(out, max);
    }
  }
  if (taken != 0) {
    empty_polls = rounds = 0;
  } else if (++empty_polls >= polls_before_sharing()) {
    empty_polls = 0;
    if (!p.cores->share(now, ++rounds)) {
      announce_nap(*p.header);
      if (!driver_->reports_waiting()) p.cores->nap();
    }
    // What has come meanwhile was there long before this returns: a program that finds nothing, and
    // then hears by rdma_cm that the peer has gone, may destroy its queue pair.
    driver_->try_progress(monotonic_ns());
    taken = cq.poll(out, max);
    if (taken != 0) rounds = 0;
  }
  return taken;
}

int Context::post_send(Qp& qp, const SendRequest& request) {
  if (!alive()) return EIO;
  const TimeNs now = recent_ns();
  // A program that posts is likely to poll, though perhaps not before the NIC, which the post
  // wakes, has been where the program was: else the NIC would wake the service thread, which then
  // is in the way of both.
  SegmentHeader& header = *parts_->header;
  const bool polled_lately = now + kPollingNs / 2 <= look_expected_until(header);
  if (!polled_lately) expect_look_until(header, now + kPollingNs);
  const int error = driver_->post_send(&qp, request, now);
  // A program that posts to thousands of queue pairs before it polls does what pollers do.
  if (!polled_lately && driver_->turn_due(now)) driver_->try_progress(now);
  parts_->service->timer_set(now);
  return error;
}

namespace {

// A message that can't be placed when it arrives may be lost: the receive waits here.
void bring_receive(const RecvRequest& request) {
  if (!AsideTable::anything_aside()) return;
  for (const Sge& sge : request.sges) MemoryRegistrar::process().bring(sge.addr, sge.length_bytes);
}

}  // namespace

int Context::post_recv(Qp& qp, const RecvRequest& request) {
  if (!alive()) return EIO;
  bring_receive(request);
  return driver_->post_recv(&qp, request);
}

int Context::post_srq_recv(Srq& srq, const RecvRequest& request) {
  if (!alive()) return EIO;
  bring_receive(request);
  return driver_->post_srq_recv(&srq, request);
}

void Context::abandon_after_fork() {
  alive_.store(false, std::memory_order_release);
  gids_.abandon_after_fork();
  if (parts_ == nullptr) return;
  if (parts_->service) parts_->service->abandon_after_fork();
  parts_->owed.abandon_after_fork();
  parts_->user.reset();  // the registrar has forgotten it
  parts_->control.close();
  // The segment is not mapped here (MADV_DONTFORK), and the addresses may get other owners.
  parts_->segment.abandon();
}

}  // namespace hostnic::runtime
