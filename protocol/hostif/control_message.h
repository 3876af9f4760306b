// SPDX-License-Identifier: BSD-3-Clause
// Messages on hostnicd's control socket (AF_UNIX, SOCK_SEQPACKET): one request, one reply, each one
// datagram of at most kMaxControlBytes with at most kMaxControlFds descriptors by SCM_RIGHTS. A
// connection either lists and commands (kListDevices, kText) or, after kOpen, is one device
// context; closing it frees all that the context had.
#pragma once

#include <cstdint>
#include <cstring>

#include "protocol/gid.h"
#include "protocol/hostif/cm_message.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/hostif/device_offer.h"
#include "protocol/hostif/memory_region.h"
#include "protocol/hostif/segment.h"
#include "protocol/hostif/version.h"

namespace hostnic {

inline constexpr uint32_t kControlMagic = 0x43494e48;  // "HNIC"
inline constexpr uint32_t kMaxControlBytes = 128 * 1024;
inline constexpr uint32_t kMaxControlFds = 64;
inline constexpr uint32_t kMaxRegionsPerMr = 2048;
inline constexpr uint32_t kMaxDevices = 64;

enum class ControlKind : uint32_t {
  kListDevices = 1,  // -> ControlReply, DeviceInfo[count]
  kOpen,  // OpenRequest; fds: mem fd, pidfd unless it can't open one, then the process's mirror if
          //   it has one -> OpenReply;
          //   fds: segment, arena, mirror, eventfd of this client's doorbell, doorbell page,
          //   [/dev/userfaultfd]
  kRegisterMr,    // RegisterMrRequest, MemoryRegion[region_count]; fds: files -> RegisterMrReply
  kDeregisterMr,  // DeregisterMrRequest -> ControlReply, sent when nothing in hostnicd refers to
                  // the memory
  kText,          // a command as at the prompt -> ControlReply, text; count 1: hosts are being
                  // asked, and the same command a little later knows more
  kChangeMemory,  // MemoryChange -> ControlReply, sent when the change is in force
  kNameHost,      // NameHostRequest -> NameHostReply
  kOpenCm,        // OpenCmRequest -> OpenCmReply: from then on cm_message.h is spoken
  kMemoryFilled,  // MemoryFilledRequest -> ControlReply, sent at once; soon after that hostnicd
                  // reaches the region's late parts like all of the mirror
  kCapture,       // CaptureRequest -> CaptureReply (capture_message.h)
  kExplain,  // ExplainRequest -> ControlReply, text: why, in one line; empty: nothing is known;
             // a count other than 0 is a ticket: the peer's host is being asked, and the same
             // question with the ticket, some milliseconds later, has the answer
  kDumpCaptures,  // DumpCapturesRequest -> ControlReply, CaptureState[count] (capture_message.h)
  kRdmaNetlink,   // RdmaNetlinkRequest, a datagram of RDMA netlink -> ControlReply, messages of
                  // netlink, in a file where they are long; count: nldev::Refusal
};

struct ControlRequest {
  uint32_t magic = kControlMagic;
  uint32_t abi_version = kHostAbiVersion;
  ControlKind kind{};
  uint32_t payload_bytes = 0;        // what follows this header
  char build[32] = HOSTNIC_VERSION;  // named in the error about a wrong ABI version
};

struct ControlReply {
  uint32_t abi_version = kHostAbiVersion;
  int32_t error = 0;  // errno value
  uint32_t count = 0;
  uint32_t payload_bytes = 0;
  char build[32] = HOSTNIC_VERSION;
  char message[128] = {};  // one line when error != 0
};

// The GIDs of a device, at most; and the number of entries that its table has room for.
inline constexpr uint32_t kMaxGids = 16;

enum class GidType : uint8_t { kRoceV1 = 1, kRoceV2 = 2 };  // with ibv_gid_type's values

// An entry of a GID table.
struct GidEntry {
  uint8_t gid[16];
  GidType type;          // what it is called; packets are RoCEv2 all the same
  uint8_t usable;        // 0: no packets can leave from the address
  uint8_t source_index;  // which of the NIC's addresses it is
  uint8_t reserved;
};

// A clock that passes faster than this would have timers that fire before a thread can.
inline constexpr uint32_t kMostTimescale = 1000;

struct DeviceInfo {
  char name[16];
  uint32_t index;
  uint32_t ip;  // as NICs name hosts (protocol/gid.h): an IPv4 address, or what stands for IPv6
  uint8_t address[16];  // what that is as a GID
  uint32_t prefix_length;
  uint32_t mtu_bytes;  // IB MTU: 256 .. 4096
  uint8_t mac[6];
  uint8_t link_up;
  uint8_t on_wire;  // in-process virtual wire
  uint32_t speed_mbps;
  uint32_t window;  // PSNs
  uint32_t policy;  // wire::Policy
  uint32_t congestion_allowance_us;
  uint32_t relaxed_ordering;  // 1: READs may overtake each other (docs/transport.md rule 18)
  uint32_t adversary_seed;    // what drivers draw from (docs/ordering.md); 0: another ordering
  uint32_t lid;               // LID of the port; 0: none, as RoCE ports have it
  uint32_t max_qps;
  uint32_t max_mrs;
  uint32_t atomic_on_host;    // 1: every MR is mapped, atomics are coherent with the CPU's
  uint32_t asks_for_hosts;    // 1: hosts have MAC addresses, which the NIC finds by ARP
  uint64_t node_guid;         // big-endian bytes as verbs wants them
  char netdev[16];            // the interface that has the NIC's addresses, or is its port
  uint32_t gid_count;         // entries of `gids` that are there
  uint32_t gid_table_length;  // what the device says that it has
  uint32_t timescale;         // timeouts pass so many times as fast: 1, or up to kMostTimescale
  uint32_t transport;         // hostnic::Transport, that of RC as it is configured
  uint32_t entropy_values;    // of each queue pair of MRC
  uint32_t paths;             // of each native queue pair
  DeviceOffer offer;
  GidEntry gids[kMaxGids];
  char port[96];  // devargs, for people
};

struct OpenRequest {
  uint32_t device_index;
  uint32_t pid;  // for people; the pidfd decides
  uint32_t has_mirror;
  char program[32];
};

struct OpenReply {
  DeviceInfo device;
  uint64_t segment_bytes;
  uint64_t arena_bytes;
  uint32_t client_id;
  uint32_t has_userfaultfd;
};

struct RegisterMrRequest {
  uint64_t va;  // in the client's memory
  uint64_t length_bytes;
  uint64_t iova;    // address that lkey/rkey users name; va unless ibv_reg_mr_iova
  uint32_t access;  // AccessFlag
  uint32_t pd;
  uint32_t region_count;  // 0: the region has a length of 0
  uint32_t replaced_key;  // the client's region whose key and place the new one takes, or 0
};

struct RegisterMrReply {
  uint32_t lkey;
  uint32_t rkey;
  uint64_t bytes_mapped;  // bytes reached by memcpy
  uint64_t bytes_mem_fd;  // bytes reached by system call
};

struct DeregisterMrRequest {
  uint32_t lkey;
};

// The address of a device, and of an entry of its table, as a GID.
inline Gid gid_in(const uint8_t (&bytes)[16]) {
  Gid gid;
  std::memcpy(gid.data(), bytes, gid.size());
  return gid;
}

// Asks for the number by which the NIC knows a host of this IPv6 address (network order), for
// descriptors and commands; it keeps it while the client is there. Refused with ENOMEM: a client
// has named kMaxNamedHosts, or all clients together too many.
struct NameHostRequest {
  uint8_t gid[16];
};
struct NameHostReply {
  uint32_t number;
};
inline constexpr uint32_t kMaxNamedHosts = 1024;

// Says that all slices of a region's late parts are filled (memory_region.h). Refused with EINVAL
// where the client has no such region, with EAGAIN where a slice's state or the mirror says
// otherwise: the region then goes on as it was. A region without late parts, or of which this has
// been said before, stays as it is.
struct MemoryFilledRequest {
  uint32_t lkey;
};

// Says as whom a program asks by RDMA netlink (protocol/nldev/), and of which devices.
struct RdmaNetlinkRequest {
  uint32_t port_id;         // his socket's
  uint32_t short_acks;      // 1: NETLINK_CAP_ACK
  uint32_t wants_words;     // 1: NETLINK_EXT_ACK
  uint32_t first_index;     // devices' indexes are from there on
  uint32_t rdma_cm_device;  // dev_t of /dev/infiniband/rdma_cm, and of uverbsN, as he sees them
  uint32_t verbs_device;
  uint32_t device_count;
  struct {
    uint32_t index;         // DeviceInfo::index
    uint32_t netdev_index;  // of DeviceInfo's interface, in his network namespace; 0: none
  } devices[kMaxDevices];
};
inline constexpr uint32_t kMostRdmaIndex = 1u << 30;

// What a program wants to know of its queue pair. hostnicd knows both ends where both are its.
enum class Question : uint32_t {
  kRefused,      // why the peer has refused the request
  kSilent,       // why the peer doesn't answer
  kNotReady,     // why the peer has no receive
  kOwnMemory,    // why the NIC refuses the memory that the request names
  kOwnReceive,   // why a message did not get into the receive
  kRefusesPeer,  // why this end has refused a request of its peer
  kOwnWindow,    // why a window was not bound, or invalidated
  kWaiting,      // why nothing comes
};
inline constexpr Question kLastQuestion = Question::kWaiting;

struct ExplainRequest {
  uint32_t qpn;
  Question question;
  // The request that it is about, for those questions that are about one.
  SendOp op;
  uint8_t sge_count;
  uint8_t max_rd_atomic;
  uint8_t reserved;
  uint32_t ticket;  // 0; or what an answer's count was: the rest is not looked at
  uint32_t key;     // binds: the region's
  uint32_t access;  // binds: AccessFlag
  uint64_t remote_va;
  uint64_t length_bytes;
  Sge sges[kMaxSge];
};

}  // namespace hostnic
