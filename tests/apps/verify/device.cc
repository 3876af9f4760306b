// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace hostnic::verify {
namespace {

std::atomic<int> g_destroy_failures{0};

// Verbs report by return value, by errno, or by both.
void note(const char* call, int result) {
  if (result == 0) return;
  ++g_destroy_failures;
  fmt::print(stderr, "{} failed: {}\n", call, strerror(result > 0 ? result : errno));
}

[[noreturn]] void fail(const char* call, int error) {
  throw Failure{fmt::format("{}: {}", call, strerror(error))};
}

void check(const char* call, int result) {
  if (result != 0) fail(call, result > 0 ? result : errno);
}

Owned<ibv_context> open_device(const std::string& name, std::string& opened) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) count = 0;  // ENOSYS where the kernel has no RDMA at all
  ibv_device* found = nullptr;
  std::string known;
  for (int i = 0; i < count; ++i) {
    const std::string_view here = ibv_get_device_name(list[i]);
    if (found == nullptr && (name.empty() || here == name)) found = list[i];
    known += fmt::format(" {}", here);
  }
  Owned<ibv_context> context;
  if (found != nullptr) {
    opened = ibv_get_device_name(found);
    context.reset(ibv_open_device(found));
  }
  const int error = errno;
  if (list != nullptr) ibv_free_device_list(list);
  if (found == nullptr && count == 0)
    throw Failure{"no RDMA device; run this under `hostnic lab -- ...` or `hostnic run -- ...`"};
  if (found == nullptr)
    throw Failure{fmt::format("no RDMA device '{}'; there are:{}", name, known)};
  if (!context) throw Failure{fmt::format("ibv_open_device {}: {}", opened, strerror(error))};
  return context;
}

bool is_ipv4_mapped(const ibv_gid& gid) {
  constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

uint8_t choose_gid(ibv_context* context, int length) {
  for (int i = 0; i < length; ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, 1, static_cast<uint32_t>(i), &entry, 0) != 0) continue;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && is_ipv4_mapped(entry.gid))
      return static_cast<uint8_t>(i);
  }
  return 0;
}

ibv_mtu to_mtu(uint32_t bytes) {
  return static_cast<ibv_mtu>(std::bit_width(bytes) - std::bit_width(128u));
}

}  // namespace

void Destroy::operator()(ibv_context* x) const { note("ibv_close_device", ibv_close_device(x)); }
void Destroy::operator()(ibv_pd* x) const { note("ibv_dealloc_pd", ibv_dealloc_pd(x)); }
void Destroy::operator()(ibv_mr* x) const { note("ibv_dereg_mr", ibv_dereg_mr(x)); }
void Destroy::operator()(ibv_mw* x) const { note("ibv_dealloc_mw", ibv_dealloc_mw(x)); }
void Destroy::operator()(ibv_cq* x) const { note("ibv_destroy_cq", ibv_destroy_cq(x)); }
void Destroy::operator()(ibv_qp* x) const { note("ibv_destroy_qp", ibv_destroy_qp(x)); }
void Destroy::operator()(ibv_comp_channel* x) const {
  note("ibv_destroy_comp_channel", ibv_destroy_comp_channel(x));
}

int destroy_failures() { return g_destroy_failures; }

Device::Device(const std::string& name, int gid_index) {
  context_ = open_device(name, name_);
  check("ibv_query_device", ibv_query_device(context(), &attributes_));
  check("ibv_query_port", ibv_query_port(context(), 1, &port_));
  if (port_.state != IBV_PORT_ACTIVE)
    throw Failure{
        fmt::format("{} port 1 is {}, not active", name_, ibv_port_state_str(port_.state))};
  gid_index_ =
      gid_index >= 0 ? static_cast<uint8_t>(gid_index) : choose_gid(context(), port_.gid_tbl_len);
  check("ibv_query_gid", ibv_query_gid(context(), 1, gid_index_, &gid_));
  pd_.reset(ibv_alloc_pd(context()));
  if (!pd_) fail("ibv_alloc_pd", errno);
}

uint8_t Device::rd_atomic() const {
  return static_cast<uint8_t>(
      std::min({attributes_.max_qp_rd_atom, attributes_.max_qp_init_rd_atom, 16}));
}

Owned<ibv_mr> Device::register_memory(std::span<std::byte> bytes, int access) const {
  Owned<ibv_mr> mr(ibv_reg_mr(pd(), bytes.data(), bytes.size(), access));
  if (!mr)
    throw Failure{fmt::format("ibv_reg_mr of {} bytes, access {:#x}: {}", bytes.size(), access,
                              strerror(errno))};
  return mr;
}

Owned<ibv_cq> Device::create_cq(int entries, ibv_comp_channel* channel) const {
  Owned<ibv_cq> cq(ibv_create_cq(context(), entries, nullptr, channel, 0));
  if (!cq) fail("ibv_create_cq", errno);
  return cq;
}

Owned<ibv_qp> Device::create_qp(ibv_cq* send_cq, ibv_cq* recv_cq, ibv_qp_cap& caps) const {
  ibv_qp_init_attr init{};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = caps;
  Owned<ibv_qp> qp(ibv_create_qp(pd(), &init));
  if (!qp) fail("ibv_create_qp", errno);
  caps = init.cap;
  return qp;
}

QpAddress Device::address_of(const ibv_qp* qp, uint32_t psn) const {
  return {qp->qp_num, psn & 0xffffff, gid_, port_.lid};
}

verbs::ConnectOptions Device::options(const ConnectAttributes& how) const {
  verbs::ConnectOptions options;
  options.access = static_cast<unsigned>(how.access);
  options.mtu = to_mtu(how.mtu_bytes);
  options.timeout = how.timeout;
  options.retry_cnt = how.retry_cnt;
  options.rnr_retry = how.rnr_retry;
  options.min_rnr_timer = how.min_rnr_timer;
  options.rd_atomic = how.rd_atomic;
  options.gid_index = gid_index_;
  return options;
}

ibv_qp_attr Device::init_attributes(const ConnectAttributes& how) const {
  return verbs::init_attributes(options(how));
}

ibv_qp_attr Device::rtr_attributes(const ConnectAttributes& how, const QpAddress& peer) const {
  return verbs::rtr_attributes(options(how), peer);
}

ibv_qp_attr Device::rts_attributes(const ConnectAttributes& how, uint32_t own_psn) const {
  return verbs::rts_attributes(options(how), own_psn);
}

void Device::to_init(ibv_qp* qp, const ConnectAttributes& how) const {
  check("ibv_modify_qp to INIT", verbs::to_init(qp, options(how)));
}

void Device::to_ready(ibv_qp* qp, const ConnectAttributes& how, uint32_t own_psn,
                      const QpAddress& peer) const {
  check("ibv_modify_qp to RTR", verbs::to_rtr(qp, options(how), peer));
  check("ibv_modify_qp to RTS", verbs::to_rts(qp, options(how), own_psn));
}

ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  check("ibv_query_qp", ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init));
  return attributes.qp_state;
}

}  // namespace hostnic::verify
