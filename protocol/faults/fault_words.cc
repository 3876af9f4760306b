// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/faults/fault_words.h"

#include <algorithm>
#include <cerrno>

namespace hostnic::faults {
namespace {

constexpr uint8_t kDevice = kHasDevice, kQp = kHasDevice | kHasQp, kSize = kHasDevice | kHasSize;

constexpr FaultCall kCalls[] = {
    {"get_device_list", Failure::kNull, 0},
    {"open_device", Failure::kNull, kDevice},
    {"close_device", Failure::kErrno, kDevice},
    {"query_device", Failure::kErrno, kDevice},
    {"query_device_ex", Failure::kErrno, kDevice},
    {"query_port", Failure::kErrno, kDevice},
    {"query_gid", Failure::kMinusOne, kDevice},
    {"query_gid_ex", Failure::kErrno, kDevice},
    {"query_pkey", Failure::kMinusOne, kDevice},
    {"alloc_pd", Failure::kNull, kDevice},
    {"dealloc_pd", Failure::kErrno, kDevice},
    {"reg_mr", Failure::kNull, kSize},
    {"reg_mr_iova", Failure::kNull, kSize},
    {"reg_dmabuf_mr", Failure::kNull, kSize},
    {"rereg_mr", Failure::kErrno, kSize},
    {"dereg_mr", Failure::kErrno, kDevice},
    {"alloc_mw", Failure::kNull, kDevice},
    {"dealloc_mw", Failure::kErrno, kDevice},
    {"bind_mw", Failure::kErrno, kQp},
    {"advise_mr", Failure::kErrno, kDevice},
    {"create_comp_channel", Failure::kNull, kDevice},
    {"destroy_comp_channel", Failure::kErrno, kDevice},
    {"create_cq", Failure::kNull, kSize},
    {"create_cq_ex", Failure::kNull, kSize},
    {"resize_cq", Failure::kErrno, kSize},
    {"destroy_cq", Failure::kErrno, kDevice},
    {"get_cq_event", Failure::kMinusOne, kDevice},
    {"req_notify_cq", Failure::kErrno, kDevice},
    {"poll_cq", Failure::kMinusOne, kDevice},
    {"create_srq", Failure::kNull, kSize},
    {"create_srq_ex", Failure::kNull, kDevice},
    {"modify_srq", Failure::kErrno, kDevice},
    {"query_srq", Failure::kErrno, kDevice},
    {"destroy_srq", Failure::kErrno, kDevice},
    {"post_srq_recv", Failure::kErrno, kDevice},
    {"create_qp", Failure::kNull, kDevice},
    {"create_qp_ex", Failure::kNull, kDevice},
    {"modify_qp", Failure::kErrno, kQp | kHasState},
    {"query_qp", Failure::kErrno, kQp},
    {"destroy_qp", Failure::kErrno, kQp},
    {"post_send", Failure::kErrno, kQp},
    {"post_recv", Failure::kErrno, kQp},
    {"wr_complete", Failure::kErrno, kQp},
    {"attach_mcast", Failure::kErrno, kQp},
    {"detach_mcast", Failure::kErrno, kQp},
    {"create_ah", Failure::kNull, kDevice},
    {"destroy_ah", Failure::kErrno, kDevice},
    {"get_async_event", Failure::kMinusOne, kDevice},
    {"ack_async_event", Failure::kNone, 0},
    {"ack_cq_events", Failure::kNone, kDevice},
    {"rdma_create_event_channel", Failure::kNull, 0},
    {"rdma_create_id", Failure::kMinusOne, 0},
    {"rdma_create_ep", Failure::kMinusOne, 0},
    {"rdma_create_qp", Failure::kMinusOne, kDevice},
    {"rdma_create_qp_ex", Failure::kMinusOne, kDevice},
    {"rdma_destroy_id", Failure::kMinusOne, kDevice},
    {"rdma_bind_addr", Failure::kMinusOne, 0},
    {"rdma_resolve_addr", Failure::kMinusOne, 0},
    {"rdma_resolve_route", Failure::kMinusOne, kDevice},
    {"rdma_listen", Failure::kMinusOne, 0},
    {"rdma_connect", Failure::kMinusOne, kDevice},
    {"rdma_accept", Failure::kMinusOne, kDevice},
    {"rdma_reject", Failure::kMinusOne, kDevice},
    {"rdma_establish", Failure::kMinusOne, kDevice},
    {"rdma_disconnect", Failure::kMinusOne, kDevice},
    {"rdma_get_request", Failure::kMinusOne, 0},
    {"rdma_get_cm_event", Failure::kMinusOne, 0},
    {"rdma_getaddrinfo", Failure::kMinusOne, 0},
};

#define HOSTNIC_NAME(name) \
  { #name, name }
constexpr FaultName kErrnoNames[] = {
    HOSTNIC_NAME(EPERM),        HOSTNIC_NAME(ENOENT),       HOSTNIC_NAME(EINTR),
    HOSTNIC_NAME(EIO),          HOSTNIC_NAME(ENXIO),        HOSTNIC_NAME(EBADF),
    HOSTNIC_NAME(EAGAIN),       HOSTNIC_NAME(ENOMEM),       HOSTNIC_NAME(EACCES),
    HOSTNIC_NAME(EFAULT),       HOSTNIC_NAME(EBUSY),        HOSTNIC_NAME(EEXIST),
    HOSTNIC_NAME(EXDEV),        HOSTNIC_NAME(ENODEV),       HOSTNIC_NAME(EINVAL),
    HOSTNIC_NAME(ENFILE),       HOSTNIC_NAME(EMFILE),       HOSTNIC_NAME(ENOTTY),
    HOSTNIC_NAME(EFBIG),        HOSTNIC_NAME(ENOSPC),       HOSTNIC_NAME(EPIPE),
    HOSTNIC_NAME(EDOM),         HOSTNIC_NAME(ERANGE),       HOSTNIC_NAME(EDEADLK),
    HOSTNIC_NAME(ENOSYS),       HOSTNIC_NAME(EOVERFLOW),    HOSTNIC_NAME(ENODATA),
    HOSTNIC_NAME(EPROTO),       HOSTNIC_NAME(EBADMSG),      HOSTNIC_NAME(EMSGSIZE),
    HOSTNIC_NAME(EOPNOTSUPP),   HOSTNIC_NAME(EAFNOSUPPORT), HOSTNIC_NAME(EADDRINUSE),
    HOSTNIC_NAME(ENETDOWN),     HOSTNIC_NAME(ENETUNREACH),  HOSTNIC_NAME(EADDRNOTAVAIL),
    HOSTNIC_NAME(ECONNRESET),   HOSTNIC_NAME(ECONNABORTED), HOSTNIC_NAME(ENOBUFS),
    HOSTNIC_NAME(EISCONN),      HOSTNIC_NAME(ENOTCONN),     HOSTNIC_NAME(ETIMEDOUT),
    HOSTNIC_NAME(EHOSTUNREACH), HOSTNIC_NAME(ECONNREFUSED), HOSTNIC_NAME(EALREADY),
    HOSTNIC_NAME(EINPROGRESS),  HOSTNIC_NAME(ESTALE),       HOSTNIC_NAME(ECANCELED)};
#undef HOSTNIC_NAME

constexpr FaultName kStatuses[] = {
    {"LOC_LEN_ERR", 1},        {"LOC_QP_OP_ERR", 2},     {"LOC_EEC_OP_ERR", 3},
    {"LOC_PROT_ERR", 4},       {"WR_FLUSH_ERR", 5},      {"MW_BIND_ERR", 6},
    {"BAD_RESP_ERR", 7},       {"LOC_ACCESS_ERR", 8},    {"REM_INV_REQ_ERR", 9},
    {"REM_ACCESS_ERR", 10},    {"REM_OP_ERR", 11},       {"RETRY_EXC_ERR", 12},
    {"RNR_RETRY_EXC_ERR", 13}, {"LOC_RDD_VIOL_ERR", 14}, {"REM_INV_RD_REQ_ERR", 15},
    {"REM_ABORT_ERR", 16},     {"INV_EECN_ERR", 17},     {"INV_EEC_STATE_ERR", 18},
    {"FATAL_ERR", 19},         {"RESP_TIMEOUT_ERR", 20}, {"GENERAL_ERR", 21}};
constexpr FaultName kCompletions[] = {{"SEND", 0},
                                      {"WRITE", 1},
                                      {"READ", 2},
                                      {"COMPARE_AND_SWAP", 3},
                                      {"FETCH_AND_ADD", 4},
                                      {"BIND_MW", 5},
                                      {"LOCAL_INV", 6},
                                      {"RECV", 128},
                                      {"RECV_WRITE_WITH_IMM", 129}};
constexpr FaultName kStates[] = {{"RESET", 0}, {"INIT", 1}, {"RTR", 2}, {"RTS", 3},
                                 {"SQD", 4},   {"SQE", 5},  {"ERR", 6}};
constexpr FaultName kEvents[] = {{"CQ_ERR", 0},
                                 {"QP_FATAL", 1},
                                 {"QP_REQ_ERR", 2},
                                 {"QP_ACCESS_ERR", 3},
                                 {"COMM_EST", 4},
                                 {"SQ_DRAINED", 5},
                                 {"PATH_MIG", 6},
                                 {"PATH_MIG_ERR", 7},
                                 {"DEVICE_FATAL", 8},
                                 {"PORT_ACTIVE", 9},
                                 {"PORT_ERR", 10},
                                 {"LID_CHANGE", 11},
                                 {"PKEY_CHANGE", 12},
                                 {"SM_CHANGE", 13},
                                 {"SRQ_ERR", 14},
                                 {"SRQ_LIMIT", 15},
                                 {"QP_LAST_WQE_REACHED", 16},
                                 {"CLIENT_REREGISTER", 17},
                                 {"GID_CHANGE", 18}};
constexpr FaultName kCmEvents[] = {
    {"ADDR_RESOLVED", 0},   {"ADDR_ERROR", 1},       {"ROUTE_RESOLVED", 2}, {"ROUTE_ERROR", 3},
    {"CONNECT_REQUEST", 4}, {"CONNECT_RESPONSE", 5}, {"CONNECT_ERROR", 6},  {"UNREACHABLE", 7},
    {"REJECTED", 8},        {"ESTABLISHED", 9},      {"DISCONNECTED", 10},  {"DEVICE_REMOVAL", 11},
    {"MULTICAST_JOIN", 12}, {"MULTICAST_ERROR", 13}, {"ADDR_CHANGE", 14},   {"TIMEWAIT_EXIT", 15}};

}  // namespace

std::span<const FaultCall> fault_calls() { return kCalls; }
std::span<const FaultName> errno_names() { return kErrnoNames; }
std::span<const FaultName> status_names() { return kStatuses; }
std::span<const FaultName> completion_names() { return kCompletions; }
std::span<const FaultName> state_names() { return kStates; }
std::span<const FaultName> event_names() { return kEvents; }
std::span<const FaultName> cm_event_names() { return kCmEvents; }

const FaultCall* find_call(std::string_view name) {
  if (name.starts_with("ibv_")) name.remove_prefix(4);
  const auto* found =
      std::ranges::find_if(kCalls, [&](const FaultCall& call) { return call.name == name; });
  return found == std::end(kCalls) ? nullptr : found;
}

std::optional<int> value_of(std::span<const FaultName> names, std::string_view name) {
  for (const FaultName& each : names)
    if (each.name == name) return each.value;
  return std::nullopt;
}

std::string_view name_of(std::span<const FaultName> names, int value) {
  for (const FaultName& each : names)
    if (each.value == value) return each.name;
  return {};
}

bool is_of_receive(int opcode) { return opcode >= 128; }

bool is_of_qp(int event) { return (event >= 1 && event <= 7) || event == 16; }
bool is_of_cq(int event) { return event == 0; }
bool is_of_srq(int event) { return event == 14 || event == 15; }
bool is_of_port(int event) { return (event >= 9 && event <= 13) || event == 17 || event == 18; }

}  // namespace hostnic::faults
