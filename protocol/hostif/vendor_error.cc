// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/vendor_error.h"

#include <iterator>

namespace hostnic {
namespace {

constexpr VendorErrorInfo kErrors[] = {
    {VendorError::kNone, "IBV_WC_SUCCESS", "nothing is wrong", "", "vendor_err 0"},
    {VendorError::kFlushed, "IBV_WC_WR_FLUSH_ERR",
     "the queue pair was in ERR, or went there, before the request was done",
     "look at the first completion that failed: this one only follows from it",
     "WR_FLUSH_ERR, vendor_err 0xf9 (mlx5)"},
    {VendorError::kLocalKey, "IBV_WC_LOC_PROT_ERR",
     "an lkey, address, length, right or protection domain of the own memory is wrong",
     "lkey, bounds and protection domain of each element; LOCAL_WRITE for READs, atomics and "
     "receives",
     "LOC_PROT_ERR"},
    {VendorError::kLocalLength, "IBV_WC_LOC_LEN_ERR",
     "the message is longer than the receive that it met, or than the path MTU (UD)",
     "longer receives, or shorter messages", "LOC_LEN_ERR"},
    {VendorError::kPeerInvalidRequest, "IBV_WC_REM_INV_REQ_ERR",
     "the peer calls it invalid: receive too short, misaligned atomic, a right that its queue pair "
     "lacks, another path MTU, or more READs and atomics than its max_dest_rd_atomic",
     "qp_access_flags, path_mtu, max_rd_atomic of both ends; length of the receive",
     "REM_INV_REQ_ERR"},
    {VendorError::kPeerAccess, "IBV_WC_REM_ACCESS_ERR",
     "the peer refuses the rkey, the bounds, the region's right or its protection domain, or has "
     "no memory there any more",
     "rkey and address as the peer sent them; the access flags of its ibv_reg_mr",
     "REM_ACCESS_ERR"},
    {VendorError::kPeerOperation, "IBV_WC_REM_OP_ERR",
     "the peer could not put the message into its own receive",
     "lkey, bounds and LOCAL_WRITE of the receives that the peer posts", "REM_OP_ERR"},
    {VendorError::kNoAnswer, "IBV_WC_RETRY_EXC_ERR",
     "the peer has not answered within (retry_cnt + 1) timeouts, and what rule 26 adds",
     "GID, QPN and PSN of both ends; whether the peer's queue pair is in RTR, its program lives, "
     "and UDP port 4791 is open",
     "RETRY_EXC_ERR, vendor_err 0x81 (mlx5)"},
    {VendorError::kReceiverNotReady, "IBV_WC_RNR_RETRY_EXC_ERR",
     "the peer had no receive posted, rnr_retry times in a row",
     "post receives before the peer sends; rnr_retry 7 waits for ever", "RNR_RETRY_EXC_ERR"},
    {VendorError::kWindow, "IBV_WC_MW_BIND_ERR",
     "a memory window could not be bound or invalidated: no such window or region, bounds, rights, "
     "protection domain, or a type 2 window that is bound already",
     "MW_BIND among the region's access flags; the window's type and key", "MW_BIND_ERR"},
    {VendorError::kBadResponse, "IBV_WC_BAD_RESP_ERR",
     "the peer's answers have another length than this path MTU gives", "path_mtu of both ends",
     "BAD_RESP_ERR"},
    {VendorError::kQpModifiedToError, "IBV_WC_WR_FLUSH_ERR",
     "the program brought the queue pair to ERR by ibv_modify_qp", "",
     "WR_FLUSH_ERR, vendor_err 0xf9 (mlx5)"},
    {VendorError::kAddressDomain, "IBV_WC_LOC_QP_OP_ERR",
     "the address handle is of another protection domain than the queue pair",
     "make both with one ibv_pd", "LOC_QP_OP_ERR"},
    {VendorError::kPathMtu, "IBV_WC_RETRY_EXC_ERR",
     "packets of the path MTU no longer fit the port, whose MTU was lowered",
     "raise the interface's MTU again, or connect anew", "RETRY_EXC_ERR, vendor_err 0x81 (mlx5)"},
    {VendorError::kNotDone, "IBV_WC_LOC_QP_OP_ERR",
     "the device takes the operation and does not do it: its personality says so",
     "--like: docs/personalities.md", "LOC_QP_OP_ERR, vendor_err 3 (bnxt_re)"},
};

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
                                     "RNR retry counter exceeded"};

}  // namespace

std::span<const VendorErrorInfo> vendor_errors() { return kErrors; }

const VendorErrorInfo* find_vendor_error(uint32_t code) {
  return code < std::size(kErrors) ? &kErrors[code] : nullptr;
}

const char* status_text(uint32_t wc_status) {
  return wc_status < std::size(kStatuses) ? kStatuses[wc_status] : "unknown";
}

}  // namespace hostnic
