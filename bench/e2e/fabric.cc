// SPDX-License-Identifier: BSD-3-Clause
#include "bench/e2e/fabric.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/support/verbs_pair.h"

namespace hostnic::bench {
namespace {

constexpr uint8_t kPort = 1;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr uint32_t kFirstPsn = 0;
constexpr verbs::ConnectOptions kOptions{.access = kAccess, .mtu = IBV_MTU_4096};
constexpr size_t kPollBatch = 16;

void check(int error, std::string_view what) {
  if (error != 0) die(fmt::format("{}: {}", what, strerror(error)));
}

}  // namespace

void die(std::string_view what) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, what);
  exit(1);
}

Pages::Pages(size_t bytes, Sharing sharing) : bytes_(bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (sharing == Sharing::kShared) {
    fd_ = memfd_create("pages", MFD_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0) die("memfd_create failed");
    flags = MAP_SHARED;
  }
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd_, 0);
  if (start == MAP_FAILED) die(fmt::format("no memory for {} bytes", bytes));
  std::memset(start, 1, bytes);
  start_ = static_cast<std::byte*>(start);
}

Pages::~Pages() {
  munmap(start_, bytes_);
  if (fd_ >= 0) close(fd_);
}

End::End(size_t device_number, const Depths& depths) : depths_(depths) {
  context_.reset(verbs::open_device(device_number));
  if (!context_)
    die(fmt::format("RDMA device {}: {} (2 are needed)", device_number, strerror(errno)));
  pd_.reset(ibv_alloc_pd(context_.get()));
  const int completions = static_cast<int>(depths.completions);
  send_cq_.reset(ibv_create_cq(context_.get(), completions, nullptr, nullptr, 0));
  receive_cq_.reset(ibv_create_cq(context_.get(), completions, nullptr, nullptr, 0));
  if (!pd_ || !send_cq_ || !receive_cq_) die("no protection domain or completion queue");
  check(ibv_query_gid(context_.get(), kPort, 0, &gid_), "ibv_query_gid");
}

Owned<ibv_mr> End::try_register(void* start, size_t bytes) const {
  return Owned<ibv_mr>(ibv_reg_mr(pd_.get(), start, bytes, kAccess));
}

Owned<ibv_mr> End::register_memory(const Pages& pages) const {
  auto region = try_register(pages.at(0), pages.bytes());
  if (!region) die(fmt::format("ibv_reg_mr of {} bytes failed", pages.bytes()));
  return region;
}

void End::add_queue_pair() {
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = send_cq_.get();
  wanted.recv_cq = receive_cq_.get();
  wanted.cap = {depths_.send, depths_.receive, 1, 1, 0};
  Owned<ibv_qp> created(ibv_create_qp(pd_.get(), &wanted));
  if (!created) die(fmt::format("queue pair {} could not be created", qps_.size()));
  check(verbs::to_init(created.get(), kOptions), "INIT");
  qps_.push_back(std::move(created));
}

void End::connect(size_t number, const End& peer) {
  const verbs::QpAddress address{peer.qp(number)->qp_num, kFirstPsn, peer.gid_};
  check(verbs::to_rtr(qp(number), kOptions, address), "RTR");
  check(verbs::to_rts(qp(number), kOptions, kFirstPsn), "RTS");
}

void connect_queue_pairs(End& first, End& second, size_t count) {
  for (size_t number = 0; number < count; ++number) {
    first.add_queue_pair();
    second.add_queue_pair();
    first.connect(number, second);
    second.connect(number, first);
  }
}

size_t poll(ibv_cq* cq, size_t wanted) {
  std::array<ibv_wc, kPollBatch> completions;
  const int taken =
      ibv_poll_cq(cq, static_cast<int>(std::min(wanted, kPollBatch)), completions.data());
  if (taken < 0) die("ibv_poll_cq failed");
  for (int i = 0; i < taken; ++i)
    if (completions[static_cast<size_t>(i)].status != IBV_WC_SUCCESS)
      die(fmt::format("a completion with the status \"{}\"",
                      ibv_wc_status_str(completions[static_cast<size_t>(i)].status)));
  return static_cast<size_t>(taken);
}

}  // namespace hostnic::bench
