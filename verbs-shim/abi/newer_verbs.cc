// SPDX-License-Identifier: BSD-3-Clause
// Verbs of libraries that are newer than the headers here (rdma-core 58 to 65): a program built
// with them finds what this device has, and EOPNOTSUPP instead of a call into the real library with
// an object that is not its own.
#include "verbs-shim/abi/buffers.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/objects.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"

using namespace hostnic::abi;

// These stay incomplete, so that newer headers may define them.
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;
struct ibv_mr_init_attr;

namespace {

// The structure ibv_mr_init_attr as the ABI has it.
struct MrInitAttr {
  size_t length;
  int access;
  uint64_t comp_mask;  // which of the fields below count
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  ibv_dmah* dmah;
  ibv_buf* buf;
};
// Bits of comp_mask, for the fields in their order. DMA handles come from a verb that this device
// does not have.
constexpr uint64_t kHasIova = 1 << 0, kHasAddr = 1 << 1, kHasFd = 1 << 2, kHasFdOffset = 1 << 3,
                   kHasBuffer = 1 << 5, kKnownFields = 0x3f;

}  // namespace

HOSTNIC_VERB ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* init_attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_mr*(ibv_pd*, ibv_mr_init_attr*)> real("ibv_reg_mr_ex",
                                                                      "IBVERBS_1.15");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, init_attr);
  const auto* attr = reinterpret_cast<const MrInitAttr*>(init_attr);
  if (attr->comp_mask & ~kKnownFields) return fail_null(EINVAL);
  if (attr->comp_mask & kHasBuffer) {
    if ((attr->comp_mask & (kHasFd | kHasFdOffset)) || !(attr->comp_mask & kHasAddr) ||
        !is_in_buffer(attr->buf, pd, attr->addr, attr->length))
      return fail_null(EINVAL);
  }
  if (attr->comp_mask & (kHasFd | kHasFdOffset)) {
    // A file's part has an offset and no address.
    if ((attr->comp_mask & ~(kHasIova | kHasFd | kHasFdOffset)) != 0)
      return fail_null(attr->comp_mask & kHasAddr ? EINVAL : EOPNOTSUPP);
    if ((attr->comp_mask & kHasFd) == 0 || (attr->comp_mask & kHasFdOffset) == 0 ||
        (attr->comp_mask & kHasIova) == 0)
      return fail_null(EINVAL);
    return ibv_reg_dmabuf_mr(pd, attr->fd_offset, attr->length, attr->iova, attr->fd, attr->access);
  }
  if (attr->comp_mask & ~(kHasIova | kHasAddr | kHasBuffer)) return fail_null(EOPNOTSUPP);
  if (!(attr->comp_mask & kHasAddr)) return fail_null(EINVAL);
  const uint64_t iova =
      attr->comp_mask & kHasIova ? attr->iova : reinterpret_cast<uint64_t>(attr->addr);
  return (ibv_reg_mr_iova2)(pd, attr->addr, attr->length, iova,
                            static_cast<unsigned int>(attr->access));
}

HOSTNIC_VERB int ibv_query_port_speed(ibv_context* context, uint32_t port,
                                      uint64_t* speed_100mbps) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, uint32_t, uint64_t*)> real("ibv_query_port_speed",
                                                                         "IBVERBS_1.16");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context, port, speed_100mbps);
  if (port != kPortNumber) return fail(EINVAL);
  *speed_100mbps = object_of(context)->driver->device().speed_mbps / 100;
  return 0;
}

HOSTNIC_VERB ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_dmah*(ibv_context*, ibv_dmah_init_attr*)> real("ibv_alloc_dmah",
                                                                               "IBVERBS_1.15");
  if (is_ours(Kind::kContext, context)) return fail_null(EOPNOTSUPP);
  return real.foreign(context, attr);
}

HOSTNIC_VERB int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps,
                                           size_t size_bytes) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, ibv_comp_cntr_caps*, size_t)> real(
      "_ibv_query_comp_cntr_caps", "IBVERBS_1.18");
  if (is_ours(Kind::kContext, context)) return fail(EOPNOTSUPP);
  return real.foreign(context, caps, size_bytes);
}

HOSTNIC_VERB ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context,
                                                 ibv_comp_cntr_init_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_comp_cntr*(ibv_context*, ibv_comp_cntr_init_attr*)> real(
      "ibv_create_comp_cntr", "IBVERBS_1.18");
  if (is_ours(Kind::kContext, context)) return fail_null(EOPNOTSUPP);
  return real.foreign(context, attr);
}

HOSTNIC_VERB int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter,
                                         ibv_qp_attach_comp_cntr_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*, ibv_comp_cntr*, ibv_qp_attach_comp_cntr_attr*)> real(
      "ibv_qp_attach_comp_cntr", "IBVERBS_1.18");
  if (is_ours(Kind::kQp, qp)) return fail(EOPNOTSUPP);
  return real.foreign(qp, counter, attr);
}
