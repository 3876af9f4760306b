// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/network/kernel_interface.h"

#include <dirent.h>
#include <errno.h>
#include <fmt/format.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <iterator>
#include <memory>

#include "protocol/wire/udp.h"

namespace hostnic {
namespace {

// Constants of tcx, programs that look at a packet between packet sockets and IP: <linux/bpf.h> as
// Debian 12 has it is older.
constexpr uint32_t kBpfTcxIngress = 46;
constexpr int32_t kTcxNext = -1;
constexpr int32_t kTcxDrop = 2;

long bpf(int command, bpf_attr& attributes) {
  return syscall(SYS_bpf, command, &attributes, sizeof attributes);
}

constexpr bpf_insn instruction(int code, uint8_t to, uint8_t from, int16_t jump, int32_t value) {
  return {static_cast<uint8_t>(code), to, from, jump, value};
}
constexpr bpf_insn set(uint8_t to, int32_t value) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value);
}
constexpr bpf_insn copy(uint8_t to, uint8_t from) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0);
}

// The bytes that the program looks at, as it has them on its stack: an IPv4 header without options,
// and the ports behind it.
constexpr int32_t kIpAt = 14, kSeenBytes = 24;
// Loads into register 0 what lies there, as this machine would load it: the network's byte order.
constexpr bpf_insn load(int width, int16_t ip_byte) {
  return instruction(BPF_LDX | BPF_MEM | width, BPF_REG_0, BPF_REG_10,
                     static_cast<int16_t>(ip_byte - kSeenBytes), 0);
}

// Loads the program, which gets all bytes by one call: in packets from a neighbouring interface of
// this machine they lie in another page than the first 14, and each look there is a walk.
UniqueFd load_roce_dropper(Ipv4Address address) {
  constexpr int kDiffers = BPF_JMP32 | BPF_JNE | BPF_K;
  const bpf_insn program[] = {
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_0, BPF_REG_1, offsetof(__sk_buff, protocol),
                  0),
      instruction(kDiffers, BPF_REG_0, 0, 18, htons(ETHERTYPE_IP)),
      set(BPF_REG_2, kIpAt),
      copy(BPF_REG_3, BPF_REG_10),
      instruction(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_3, 0, 0, -kSeenBytes),
      set(BPF_REG_4, kSeenBytes),
      instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skb_load_bytes),
      instruction(kDiffers, BPF_REG_0, 0, 12, 0),  // the packet is shorter than that
      load(BPF_W, 16),
      instruction(kDiffers, BPF_REG_0, 0, 10, static_cast<int32_t>(htonl(raw(address)))),
      load(BPF_B, 0),  // version, and a header without options
      instruction(kDiffers, BPF_REG_0, 0, 8, 0x45),
      load(BPF_B, 9),
      instruction(kDiffers, BPF_REG_0, 0, 6, IPPROTO_UDP),
      load(BPF_H, 6),  // fragment bits: where in its packet a fragment lies
      instruction(BPF_JMP32 | BPF_JSET | BPF_K, BPF_REG_0, 0, 4, htons(0x1fff)),
      load(BPF_H, 22),
      instruction(kDiffers, BPF_REG_0, 0, 2, htons(wire::kRoceUdpPort)),
      set(BPF_REG_0, kTcxDrop),
      instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
      set(BPF_REG_0, kTcxNext),
      instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)};
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_SCHED_CLS;
  attributes.expected_attach_type = static_cast<bpf_attach_type>(kBpfTcxIngress);
  attributes.insns = reinterpret_cast<uintptr_t>(program);
  attributes.insn_cnt = std::size(program);
  attributes.license = reinterpret_cast<uintptr_t>("");
  return UniqueFd(static_cast<int>(bpf(BPF_PROG_LOAD, attributes)));
}

}  // namespace

Expected<uint32_t, std::string> interface_mtu(const std::string& interface) {
  UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (interface.size() >= IFNAMSIZ)
    return Unexpected(fmt::format("\"{}\" is no interface name: it is too long", interface));
  memcpy(request.ifr_name, interface.data(), interface.size());
  if (!socket_fd || ioctl(socket_fd.get(), SIOCGIFMTU, &request) != 0)
    return Unexpected(fmt::format("interface {}: {}; `ip link` lists those there are", interface,
                                  strerror(errno)));
  return static_cast<uint32_t>(request.ifr_mtu);
}

UniqueFd take_groups_from(const std::string& interface) {
  UniqueFd membership(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  packet_mreq wanted{};
  wanted.mr_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  wanted.mr_type = PACKET_MR_ALLMULTI;
  if (!membership ||
      setsockopt(membership.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted, sizeof wanted) != 0)
    return {};
  return membership;
}

UniqueFd silence_roce_of(const std::string& interface) {
  UniqueFd listener(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sock_filter drop_all{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop_all};
  const int yes = 1;  // several NICs may share an interface
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(wire::kRoceUdpPort);
  if (!listener ||
      setsockopt(listener.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0 ||
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      setsockopt(listener.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.data(),
                 static_cast<socklen_t>(interface.size())) != 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return {};
  return listener;
}

UniqueFd end_roce_before_ip(const std::string& interface, Ipv4Address address) {
  const UniqueFd program = load_roce_dropper(address);
  if (!program) return {};
  bpf_attr attributes{};
  attributes.link_create.prog_fd = static_cast<uint32_t>(program.get());
  attributes.link_create.target_ifindex = if_nametoindex(interface.c_str());
  attributes.link_create.attach_type = kBpfTcxIngress;
  return UniqueFd(static_cast<int>(bpf(BPF_LINK_CREATE, attributes)));
}

std::vector<int> packet_sockets() {
  std::vector<int> sockets;
  const std::unique_ptr<DIR, int (*)(DIR*)> open_files(opendir("/proc/self/fd"), closedir);
  if (open_files == nullptr) return sockets;
  while (const dirent* entry = readdir(open_files.get())) {
    const int fd = atoi(entry->d_name);
    int family = AF_UNSPEC;
    socklen_t bytes = sizeof family;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 &&
        (family == AF_PACKET || family == AF_XDP))
      sockets.push_back(fd);
  }
  return sockets;
}

}  // namespace hostnic
