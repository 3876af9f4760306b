/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions and structures of libmrc.so, the public API of Multipath Reliable Connection (OCP),
 * for programs: queue pairs and completion queues beside those of libibverbs, whose devices,
 * protection domains and memory regions they use. Names, values and layouts are those of version
 * 1.0.1 of the API, written down here anew for this library and its tests; programs are compiled
 * with OCP's headers. The meaning that each call has here, and all that is refused, is in
 * docs/mrc.md, "libmrc.so".
 *
 * Calls are for any thread. Where nothing else is said they return 0, or what the verb of the same
 * name returns; bad input is an errno value, and a line on stderr that names it (HOSTNIC_LOG).
 */
#pragma once

#include <infiniband/verbs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Versions are major (8 bits), minor (8) and minor still (16). */
#define MRC_API_VER(major, minor, sub) (((major) << 24) | ((minor) << 16) | (sub))
#define MRC_API_CURRENT_VERSION MRC_API_VER(1, 0, 1)
#define MRC_API_LAST_SUPPORTED_VERSION MRC_API_VER(0, 0, 0)
#define MRC_VENDOR_API_CURRENT_VERSION MRC_API_VER(1, 0, 0)
#define MRC_VENDOR_API_LAST_SUPPORTED_VERSION MRC_API_VER(0, 0, 0)

#define MRC_MAX_VENDOR_CFG_SIZE 128

enum mrc_protocol_version { MRC_PROTOCOL_VERSION_0 = 0, MRC_PROTOCOL_VERSION_1 = 1 };

struct mrc_context;
struct mrc_comp_channel;
struct mrc_cq;
struct mrc_qp;
struct mrc_qp_hint;

/* ---- the device */

enum mrc_device_cap {
  MRC_DEVICE_CAP_TRIM_NACK = 1 << 0,
  MRC_DEVICE_CAP_DYNAMIC_MPR = 1 << 1,
  MRC_DEVICE_CAP_SVC_TIME = 1 << 2,
};

struct mrc_device_attr {
  uint32_t mrc_protocol_version; /* bits of mrc_protocol_version */
  struct {
    uint16_t max_wimm, max_wimm_dest; /* WRITEs with immediate data on their way: sent, received */
  } wimm_attr;
  struct {
    uint8_t max_mpr, mpr_resolution; /* in 128 PSNs */
  } mpr_attr;
  struct {
    uint32_t max_qp_hint;
  } qp_attr;
  uint32_t cap; /* bits of mrc_device_cap */
};

/* Both say what the device has, and whether it speaks MRC: `supported` is 0 where it does not, and
 * the attributes are zeros. They return 0, or -1 with errno: EINVAL for a null pointer, or for a
 * context that is not of the device. */
int mrc_query_device(struct ibv_context* context, struct mrc_device_attr* attr, int* supported);
int mrc_query_device_ex(struct ibv_context* context, struct mrc_context* mcontext,
                        struct mrc_device_attr* attr, int* supported);
/* Pointers may be null. */
void mrc_query_version(uint32_t* current_version, uint32_t* last_supported_version,
                       uint32_t* vendor_version, uint32_t* last_supported_vendor_version);

struct mrc_context_attr {
  uint32_t mrc_api_version_used; /* 0: none is said */
  uint32_t mrc_vendor_api_version_used;
};

/* Returns null with errno: EINVAL for a version of another major number, EOPNOTSUPP for a device
 * that does not speak MRC. The attributes may be null. */
struct mrc_context* mrc_create_context(struct ibv_context* vcontext,
                                       struct mrc_context_attr* context_attr);
/* Returns -1 with errno EBUSY while there are objects of the context. */
int mrc_destroy_context(struct mrc_context* mrc_ctx);

/* ---- completions */

int mrc_create_comp_channel(struct mrc_context* mrc_ctx, struct mrc_comp_channel** channel);
int mrc_get_comp_channel_fd(struct mrc_comp_channel* channel, int* fd);
int mrc_destroy_comp_channel(struct mrc_comp_channel* channel);
struct mrc_cq* mrc_create_cq(struct mrc_context* mrc_ctx, int cqe, void* cq_context,
                             struct mrc_comp_channel* channel, int comp_vector);
int mrc_poll_cq(struct mrc_cq* cq, int num_entries, struct ibv_wc* wc);
int mrc_destroy_cq(struct mrc_cq* cq);
int mrc_req_notify_cq(struct mrc_cq* cq, int solicited_only);
int mrc_get_cq_event(struct mrc_comp_channel* channel, struct mrc_cq** cq, void** cq_context);
void mrc_ack_cq_events(struct mrc_cq* cq, unsigned int nevents);

/* ---- hints about what queue pairs will do, which are kept and change nothing here */

struct mrc_qp_hint_attr {
  int num_qps_per_peer, num_send_peers, num_remote_recv_peers;
  uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

enum mrc_qp_hint_attr_mask {
  MRC_QP_HINT_NUM_QPS_PER_PEER = 1 << 0,
  MRC_QP_HINT_NUM_SEND_PEERS = 1 << 1,
  MRC_QP_HINT_NUM_REMOTE_RECV_PEERS = 1 << 2,
  MRC_QP_HINT_VENDOR_CFG = 1 << 31,
};

struct mrc_qp_hint_init_attr {
  struct mrc_qp_hint_attr attr;
};

struct mrc_qp_hint* mrc_create_qp_hint(struct mrc_context* mrc_ctx,
                                       struct mrc_qp_hint_init_attr* init_attr);
int mrc_destroy_qp_hint(struct mrc_qp_hint* qp_hint);
int mrc_query_qp_hint(struct mrc_qp_hint* qp_hint, struct mrc_qp_hint_attr* qp_hint_attr,
                      int qp_hint_attr_mask);
int mrc_modify_qp_hint(struct mrc_qp_hint* qp_hint, struct mrc_qp_hint_attr* qp_hint_attr,
                       int qp_hint_attr_mask);

/* ---- queue pairs */

struct mrc_qp_init_attr {
  void* qp_context;
  struct mrc_cq *send_cq, *recv_cq;
  struct ibv_qp_cap cap;
  int sq_sig_all;
  struct ibv_pd* pd;
  uint64_t send_ops_flags; /* ibv_qp_create_send_ops_flags */
  enum mrc_protocol_version protocol_version;
};

enum mrc_qp_attr_mask {
  MRC_QP_MAX_WIMM = 1 << 0,
  MRC_QP_MAX_WIMM_DEST = 1 << 1,
  MRC_QP_MPR = 1 << 2,
  MRC_QP_MPR_DEST = 1 << 3,
  MRC_QP_TIMEOUT = 1 << 4,
  MRC_QP_EV_PROFILE_ID = 1 << 5,
  MRC_QP_CC_PROFILE_ID = 1 << 6,
  MRC_QP_HINT = 1 << 7,
  MRC_QP_RETRY_CNT = 1 << 8,
  MRC_QP_CAP = 1 << 9,
  MRC_QP_VENDOR_CFG = 1 << 31,
};

enum mrc_qp_cap {
  MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED = 1 << 0,
  MRC_QP_CAP_DYNAMIC_MPR = 1 << 1,
  MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED = 1 << 2,
};

struct mrc_qp_attr {
  struct {
    uint8_t mpr, mpr_dest; /* in 128 PSNs: as requester, as responder */
  } mpr;
  struct {
    uint16_t max_wimm, max_wimm_dest;
  } wimm;
  uint8_t timeout; /* 1.024 us times 2 to this; 24 at most */
  struct {
    uint64_t ev_profile_id, cc_profile_id;
  } profile;
  struct {
    uint8_t linear_cnt, exp_cnt; /* 7 and 25 at most; 25: for ever */
  } retry;
  struct mrc_qp_hint* qp_hint;
  uint32_t cap; /* bits of mrc_qp_cap */
  uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_qp* mrc_create_qp(struct mrc_context* mrc_ctx, struct mrc_qp_init_attr* mrc_qp_attr);
int mrc_destroy_qp(struct mrc_qp* qp);
int mrc_query_qp(struct mrc_qp* qp, struct ibv_qp_attr* vattr, int vattr_mask,
                 struct mrc_qp_attr* mrc_attr, int mrc_attr_mask,
                 struct mrc_qp_init_attr* init_attr);
int mrc_modify_qp(struct mrc_qp* qp, struct ibv_qp_attr* vattr, int vattr_mask,
                  struct mrc_qp_attr* mrc_attr, int mrc_attr_mask);
int mrc_get_qpn(struct mrc_qp* qp, uint32_t* qpn);
/* Returns -1 with errno, other than mrc_post_send(). */
int mrc_post_recv(struct mrc_qp* qp, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad_wr);
/* Takes RDMA WRITE, with and without immediate data; all others are EOPNOTSUPP. */
int mrc_post_send(struct mrc_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad_wr);

/* ---- events */

struct mrc_async_event {
  union {
    struct mrc_cq* cq;
    struct mrc_qp* qp;
    int port_num;
  } element;
  enum ibv_event_type event_type;
};

int mrc_get_async_event(struct mrc_context* mrc_ctx, struct mrc_async_event* event);
void mrc_ack_async_event(struct mrc_async_event* event);

#ifdef __cplusplus
}
#endif
