#include "bench/e2e/fabric.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace hostnic::bench {
namespace {

constexpr uint8_t kPort = 1;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr uint32_t kFirstPsn = 0;
constexpr uint8_t kTimeout = 14;
constexpr uint8_t kRetries = 7;
constexpr size_t kPollBatch = 16;

void check(int error, std::string_view what) {
  if (error != 0) die(fmt::format("{}: {}", what, strerror(error)));
}

}  // namespace

void die(std::string_view what) {
  fmt::print(stderr, "hostnic-pairs: {}\n", what);
  exit(1);
}

Pages::Pages(size_t bytes) : bytes_(bytes) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) die(fmt::format("no memory for {} bytes", bytes));
  std::memset(start, 1, bytes);
  start_ = static_cast<std::byte*>(start);
}

Pages::~Pages() { munmap(start_, bytes_); }

End::End(int device_number, const Depths& depths) : depths_(depths) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || device_number >= count)
    die(fmt::format("{} RDMA devices, 2 are needed", list == nullptr ? 0 : count));
  context_.reset(ibv_open_device(list[device_number]));
  ibv_free_device_list(list);
  if (!context_) die("ibv_open_device failed");
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
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = kPort;
  attributes.qp_access_flags = kAccess;
  check(ibv_modify_qp(created.get(), &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "INIT");
  qps_.push_back(std::move(created));
}

void End::connect(size_t number, const End& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_4096;
  attributes.dest_qp_num = peer.qp(number)->qp_num;
  attributes.rq_psn = kFirstPsn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.dgid = peer.gid_;
  attributes.ah_attr.grh.hop_limit = 64;
  attributes.ah_attr.port_num = kPort;
  check(ibv_modify_qp(qp(number), &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        "RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = kFirstPsn;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kRetries;
  attributes.max_rd_atomic = 1;
  check(ibv_modify_qp(qp(number), &attributes,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
        "RTS");
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
