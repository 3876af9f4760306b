// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/trace/words.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <span>

namespace hostnic::trace {
namespace {

struct Word {
  unsigned long value;
  const char* name;
};

void add_flags(Text& text, unsigned long value, std::span<const Word> words) {
  if (value == 0) return text.add("0");
  const char* between = "";
  for (const Word& word : words) {
    if ((value & word.value) == 0) continue;
    text.add("%s%s", between, word.name);
    between = "|";
    value &= ~word.value;
  }
  if (value != 0) text.add("%s0x%lx", between, value);
}

void add_word(Text& text, long value, std::span<const Word> words) {
  for (const Word& word : words)
    if (static_cast<long>(word.value) == value) return text.add("%s", word.name);
  text.add("%ld", value);
}

constexpr Word kAccess[] = {{IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"},
                            {IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
                            {IBV_ACCESS_REMOTE_READ, "REMOTE_READ"},
                            {IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"},
                            {IBV_ACCESS_MW_BIND, "MW_BIND"},
                            {IBV_ACCESS_ZERO_BASED, "ZERO_BASED"},
                            {IBV_ACCESS_ON_DEMAND, "ON_DEMAND"},
                            {IBV_ACCESS_HUGETLB, "HUGETLB"},
                            {IBV_ACCESS_RELAXED_ORDERING, "RELAXED_ORDERING"}};
constexpr Word kSendFlags[] = {{IBV_SEND_FENCE, "FENCE"},
                               {IBV_SEND_SIGNALED, "SIGNALED"},
                               {IBV_SEND_SOLICITED, "SOLICITED"},
                               {IBV_SEND_INLINE, "INLINE"},
                               {IBV_SEND_IP_CSUM, "IP_CSUM"}};
constexpr Word kQpTypes[] = {{IBV_QPT_RC, "RC"},
                             {IBV_QPT_UC, "UC"},
                             {IBV_QPT_UD, "UD"},
                             {IBV_QPT_RAW_PACKET, "RAW_PACKET"},
                             {IBV_QPT_XRC_SEND, "XRC_SEND"},
                             {IBV_QPT_XRC_RECV, "XRC_RECV"},
                             {IBV_QPT_DRIVER, "DRIVER"}};
constexpr Word kQpStates[] = {
    {IBV_QPS_RESET, "RESET"}, {IBV_QPS_INIT, "INIT"}, {IBV_QPS_RTR, "RTR"}, {IBV_QPS_RTS, "RTS"},
    {IBV_QPS_SQD, "SQD"},     {IBV_QPS_SQE, "SQE"},   {IBV_QPS_ERR, "ERR"}};
constexpr Word kMtus[] = {{IBV_MTU_256, "256"},
                          {IBV_MTU_512, "512"},
                          {IBV_MTU_1024, "1024"},
                          {IBV_MTU_2048, "2048"},
                          {IBV_MTU_4096, "4096"}};
constexpr Word kWrOpcodes[] = {{IBV_WR_RDMA_WRITE, "WRITE"},
                               {IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE_WITH_IMM"},
                               {IBV_WR_SEND, "SEND"},
                               {IBV_WR_SEND_WITH_IMM, "SEND_WITH_IMM"},
                               {IBV_WR_RDMA_READ, "READ"},
                               {IBV_WR_ATOMIC_CMP_AND_SWP, "COMPARE_AND_SWAP"},
                               {IBV_WR_ATOMIC_FETCH_AND_ADD, "FETCH_AND_ADD"},
                               {IBV_WR_LOCAL_INV, "LOCAL_INV"},
                               {IBV_WR_BIND_MW, "BIND_MW"},
                               {IBV_WR_SEND_WITH_INV, "SEND_WITH_INV"},
                               {IBV_WR_TSO, "TSO"}};
constexpr Word kWcOpcodes[] = {{IBV_WC_SEND, "SEND"},
                               {IBV_WC_RDMA_WRITE, "WRITE"},
                               {IBV_WC_RDMA_READ, "READ"},
                               {IBV_WC_COMP_SWAP, "COMPARE_AND_SWAP"},
                               {IBV_WC_FETCH_ADD, "FETCH_AND_ADD"},
                               {IBV_WC_BIND_MW, "BIND_MW"},
                               {IBV_WC_LOCAL_INV, "LOCAL_INV"},
                               {IBV_WC_TSO, "TSO"},
                               {IBV_WC_RECV, "RECV"},
                               {IBV_WC_RECV_RDMA_WITH_IMM, "RECV_WRITE_WITH_IMM"}};
constexpr Word kWcFlags[] = {{IBV_WC_GRH, "GRH"},
                             {IBV_WC_WITH_IMM, "WITH_IMM"},
                             {IBV_WC_IP_CSUM_OK, "IP_CSUM_OK"},
                             {IBV_WC_WITH_INV, "WITH_INV"}};
constexpr Word kWcStatuses[] = {{IBV_WC_SUCCESS, "SUCCESS"},
                                {IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR"},
                                {IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR"},
                                {IBV_WC_LOC_EEC_OP_ERR, "LOC_EEC_OP_ERR"},
                                {IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR"},
                                {IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR"},
                                {IBV_WC_MW_BIND_ERR, "MW_BIND_ERR"},
                                {IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR"},
                                {IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR"},
                                {IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR"},
                                {IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR"},
                                {IBV_WC_REM_OP_ERR, "REM_OP_ERR"},
                                {IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR"},
                                {IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR"},
                                {IBV_WC_LOC_RDD_VIOL_ERR, "LOC_RDD_VIOL_ERR"},
                                {IBV_WC_REM_INV_RD_REQ_ERR, "REM_INV_RD_REQ_ERR"},
                                {IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR"},
                                {IBV_WC_INV_EECN_ERR, "INV_EECN_ERR"},
                                {IBV_WC_INV_EEC_STATE_ERR, "INV_EEC_STATE_ERR"},
                                {IBV_WC_FATAL_ERR, "FATAL_ERR"},
                                {IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR"},
                                {IBV_WC_GENERAL_ERR, "GENERAL_ERR"},
                                {IBV_WC_TM_ERR, "TM_ERR"},
                                {IBV_WC_TM_RNDV_INCOMPLETE, "TM_RNDV_INCOMPLETE"}};
constexpr Word kEvents[] = {{IBV_EVENT_CQ_ERR, "CQ_ERR"},
                            {IBV_EVENT_QP_FATAL, "QP_FATAL"},
                            {IBV_EVENT_QP_REQ_ERR, "QP_REQ_ERR"},
                            {IBV_EVENT_QP_ACCESS_ERR, "QP_ACCESS_ERR"},
                            {IBV_EVENT_COMM_EST, "COMM_EST"},
                            {IBV_EVENT_SQ_DRAINED, "SQ_DRAINED"},
                            {IBV_EVENT_PATH_MIG, "PATH_MIG"},
                            {IBV_EVENT_PATH_MIG_ERR, "PATH_MIG_ERR"},
                            {IBV_EVENT_DEVICE_FATAL, "DEVICE_FATAL"},
                            {IBV_EVENT_PORT_ACTIVE, "PORT_ACTIVE"},
                            {IBV_EVENT_PORT_ERR, "PORT_ERR"},
                            {IBV_EVENT_LID_CHANGE, "LID_CHANGE"},
                            {IBV_EVENT_PKEY_CHANGE, "PKEY_CHANGE"},
                            {IBV_EVENT_SM_CHANGE, "SM_CHANGE"},
                            {IBV_EVENT_SRQ_ERR, "SRQ_ERR"},
                            {IBV_EVENT_SRQ_LIMIT_REACHED, "SRQ_LIMIT_REACHED"},
                            {IBV_EVENT_QP_LAST_WQE_REACHED, "QP_LAST_WQE_REACHED"},
                            {IBV_EVENT_CLIENT_REREGISTER, "CLIENT_REREGISTER"},
                            {IBV_EVENT_GID_CHANGE, "GID_CHANGE"},
                            {IBV_EVENT_WQ_FATAL, "WQ_FATAL"}};
constexpr Word kCmEvents[] = {{RDMA_CM_EVENT_ADDR_RESOLVED, "ADDR_RESOLVED"},
                              {RDMA_CM_EVENT_ADDR_ERROR, "ADDR_ERROR"},
                              {RDMA_CM_EVENT_ROUTE_RESOLVED, "ROUTE_RESOLVED"},
                              {RDMA_CM_EVENT_ROUTE_ERROR, "ROUTE_ERROR"},
                              {RDMA_CM_EVENT_CONNECT_REQUEST, "CONNECT_REQUEST"},
                              {RDMA_CM_EVENT_CONNECT_RESPONSE, "CONNECT_RESPONSE"},
                              {RDMA_CM_EVENT_CONNECT_ERROR, "CONNECT_ERROR"},
                              {RDMA_CM_EVENT_UNREACHABLE, "UNREACHABLE"},
                              {RDMA_CM_EVENT_REJECTED, "REJECTED"},
                              {RDMA_CM_EVENT_ESTABLISHED, "ESTABLISHED"},
                              {RDMA_CM_EVENT_DISCONNECTED, "DISCONNECTED"},
                              {RDMA_CM_EVENT_DEVICE_REMOVAL, "DEVICE_REMOVAL"},
                              {RDMA_CM_EVENT_MULTICAST_JOIN, "MULTICAST_JOIN"},
                              {RDMA_CM_EVENT_MULTICAST_ERROR, "MULTICAST_ERROR"},
                              {RDMA_CM_EVENT_ADDR_CHANGE, "ADDR_CHANGE"},
                              {RDMA_CM_EVENT_TIMEWAIT_EXIT, "TIMEWAIT_EXIT"}};

void add_sges(Text& text, const ibv_sge* sges, int count) {
  uint64_t bytes = 0;
  for (int i = 0; sges != nullptr && i < count; ++i) bytes += sges[i].length;
  text.add("%lu bytes", bytes);
  if (count == 1 && sges != nullptr)
    text.add(" at 0x%lx lkey 0x%x", sges[0].addr, sges[0].lkey);
  else if (count > 0)
    text.add(" in %d pieces", count);
}

bool is_remote(int opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
         opcode == IBV_WR_RDMA_READ;
}

bool is_atomic(int opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

}  // namespace

void add_access(Text& text, unsigned access) { add_flags(text, access, kAccess); }
void add_send_flags(Text& text, unsigned flags) { add_flags(text, flags, kSendFlags); }
void add_qp_type(Text& text, int type) { add_word(text, type, kQpTypes); }
void add_wc_opcode(Text& text, int opcode) { add_word(text, opcode, kWcOpcodes); }
void add_wc_status(Text& text, int status) { add_word(text, status, kWcStatuses); }
void add_event(Text& text, int type) { add_word(text, type, kEvents); }
void add_cm_event(Text& text, int type) { add_word(text, type, kCmEvents); }

void add_gid(Text& text, const ibv_gid& gid) {
  char address[INET6_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET6, gid.raw, address, sizeof(address));
  text.add("%s", address);
}

void add_ah(Text& text, const ibv_ah_attr& attr) {
  text.add("{");
  if (attr.is_global != 0) {
    text.add("dgid ");
    add_gid(text, attr.grh.dgid);
    text.add(" sgid_index %d hop_limit %d", attr.grh.sgid_index, attr.grh.hop_limit);
  } else {
    text.add("dlid 0x%x, no GRH", attr.dlid);
  }
  if (attr.sl != 0) text.add(" sl %d", attr.sl);
  text.add(" port %d}", attr.port_num);
}

void add_qp_attr(Text& text, const ibv_qp_attr& attr, int mask) {
  const auto number = [&](int bit, const char* name, uint64_t value) {
    if ((mask & bit) != 0) text.add(", %s %lu", name, value);
  };
  const auto hex = [&](int bit, const char* name, uint64_t value) {
    if ((mask & bit) != 0) text.add(", %s 0x%lx", name, value);
  };
  if ((mask & IBV_QP_STATE) != 0) {
    text.add(", state ");
    add_word(text, attr.qp_state, kQpStates);
  }
  if ((mask & IBV_QP_CUR_STATE) != 0) {
    text.add(", cur_state ");
    add_word(text, attr.cur_qp_state, kQpStates);
  }
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    text.add(", access ");
    add_access(text, attr.qp_access_flags);
  }
  number(IBV_QP_PKEY_INDEX, "pkey_index", attr.pkey_index);
  number(IBV_QP_PORT, "port", attr.port_num);
  hex(IBV_QP_QKEY, "qkey", attr.qkey);
  if ((mask & IBV_QP_AV) != 0) {
    text.add(", ah ");
    add_ah(text, attr.ah_attr);
  }
  if ((mask & IBV_QP_PATH_MTU) != 0) {
    text.add(", path_mtu ");
    add_word(text, attr.path_mtu, kMtus);
  }
  hex(IBV_QP_DEST_QPN, "dest_qp", attr.dest_qp_num);
  number(IBV_QP_RQ_PSN, "rq_psn", attr.rq_psn);
  number(IBV_QP_SQ_PSN, "sq_psn", attr.sq_psn);
  number(IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr.max_dest_rd_atomic);
  number(IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic);
  number(IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer);
  number(IBV_QP_TIMEOUT, "timeout", attr.timeout);
  number(IBV_QP_RETRY_CNT, "retry_cnt", attr.retry_cnt);
  number(IBV_QP_RNR_RETRY, "rnr_retry", attr.rnr_retry);
  number(IBV_QP_RATE_LIMIT, "rate_limit", attr.rate_limit);
}

void add_qp_init(Text& text, int type, const void* send_cq, const void* recv_cq, const void* srq,
                 const ibv_qp_cap& caps, bool signals_all) {
  text.add(", ");
  add_qp_type(text, type);
  text.add(", send_cq %p, recv_cq %p", send_cq, recv_cq);
  if (srq != nullptr) text.add(", srq %p", srq);
  text.add(", wr %u+%u, sge %u+%u", caps.max_send_wr, caps.max_recv_wr, caps.max_send_sge,
           caps.max_recv_sge);
  if (caps.max_inline_data != 0) text.add(", inline %u", caps.max_inline_data);
  if (signals_all) text.add(", sq_sig_all");
}

void add_send_requests(Text& text, const ibv_send_wr* first) {
  for (const ibv_send_wr* wr = first; wr != nullptr && !text.full(); wr = wr->next) {
    text.add(", [");
    add_word(text, wr->opcode, kWrOpcodes);
    text.add(" wr_id 0x%lx, ", wr->wr_id);
    add_sges(text, wr->sg_list, wr->num_sge);
    if (is_remote(wr->opcode))
      text.add(", remote 0x%lx rkey 0x%x", wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
    if (is_atomic(wr->opcode))
      text.add(", remote 0x%lx rkey 0x%x, %lu", wr->wr.atomic.remote_addr, wr->wr.atomic.rkey,
               wr->wr.atomic.compare_add);
    if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
      text.add(", imm 0x%x", ntohl(wr->imm_data));
    if (wr->send_flags != 0) {
      text.add(", ");
      add_send_flags(text, wr->send_flags);
    }
    text.add("]");
  }
}

void add_receives(Text& text, const ibv_recv_wr* first) {
  for (const ibv_recv_wr* wr = first; wr != nullptr && !text.full(); wr = wr->next) {
    text.add(", [wr_id 0x%lx, ", wr->wr_id);
    add_sges(text, wr->sg_list, wr->num_sge);
    text.add("]");
  }
}

void add_completions(Text& text, const ibv_wc* completions, int count) {
  for (int i = 0; i < count && !text.full(); ++i) {
    const ibv_wc& wc = completions[i];
    text.add("%s[", i == 0 ? " " : ", ");
    // A failed request gives a meaning to these fields only.
    if (wc.status != IBV_WC_SUCCESS) {
      add_wc_status(text, wc.status);
      text.add(" wr_id 0x%lx qp 0x%x vendor_err %u]", wc.wr_id, wc.qp_num, wc.vendor_err);
      continue;
    }
    add_wc_opcode(text, wc.opcode);
    text.add(" wr_id 0x%lx qp 0x%x", wc.wr_id, wc.qp_num);
    if ((wc.opcode & IBV_WC_RECV) != 0) text.add(" %u bytes", wc.byte_len);
    if (wc.wc_flags != 0) {
      text.add(" ");
      add_flags(text, wc.wc_flags, kWcFlags);
    }
    if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) text.add(" imm 0x%x", ntohl(wc.imm_data));
    text.add("]");
  }
}

void add_connection(Text& text, const rdma_conn_param* param) {
  if (param == nullptr) return text.add(", NULL");
  text.add(
      ", private_data %u bytes, responder_resources %u, initiator_depth %u, retry_count %u, "
      "rnr_retry_count %u",
      param->private_data_len, param->responder_resources, param->initiator_depth,
      param->retry_count, param->rnr_retry_count);
}

void add_socket_address(Text& text, const sockaddr* address) {
  if (address == nullptr) return text.add("NULL");
  char name[INET6_ADDRSTRLEN] = "?";
  if (address->sa_family == AF_INET) {
    const auto* ip = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &ip->sin_addr, name, sizeof(name));
    text.add("%s:%u", name, ntohs(ip->sin_port));
  } else if (address->sa_family == AF_INET6) {
    const auto* ip = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &ip->sin6_addr, name, sizeof(name));
    text.add("[%s]:%u", name, ntohs(ip->sin6_port));
  } else {
    text.add("address of family %u", address->sa_family);
  }
}

}  // namespace hostnic::trace
