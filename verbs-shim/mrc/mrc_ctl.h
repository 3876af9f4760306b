/* SPDX-License-Identifier: BSD-3-Clause */
/* The controller's half of libmrc.so: what a device offers, and profiles of entropy values (EVs)
 * and of congestion control. Names, values and layouts are those of version 1.0.1 of OCP's API,
 * written down here anew, as in mrc.h. hostnic has one profile of each kind, number 0, which nobody
 * can change (docs/mrc.md, "The controller's half").
 *
 * Calls are for any thread. They return 0, or -1 with errno and a line on stderr (HOSTNIC_LOG).
 */
#pragma once

#include "verbs-shim/mrc/mrc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MRC_CTL_API_CURRENT_VERSION MRC_API_VER(1, 0, 1)
#define MRC_CTL_API_LAST_SUPPORTED_VERSION MRC_API_VER(0, 0, 0)
#define MRC_CTL_VENDOR_API_CURRENT_VERSION MRC_API_VER(1, 0, 0)
#define MRC_CTL_VENDOR_API_LAST_SUPPORTED_VERSION MRC_API_VER(0, 0, 0)
#define MRC_CTL_MAX_VENDOR_CFG_SIZE 128
#define MRC_CTL_EV_MAX_BYTES 32

enum mrc_ctl_protocol_version { MRC_CTL_PROTOCOL_VERSION_0 = 0, MRC_CTL_PROTOCOL_VERSION_1 = 1 };

enum mrc_ctl_profile_state {
  MRC_CTL_PROFILE_INIT,
  MRC_CTL_PROFILE_OFFLINE,
  MRC_CTL_PROFILE_ONLINE,
};

/* ---- the device */

enum mrc_ctl_attr_opt {
  MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE = 1 << 0,
  MRC_CTL_OPT_CAP_CC_PROFILE_MODIFY_ONLINE = 1 << 1,
  MRC_CTL_OPT_CAP_EV_EVENT = 1 << 2,
  MRC_CTL_OPT_CAP_EV_EXPLICIT_RANGE = 1 << 3,
  MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT = 1 << 4,
  MRC_CTL_OPT_CAP_EP_OP_EV_PROBE = 1 << 5,
};

struct mrc_ctl_device_attr {
  uint32_t mrc_ctl_protocol_version;
  struct {
    uint32_t ev_max_fmt_profiles, ev_max_profiles;
    uint32_t ev_max_count, ev_free_count, ev_max_count_profile, ev_count_align;
    uint32_t ev_max_width; /* bits */
    uint32_t ev_fmt_mode_mask, ev_mode_mask;
    uint32_t ev_op_max_entries;
  } ev;
  struct {
    uint32_t cc_max_profiles;
    const char** algorithms; /* a null pointer ends them; the library's */
  } cc;
  uint32_t phy_port_mask; /* bit N: port N, from 1 */
  uint32_t opt_attr;      /* bits of mrc_ctl_attr_opt */
};

int mrc_ctl_query_device(struct ibv_context* context, struct mrc_ctl_device_attr* ctl_attr);
int mrc_ctl_query_device_ex(struct ibv_context* context, struct mrc_context* mcontext,
                            struct mrc_ctl_device_attr* ctl_attr, int* supported);
void mrc_ctl_query_version(uint32_t* current_version, uint32_t* last_supported_version,
                           uint32_t* vendor_version, uint32_t* last_supported_vendor_version);

/* ---- ports */

enum mrc_ctl_port_admin_state { MRC_CTL_PORT_ADMIN_DISABLED, MRC_CTL_PORT_ADMIN_ENABLED };
enum mrc_ctl_port_attr_mask { MRC_CTL_PORT_ADMIN_STATE = 1 << 0 };
struct mrc_ctl_port_attr {
  enum mrc_ctl_port_admin_state port_admin_state;
};

int mrc_ctl_query_port(struct mrc_context* context, uint8_t port_num,
                       struct mrc_ctl_port_attr* attr, int attr_mask);
int mrc_ctl_modify_port(struct mrc_context* context, uint8_t port_num,
                        struct mrc_ctl_port_attr* attr, int attr_mask);

/* ---- formats of entropy values */

enum mrc_ctl_ev_fmt_mode {
  MRC_CTL_EV_FMT_MODE_STEV = 1 << 0, /* flow label and UDP source port */
  MRC_CTL_EV_FMT_MODE_SRV6 = 1 << 1,
  MRC_CTL_EV_FMT_MODE_UDP = 1 << 2, /* UDP source port */
};

enum mrc_ctl_ev_fmt_op { MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, MRC_CTL_EV_FMT_OP_QUERY_FIELDS };

struct mrc_ctl_ev_fmt_field {
  uint8_t width; /* bits */
};

struct mrc_ctl_ev_fmt_profile_attr {
  enum mrc_ctl_profile_state profile_state, cur_profile_state;
  enum mrc_ctl_ev_fmt_mode ev_fmt_mode;
  struct {
    enum mrc_ctl_ev_fmt_op op;
    struct mrc_ctl_ev_fmt_field* fmt_fields;
    int fmt_field_count;
  } ev_fmt_op;
  uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

int mrc_ctl_modify_ev_fmt_profile(struct mrc_context* mrc_ctx, uint64_t ev_fmt_profile_id,
                                  struct mrc_ctl_ev_fmt_profile_attr* attr, int attr_mask);
int mrc_ctl_query_ev_fmt_profile(struct mrc_context* mrc_ctx, uint64_t ev_fmt_profile_id,
                                 struct mrc_ctl_ev_fmt_profile_attr* attr, int attr_mask);

/* ---- profiles of entropy values */

typedef uint8_t mrc_ctl_ev_t[MRC_CTL_EV_MAX_BYTES];
struct mrc_ctl_ev {
  mrc_ctl_ev_t val;
  uint8_t port;
};

enum mrc_ctl_ev_state {
  MRC_CTL_EV_GOOD = 1 << 0,
  MRC_CTL_EV_ASSUMED_BAD = 1 << 1,
  MRC_CTL_EV_DENIED = 1 << 2,
  MRC_CTL_EV_UNKNOWN = 1 << 31,
};

enum mrc_ctl_ev_mode {
  MRC_CTL_EV_MODE_AUTO = 1 << 0,
  MRC_CTL_EV_MODE_EXP = 1 << 1,
  MRC_CTL_EV_MODE_GEN = 1 << 2,
};

enum mrc_ctl_ev_op {
  MRC_CTL_EV_OP_REPLACE_EV,
  MRC_CTL_EV_OP_MODIFY_EV_STATE,
  MRC_CTL_EV_OP_QUERY_EV_STATE,
  MRC_CTL_EV_OP_QUERY_EV_ARRAY,
};

enum mrc_ctl_ev_fields_op {
  MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS,
  MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS,
};

enum mrc_ctl_ev_profile_attr_mask {
  MRC_CTL_EV_PROFILE_STATE = 1 << 0,
  MRC_CTL_EV_PROFILE_CUR_STATE = 1 << 1,
  MRC_CTL_EV_PROFILE_MODE = 1 << 2,
  MRC_CTL_EV_PROFILE_FMT_ID = 1 << 3,
  MRC_CTL_EV_PROFILE_COUNT = 1 << 4,
  MRC_CTL_EV_PROFILE_MIN_ACTIVE = 1 << 5,
  MRC_CTL_EV_PROFILE_EVENT_MASK = 1 << 6,
  MRC_CTL_EV_PROFILE_EV_OP = 1 << 7,
  MRC_CTL_EV_PROFILE_EV_FIELDS_OP = 1 << 8,
  MRC_CTL_EV_PROFILE_VENDOR_CFG = 1 << 31,
};

struct mrc_ctl_ev_field {
  uint32_t width, init_val, min_val, max_val, mask;
};

struct mrc_ctl_ev_op_entry {
  struct mrc_ctl_ev ev, ev_new;
  enum mrc_ctl_ev_state state;
  uint32_t flags;
};

struct mrc_ctl_ev_profile_attr {
  enum mrc_ctl_profile_state profile_state, cur_profile_state;
  enum mrc_ctl_ev_mode ev_mode;
  uint64_t ev_fmt_profile_id;
  uint32_t ev_count, ev_min_active;
  int ev_event_mask;
  struct {
    enum mrc_ctl_ev_op op;
    struct mrc_ctl_ev_op_entry* entries;
    int entry_count;
  } ev_op;
  struct {
    enum mrc_ctl_ev_fields_op op;
    struct mrc_ctl_ev_field* fields;
    int field_count;
  } ev_fields_op;
  uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

int mrc_ctl_modify_ev_profile(struct mrc_context* mrc_ctx, uint64_t ev_profile_id,
                              struct mrc_ctl_ev_profile_attr* attr, int attr_mask);
int mrc_ctl_query_ev_profile(struct mrc_context* mrc_ctx, uint64_t ev_profile_id,
                             struct mrc_ctl_ev_profile_attr* attr, int attr_mask);

/* ---- profiles of congestion control */

enum mrc_ctl_cc_profile_attr_mask {
  MRC_CTL_CC_PROFILE_STATE = 1 << 0,
  MRC_CTL_CC_PROFILE_CUR_STATE = 1 << 1,
  MRC_CTL_CC_PROFILE_ALGORITHM = 1 << 2,
  MRC_CTL_CC_PROFILE_CONFIG = 1 << 3,
  MRC_CTL_CC_PROFILE_VENDOR_CFG = 1 << 31,
};

struct mrc_ctl_cc_profile_attr {
  enum mrc_ctl_profile_state profile_state, cur_profile_state;
  const char* algorithm;
  const void* cc_config;
  uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

/* The configuration of "uet-1.0-nscc": bytes, nanoseconds. */
struct mrc_ctl_cc_nscc_cfg {
  uint8_t disable_qa;
  uint32_t adjust_bytes_threshold, adjust_period_threshold, base_rtt;
  float eta, fi, fi_scale, gamma, max_md_jump;
  uint32_t max_cwnd;
  uint8_t qa_gate;
  uint32_t qa_threshold, target_delay;
};

int mrc_ctl_modify_cc_profile(struct mrc_context* mrc_ctx, uint64_t cc_profile_id,
                              struct mrc_ctl_cc_profile_attr* attr, int attr_mask);
int mrc_ctl_query_cc_profile(struct mrc_context* mrc_ctx, uint64_t cc_profile_id,
                             struct mrc_ctl_cc_profile_attr* attr, int attr_mask);

/* ---- events of entropy values */

struct mrc_ctl_ev_event {
  uint64_t profile_id;
  struct mrc_ctl_ev ev;
  uint32_t drop_count;
  enum mrc_ctl_ev_state state; /* since version 1.0.1 */
};

struct mrc_cq* mrc_ctl_create_ev_event_cq(struct mrc_context* mrc_ctx, int cqe, void* cq_context,
                                          struct mrc_comp_channel* channel, int comp_vector);
/* Returns a negative errno value. */
int mrc_ctl_poll_ev_event(struct mrc_cq* ev_cq, int num_entries, struct mrc_ctl_ev_event* ev_event);

/* ---- requests to endpoints */

enum mrc_ctl_ep_op_type { MRC_CTL_EP_OP_EV_PROBE, MRC_CTL_EP_OP_PORT_STATUS_UPDATE };

struct mrc_ctl_ep_req {
  uint16_t req_id;
  union ibv_gid sgid, dgid;
  enum mrc_ctl_ev_fmt_mode ev_fmt_mode;
  struct mrc_ctl_ev req_ev;
  union {
    struct {
      uint32_t port_status;
    } port_status_update;
  } op;
};

struct mrc_ctl_ep_rsp {
  uint16_t req_id;
  uint8_t port;
  unsigned int rtt; /* ns */
  uint8_t adj_svc_time;
};

int mrc_ctl_ep_batch_send_wait(struct mrc_context* mrc_ctx, uint8_t req_tc,
                               enum mrc_ctl_ep_op_type op_type, struct mrc_ctl_ep_req* req,
                               int num_req, uint32_t rsp_timeout, struct mrc_ctl_ep_rsp* rsp,
                               int* num_rsp);

#ifdef __cplusplus
}
#endif
