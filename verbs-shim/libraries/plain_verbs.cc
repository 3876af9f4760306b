// SPDX-License-Identifier: BSD-3-Clause
// The functions of libibverbs that work on public fields alone, for machines without one: words for
// numbers, rates, and copies between the kernel's structures and the library's. Words and numbers
// are those of rdma-core, which programs print and scripts look for.
#include <fcntl.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

// Everything else is hidden; versions are in libibverbs.symbols.
#define HOSTNIC_VERB extern "C" [[gnu::visibility("default")]]

namespace {

// Tables of the words begin at the numbers that the comments behind them name.
constexpr const char* kUnknown = "unknown";

constexpr const char* kNodeTypes[] = {kUnknown,
                                      "InfiniBand channel adapter",
                                      "InfiniBand switch",
                                      "InfiniBand router",
                                      "iWARP NIC",
                                      "usNIC",
                                      "usNIC UDP",
                                      "unspecified"};  // 0

constexpr const char* kPortStates[] = {"no state change (NOP)", "down", "init", "armed", "active",
                                       "active defer"};  // 0

constexpr const char* kEvents[] = {"CQ error",
                                   "local work queue catastrophic error",
                                   "invalid request local work queue error",
                                   "local access violation work queue error",
                                   "communication established",
                                   "send queue drained",
                                   "path migrated",
                                   "path migration request error",
                                   "local catastrophic error",
                                   "port active",
                                   "port error",
                                   "LID change",
                                   "P_Key change",
                                   "SM change",
                                   "SRQ catastrophic error",
                                   "SRQ limit reached",
                                   "last WQE reached",
                                   "client reregistration",
                                   "GID table change",
                                   "WQ fatal"};  // IBV_EVENT_CQ_ERR

constexpr const char* kStatuses[] = {"success",
                                     "local length error",
                                     "local QP operation error",
                                     "local EE context operation error",
                                     "local protection error",
                                     "Work Request Flushed Error",
                                     "memory management operation error",
                                     "bad response error",
                                     "local access error",
                                     "remote invalid request error",
                                     "remote access error",
                                     "remote operation error",
                                     "transport retry counter exceeded",
                                     "RNR retry counter exceeded",
                                     "local RDD violation error",
                                     "remote invalid RD request",
                                     "aborted error",
                                     "invalid EE context number",
                                     "invalid EE context state",
                                     "fatal error",
                                     "response timeout error",
                                     "general error",
                                     "TM error",
                                     "TM software rendezvous"};  // IBV_WC_SUCCESS

template <size_t kCount>
const char* word(const char* const (&words)[kCount], int number) {
  return number >= 0 && static_cast<size_t>(number) < kCount ? words[number] : kUnknown;
}

struct Rate {
  int number;    // ibv_rate
  int multiple;  // of 2.5 Gb/s; 0: it is none
  int mbps;
};

constexpr Rate kRates[] = {
    {2, 1, 2500},      {5, 2, 5000},      {3, 4, 10000},     {6, 8, 20000},    {4, 12, 30000},
    {7, 16, 40000},    {8, 24, 60000},    {9, 32, 80000},    {10, 48, 120000}, {11, 0, 14062},
    {12, 0, 56250},    {13, 0, 112500},   {14, 0, 168750},   {15, 0, 25781},   {16, 0, 103125},
    {17, 0, 206250},   {18, 0, 309375},   {19, 11, 28125},   {20, 20, 53125},  {21, 160, 425000},
    {22, 240, 637500}, {23, 320, 850000}, {24, 480, 1275000}};

const Rate* rate_of(ibv_rate number) {
  for (const Rate& each : kRates)
    if (each.number == static_cast<int>(number)) return &each;
  return nullptr;
}

}  // namespace

HOSTNIC_VERB const char* ibv_node_type_str(ibv_node_type type) { return word(kNodeTypes, type); }
HOSTNIC_VERB const char* ibv_port_state_str(ibv_port_state state) {
  return word(kPortStates, state);
}
HOSTNIC_VERB const char* ibv_event_type_str(ibv_event_type event) { return word(kEvents, event); }
HOSTNIC_VERB const char* ibv_wc_status_str(ibv_wc_status status) { return word(kStatuses, status); }

HOSTNIC_VERB int ibv_rate_to_mult(ibv_rate rate) {
  const Rate* found = rate_of(rate);
  return found != nullptr && found->multiple != 0 ? found->multiple : -1;
}
HOSTNIC_VERB int ibv_rate_to_mbps(ibv_rate rate) {
  const Rate* found = rate_of(rate);
  return found != nullptr ? found->mbps : -1;
}
HOSTNIC_VERB ibv_rate mult_to_ibv_rate(int multiple) {
  for (const Rate& each : kRates)
    if (multiple != 0 && each.multiple == multiple) return static_cast<ibv_rate>(each.number);
  return IBV_RATE_MAX;
}
HOSTNIC_VERB ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const Rate& each : kRates)
    if (each.mbps == mbps) return static_cast<ibv_rate>(each.number);
  return IBV_RATE_MAX;
}

HOSTNIC_VERB const char* ibv_get_device_name(ibv_device* device) { return device->name; }

HOSTNIC_VERB const char* ibv_get_sysfs_path() {
  const char* path = secure_getenv("SYSFS_PATH");
  return path != nullptr && *path != '\0' ? path : "/sys";
}

// Reads a file's beginning, without a newline at its end; returns its length, or -1.
HOSTNIC_VERB int ibv_read_sysfs_file(const char* directory, const char* file, char* text,
                                     size_t size) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/%s", directory, file) >= static_cast<int>(sizeof path))
    return -1;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t length = read(fd, text, size);
  close(fd);
  if (length <= 0) return static_cast<int>(length);
  if (text[length - 1] == '\n') {
    text[length - 1] = '\0';
    return static_cast<int>(length) - 1;
  }
  if (static_cast<size_t>(length) == size) return -1;
  text[length] = '\0';
  return static_cast<int>(length);
}

// Children get no registered page of ours anyway (docs/memory.md), and pages of others are the
// program's.
HOSTNIC_VERB int ibv_dontfork_range(void* /*base*/, size_t /*size*/) { return 0; }
HOSTNIC_VERB int ibv_dofork_range(void* /*base*/, size_t /*size*/) { return 0; }

HOSTNIC_VERB void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from) {
  memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof to->grh.dgid);
  to->grh.flow_label = from->grh.flow_label;
  to->grh.sgid_index = from->grh.sgid_index;
  to->grh.hop_limit = from->grh.hop_limit;
  to->grh.traffic_class = from->grh.traffic_class;
  to->dlid = from->dlid;
  to->sl = from->sl;
  to->src_path_bits = from->src_path_bits;
  to->static_rate = from->static_rate;
  to->is_global = from->is_global;
  to->port_num = from->port_num;
}

HOSTNIC_VERB void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from) {
  // rdma-core leaves qp_state as it is, which librdmacm sets before.
  to->cur_qp_state = static_cast<ibv_qp_state>(from->cur_qp_state);
  to->path_mtu = static_cast<ibv_mtu>(from->path_mtu);
  to->path_mig_state = static_cast<ibv_mig_state>(from->path_mig_state);
  to->qkey = from->qkey;
  to->rq_psn = from->rq_psn;
  to->sq_psn = from->sq_psn;
  to->dest_qp_num = from->dest_qp_num;
  to->qp_access_flags = from->qp_access_flags;
  to->cap.max_send_wr = from->max_send_wr;
  to->cap.max_recv_wr = from->max_recv_wr;
  to->cap.max_send_sge = from->max_send_sge;
  to->cap.max_recv_sge = from->max_recv_sge;
  to->cap.max_inline_data = from->max_inline_data;
  ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
  ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
  to->pkey_index = from->pkey_index;
  to->alt_pkey_index = from->alt_pkey_index;
  to->en_sqd_async_notify = from->en_sqd_async_notify;
  to->sq_draining = from->sq_draining;
  to->max_rd_atomic = from->max_rd_atomic;
  to->max_dest_rd_atomic = from->max_dest_rd_atomic;
  to->min_rnr_timer = from->min_rnr_timer;
  to->port_num = from->port_num;
  to->timeout = from->timeout;
  to->retry_cnt = from->retry_cnt;
  to->rnr_retry = from->rnr_retry;
  to->alt_port_num = from->alt_port_num;
  to->alt_timeout = from->alt_timeout;
}

HOSTNIC_VERB void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from) {
  memcpy(to->dgid.raw, from->dgid, sizeof to->dgid);
  memcpy(to->sgid.raw, from->sgid, sizeof to->sgid);
  to->dlid = from->dlid;
  to->slid = from->slid;
  to->raw_traffic = static_cast<int>(from->raw_traffic);
  to->flow_label = from->flow_label;
  to->hop_limit = from->hop_limit;
  to->traffic_class = from->traffic_class;
  to->reversible = static_cast<int>(from->reversible);
  to->numb_path = from->numb_path;
  to->pkey = from->pkey;
  to->sl = from->sl;
  to->mtu_selector = from->mtu_selector;
  to->mtu = static_cast<uint8_t>(from->mtu);
  to->rate_selector = from->rate_selector;
  to->rate = from->rate;
  to->packet_life_time_selector = from->packet_life_time_selector;
  to->packet_life_time = from->packet_life_time;
  to->preference = from->preference;
}

HOSTNIC_VERB void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from) {
  memcpy(to->dgid, from->dgid.raw, sizeof to->dgid);
  memcpy(to->sgid, from->sgid.raw, sizeof to->sgid);
  to->dlid = from->dlid;
  to->slid = from->slid;
  to->raw_traffic = static_cast<uint32_t>(from->raw_traffic);
  to->flow_label = from->flow_label;
  to->reversible = static_cast<uint32_t>(from->reversible);
  to->mtu = from->mtu;
  to->pkey = from->pkey;
  to->hop_limit = from->hop_limit;
  to->traffic_class = from->traffic_class;
  to->numb_path = from->numb_path;
  to->sl = from->sl;
  to->mtu_selector = from->mtu_selector;
  to->rate_selector = from->rate_selector;
  to->rate = from->rate;
  to->packet_life_time_selector = from->packet_life_time_selector;
  to->packet_life_time = from->packet_life_time;
  to->preference = from->preference;
}
