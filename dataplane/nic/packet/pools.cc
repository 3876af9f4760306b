// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/packet/pools.h"

#include <rte_errno.h>
#include <rte_mbuf.h>

#include <algorithm>

#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/external_payload.h"

namespace hostnic {
namespace {

// Data rooms end with space for pad and ICRC.
constexpr uint16_t kSmallRoom = RTE_PKTMBUF_HEADROOM + 640;
static_assert(RTE_PKTMBUF_HEADROOM + kAckBundleBytes <= kSmallRoom);
constexpr uint16_t kHeaderRoom = RTE_PKTMBUF_HEADROOM + kRequestBundleBytes;
static_assert(kHeaderRoom >= kSmallRoom && kRequestBundleBytes >= kReadBundleBytes);
constexpr unsigned kMaxCache = 256;

rte_mempool* make_pool(const std::string& name, double count, uint16_t private_bytes, uint32_t room,
                       int socket) {
  const auto buffers = static_cast<unsigned>(count);
  return rte_pktmbuf_pool_create(name.c_str(), buffers, std::min(kMaxCache, buffers / 2),
                                 private_bytes, static_cast<uint16_t>(room), socket);
}

}  // namespace

MbufPools create_mbuf_pools(const std::string& name_prefix, uint32_t mtu_bytes, double scale,
                            int socket) {
  const uint32_t packet_room =
      RTE_PKTMBUF_HEADROOM + mtu_bytes + static_cast<uint32_t>(wire::kMaxHeaderBytes) + 64;
  MbufPools pools;
  if (!register_mbuf_flags()) return pools;
  pools.header =
      make_pool(name_prefix + "_header", 16383 * scale, kExternalPayloadBytes, kHeaderRoom, socket);
  pools.data = make_pool(name_prefix + "_data", 8191 * scale, 0, packet_room, socket);
  pools.control = make_pool(name_prefix + "_control", 8191 * scale, 0, kSmallRoom, socket);
  pools.resend = make_pool(name_prefix + "_resend", 1023 * scale, 0, packet_room, socket);
  pools.copies = make_pool(name_prefix + "_copies", 8191 * scale, 0, packet_room, socket);
  if (pools.header == nullptr || pools.data == nullptr || pools.control == nullptr ||
      pools.resend == nullptr || pools.copies == nullptr) {
    const int error = rte_errno;
    free_mbuf_pools(pools);
    rte_errno = error;
  }
  return pools;
}

void free_mbuf_pools(MbufPools& pools) {
  for (rte_mempool* pool : {pools.header, pools.data, pools.control, pools.resend, pools.copies})
    rte_mempool_free(pool);
  pools = {};
}

MbufUse mbuf_use(const MbufPools& pools) {
  MbufUse use;
  for (rte_mempool* pool : {pools.header, pools.data, pools.control, pools.resend, pools.copies}) {
    use.in_use += rte_mempool_in_use_count(pool);
    use.all += pool->size;
  }
  return use;
}

}  // namespace hostnic
