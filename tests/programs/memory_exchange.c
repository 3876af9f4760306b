// SPDX-License-Identifier: BSD-3-Clause
// For programs of any language (memory_check.*, MemoryCheck.java): memory of theirs is registered
// with the first RDMA device, and a peer on the second one, in the same process, writes to it and
// reads it.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define MOST_BYTES (4u << 20)

struct end {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  union ibv_gid gid;
};

static struct end near, far;  // the program's, and its peer
static uint8_t* peer_bytes;
static struct ibv_mr* peer_region;

static int failed(const char* what) {
  fprintf(stderr, "exchange: %s: %s\n", what, strerror(errno));
  return -1;
}

static int open_end(struct end* end, struct ibv_device* device) {
  struct ibv_qp_init_attr wanted = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
  if (!(end->context = ibv_open_device(device)) || !(end->pd = ibv_alloc_pd(end->context)) ||
      !(end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0)))
    return failed("opening a device");
  wanted.send_cq = wanted.recv_cq = end->cq;
  if (!(end->qp = ibv_create_qp(end->pd, &wanted)) || ibv_query_gid(end->context, 1, 0, &end->gid))
    return failed("creating a queue pair");
  return 0;
}

static int connect_end(struct end* end, const struct end* to) {
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
  if (ibv_modify_qp(end->qp, &a,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    return failed("INIT");
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_4096;
  a.dest_qp_num = to->qp->qp_num;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = 12;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid = to->gid;
  a.ah_attr.grh.hop_limit = 64;
  a.ah_attr.port_num = 1;
  if (ibv_modify_qp(end->qp, &a,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    return failed("RTR");
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 16;
  a.retry_cnt = a.rnr_retry = 7;
  a.max_rd_atomic = 1;
  if (ibv_modify_qp(end->qp, &a,
                    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                        IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
    return failed("RTS");
  return 0;
}

int exchange_open(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (list == NULL || count < 2) return failed("two devices are needed");
  if (open_end(&near, list[0]) || open_end(&far, list[1]) || connect_end(&near, &far) ||
      connect_end(&far, &near))
    return -1;
  ibv_free_device_list(list);
  peer_bytes = malloc(MOST_BYTES);
  peer_region = ibv_reg_mr(far.pd, peer_bytes, MOST_BYTES, ACCESS);
  return peer_region != NULL ? 0 : failed("registering the peer's memory");
}

// Null, and a line on stderr, where it can't be registered.
void* exchange_register(void* at, size_t bytes) {
  struct ibv_mr* region = ibv_reg_mr(near.pd, at, bytes, ACCESS);
  if (region == NULL) failed("ibv_reg_mr");
  return region;
}

int exchange_deregister(void* region) { return ibv_dereg_mr(region); }

static int transfer(enum ibv_wr_opcode opcode, const struct ibv_mr* region, size_t offset,
                    size_t bytes) {
  struct ibv_sge place = {(uintptr_t)peer_bytes, (uint32_t)bytes, peer_region->lkey};
  struct ibv_send_wr wr = {.sg_list = &place,
                           .num_sge = 1,
                           .opcode = opcode,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad;
  struct ibv_wc done;
  int taken;
  wr.wr.rdma.remote_addr = (uintptr_t)region->addr + offset;
  wr.wr.rdma.rkey = region->rkey;
  if ((errno = ibv_post_send(far.qp, &wr, &bad)) != 0) return failed("ibv_post_send");
  while ((taken = ibv_poll_cq(far.cq, 1, &done)) == 0) continue;
  if (taken == 1 && done.status == IBV_WC_SUCCESS) return 0;
  fprintf(stderr, "exchange: %s\n", taken < 0 ? "ibv_poll_cq" : ibv_wc_status_str(done.status));
  return -1;
}

// The byte at a place of what a seed stands for.
static uint8_t byte_of(uint32_t seed, size_t place) {
  const uint32_t mixed = (uint32_t)(place / 4 + 1) * 2654435761u ^ seed * 2246822519u;
  return (uint8_t)(mixed >> (place % 4 * 8));
}

void exchange_fill(uint32_t seed, void* at, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) ((uint8_t*)at)[i] = byte_of(seed, i);
}

// The first place where it is something else, or -1.
long exchange_find_wrong(uint32_t seed, const void* at, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (((const uint8_t*)at)[i] != byte_of(seed, i)) return (long)i;
  return -1;
}

// The peer writes a seed's bytes to the whole region; 0 when it has.
int exchange_peer_writes(void* region, size_t bytes, uint32_t seed) {
  for (size_t at = 0; at < bytes; at += MOST_BYTES) {
    const size_t part = bytes - at < MOST_BYTES ? bytes - at : MOST_BYTES;
    for (size_t i = 0; i < part; ++i) peer_bytes[i] = byte_of(seed, at + i);
    if (transfer(IBV_WR_RDMA_WRITE, region, at, part)) return -1;
  }
  return 0;
}

// The peer reads the whole region: 0 if it has a seed's bytes.
int exchange_peer_reads(void* region, size_t bytes, uint32_t seed) {
  for (size_t at = 0; at < bytes; at += MOST_BYTES) {
    const size_t part = bytes - at < MOST_BYTES ? bytes - at : MOST_BYTES;
    memset(peer_bytes, 0, part);
    if (transfer(IBV_WR_RDMA_READ, region, at, part)) return -1;
    for (size_t i = 0; i < part; ++i)
      if (peer_bytes[i] != byte_of(seed, at + i)) {
        fprintf(stderr, "exchange: the peer reads %02x at %zu of %zu\n", peer_bytes[i], at + i,
                bytes);
        return -1;
      }
  }
  return 0;
}
