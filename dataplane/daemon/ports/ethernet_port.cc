// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/ports/ethernet_port.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <net/if.h>
#include <rte_branch_prediction.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "dataplane/daemon/lcore/lcore_loop.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/network/kernel_interface.h"
#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/nic.h"
#include "dataplane/nic/packet/external_payload.h"

namespace hostnic {
namespace {

constexpr uint16_t kRxDescriptors = 1024;
constexpr uint16_t kTxDescriptors = 1024;
constexpr unsigned kRxBuffers = 8192 - 1;
// The geometry of net_af_packet, which wants a receive buffer as large as its frames.
constexpr size_t kAfPacketFrameBytes = 8192, kAfPacketFrames = 2048, kLeastAfPacketFrames = 64;
constexpr uint16_t kBufferRoomBytes = 9216;
// What DPDK counts as a frame's beside its IP packet: Ethernet's header and its check sequence.
constexpr uint32_t kFrameBytesBesideMtu = 18;
// Without this, net_af_xdp makes a system call whenever nothing has arrived, which for a sender is
// most of its turns. The kernel receives on its own as well.
constexpr const char* kAfXdpPolling = "busy_budget=0";
// net_af_xdp's buffers, with mempool and mbuf headers, must fit a page each. Interfaces with an XDP
// program take no larger frames either.
constexpr uint16_t kAfXdpRoomBytes = 3584;

bool is_af_packet(const std::string& devargs) { return devargs.starts_with("net_af_packet"); }
bool is_af_xdp(const std::string& devargs) { return devargs.starts_with("net_af_xdp"); }

uint16_t buffer_room_bytes(const std::string& devargs) {
  return is_af_xdp(devargs) ? kAfXdpRoomBytes : kBufferRoomBytes;
}

// The kernel's interface behind a port, if it has one.
std::optional<std::string> interface_of(const std::string& devargs) {
  for (const char* driver : {"net_af_packet", "net_af_xdp", "eth_af_packet"})
    if (devargs.starts_with(driver)) return devargs_value(devargs, "iface");
  return std::nullopt;
}

// The frames of net_af_packet's two rings, which lie in locked memory: as many as RLIMIT_MEMLOCK
// leaves to who may not lock more.
size_t lockable_frames() {
  size_t frames = kAfPacketFrames;
  for (; frames > kLeastAfPacketFrames; frames /= 2) {
    const size_t bytes = 2 * frames * kAfPacketFrameBytes;
    void* const tried = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
    if (tried == MAP_FAILED) continue;
    munmap(tried, bytes);
    break;
  }
  return frames;
}

// The devargs with defaults for what the user says nothing of.
std::string with_defaults(const std::string& devargs) {
  if (is_af_packet(devargs) && !devargs_value(devargs, "framesz"))
    return fmt::format("{},framesz={},blocksz={},framecnt={}", devargs, kAfPacketFrameBytes,
                       8 * kAfPacketFrameBytes, lockable_frames());
  if (is_af_xdp(devargs) && !devargs_value(devargs, "busy_budget"))
    return devargs + "," + kAfXdpPolling;
  return devargs;
}

uint64_t effective_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct halves[_LINUX_CAPABILITY_U32S_3] = {};
  // Where nobody says, the driver finds out.
  if (syscall(SYS_capget, &header, halves) != 0) return UINT64_MAX;
  return halves[0].effective | static_cast<uint64_t>(halves[1].effective) << 32;
}

}  // namespace

std::string missing_for_af_packet(uint64_t capabilities) {
  std::string names;
  const auto want = [&](unsigned number, const char* name) {
    if ((capabilities >> number & 1) != 0) return;
    if (!names.empty()) names += ',';
    names += name;
  };
  want(CAP_NET_RAW, "cap_net_raw");
  want(CAP_NET_ADMIN, "cap_net_admin");
  return names;
}

uint32_t largest_ib_mtu(uint32_t ethernet_mtu_bytes) {
  for (uint32_t mtu = 4096; mtu >= 256; mtu /= 2)
    if (mtu + kPacketOverheadBytes <= ethernet_mtu_bytes) return mtu;
  return 0;
}

std::optional<std::string> devargs_value(const std::string& devargs, const std::string& key) {
  size_t at = devargs.find(',');
  while (at != std::string::npos) {
    const size_t end = std::min(devargs.find(',', at + 1), devargs.size());
    const std::string argument = devargs.substr(at + 1, end - at - 1);
    if (argument.starts_with(key + "=")) return argument.substr(key.size() + 1);
    at = devargs.find(',', at + 1);
  }
  return std::nullopt;
}

Expected<PortFacts, std::string> check_ethernet_port(const std::string& devargs) {
  PortFacts facts;
  const auto interface = interface_of(devargs);
  if (is_af_packet(devargs) && !interface)
    return Unexpected(fmt::format("port {}: which interface? Say {},iface=NAME", devargs, devargs));
  if (!interface) return facts;
  auto mtu = interface_mtu(*interface);
  if (!mtu) return Unexpected(fmt::format("port {}: {}", devargs, mtu.error()));
  facts.ethernet_mtu_bytes = *mtu;
  std::string missing;
  if (is_af_packet(devargs)) missing = missing_for_af_packet(effective_capabilities());
  // Capabilities of a user namespace that does not own the network don't count.
  if (missing.empty() && !UniqueFd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)))
    missing = "cap_net_raw";
  if (!missing.empty())
    return Unexpected(
        fmt::format("port {}: opening interface {} needs {}: run as root, or once `sudo setcap "
                    "cap_net_raw,cap_net_admin+ep $(readlink -f hostnicd)`",
                    devargs, *interface, missing));
  return facts;
}

Expected<uint32_t, std::string> choose_ib_mtu(const std::string& nic_name,
                                              const std::string& devargs, uint32_t wanted_bytes,
                                              uint32_t ethernet_mtu_bytes) {
  const uint32_t largest = largest_ib_mtu(ethernet_mtu_bytes);
  if (largest == 0)
    return Unexpected(fmt::format(
        "{}: port {} has an MTU of {} bytes, too small even for an IB MTU of 256 (needs {})",
        nic_name, devargs, ethernet_mtu_bytes, 256 + kPacketOverheadBytes));
  if (wanted_bytes == 0) return largest;
  if (wanted_bytes > largest)
    return Unexpected(fmt::format(
        "{}: mtu {} needs a port MTU of {} bytes, and {} has {}: use mtu {}, or raise it with "
        "`ip link set dev NAME mtu {}`",
        nic_name, wanted_bytes, wanted_bytes + kPacketOverheadBytes, devargs, ethernet_mtu_bytes,
        largest, wanted_bytes + kPacketOverheadBytes));
  return wanted_bytes;
}

Expected<std::unique_ptr<EthernetPort>, std::string> EthernetPort::open(
    const std::string& name, const std::string& devargs, Ipv4Address ip,
    const std::optional<wire::MacAddress>& mac, uint32_t ib_mtu_bytes) {
  std::unique_ptr<EthernetPort> port(new EthernetPort);
  port->name_ = name;
  port->devargs_ = devargs;
  port->adapter_ = PciAdapter::named_in(devargs);
  port->device_ = port->adapter_ ? port->adapter_->address() : devargs.substr(0, devargs.find(','));
  port->wanted_ib_mtu_bytes_ = ib_mtu_bytes;
  port->ip_ = ip;
  port->interface_ = interface_of(devargs);
  port->wanted_mac_ = mac;
  if (auto opened = port->open_device(); !opened) return Unexpected(opened.error());
  port->attached_ = true;
  return port;
}

Expected<void, std::string> EthernetPort::open_device() {
  const std::vector<int> sockets_before = packet_sockets();
  if (auto probed = probe(); !probed) return Unexpected(probed.error());
  if (auto configured = configure(); !configured) return Unexpected(configured.error());
  guard_registers();
  read_speed();
  find_sockets(sockets_before);
  take_groups();
  silence_kernel();
  rte_ether_addr own{};
  rte_eth_macaddr_get(port_id_, &own);
  memcpy(mac_.data(), own.addr_bytes, mac_.size());
  if (wanted_mac_ && *wanted_mac_ != mac_) {
    mac_ = *wanted_mac_;
    if (const int error = rte_eth_promiscuous_enable(port_id_))
      return Unexpected(fmt::format(
          "{}: port {} can't take another MAC address than its own (promiscuous mode: {})", name_,
          devargs_, rte_strerror(-error)));
  }
  return {};
}

void EthernetPort::close_device() {
  sockets_.clear();  // the driver's sockets are then the last ones
  group_membership_.reset();
  kernel_silence_.reset();
  if (port_id_ == UINT16_MAX) return;
  rte_eth_dev_info info{};
  const int known = rte_eth_dev_info_get(port_id_, &info);
  rte_eth_dev_stop(port_id_);
  rte_eth_dev_close(port_id_);
  forget_registers();
  if (known == 0) rte_dev_remove(info.device);
  port_id_ = UINT16_MAX;
}

void EthernetPort::tell(bool carries, const KernelNetwork::Interface* interface) {
  NetworkPort::tell(carries, interface);
  if (interface != nullptr) mtu_bytes_ = interface->mtu_bytes;
}

// The kernel takes the registers of an adapter that is removed out of this process, where the next
// access by the driver then is SIGBUS: it finds memory there instead.
void EthernetPort::guard_registers() {
  if (!adapter_) return;
  const uint64_t page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const std::span<std::byte> mapped : adapter_->mapped_registers())
    if (add_sigbus_range(mapped.data(), mapped.size(), page_bytes, &registers_gone_))
      registers_.push_back(mapped.data());
}

void EthernetPort::forget_registers() {
  for (std::byte* const mapped : registers_) remove_sigbus_range(mapped);
  registers_.clear();
}

std::optional<NetworkPort::DriverState> EthernetPort::ask_driver() {
  if (interface_) return std::nullopt;
  DriverState state{.is_adapter = adapter_.has_value()};
  state.is_there = !adapter_ || (adapter_->is_there() && !registers_gone_.load());
  state.link_up = state.is_there && read_link();
  if (state.is_there) {
    read_speed();
    read_statistics();
  }
  return state;
}

void EthernetPort::leave_driver(LcoreLoop& lcore) {
  lcore.run_on([&] { attached_ = false; });
}

// Read where the link is, and kept for other threads: drivers ask an adapter by several registers,
// and two threads that do so at a time may both read that there is no link.
void EthernetPort::read_speed() {
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(port_id_, &link) != 0) return;
  speed_mbps_.store(link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed,
                    std::memory_order_relaxed);
}

void EthernetPort::read_statistics() {
  rte_eth_stats counted{};
  if (rte_eth_stats_get(port_id_, &counted) != 0) return;
  missed_.store(counted.imissed, std::memory_order_relaxed);
  without_buffer_.store(counted.rx_nombuf, std::memory_order_relaxed);
  bad_frames_.store(counted.ierrors, std::memory_order_relaxed);
  not_sent_.store(counted.oerrors, std::memory_order_relaxed);
}

// Gives up the buffers that a closed XDP socket had in its rings, which don't come back: with the
// whole pool, unless the NIC has some of it, too.
void EthernetPort::retire_buffers(bool in_use) {
  if (!is_af_xdp(devargs_)) return;
  if (in_use) {
    old_pools_.push_back(rx_pool_);
  } else {
    rte_mempool_free(rx_pool_);
  }
  rx_pool_ = nullptr;
}

Expected<void, std::string> EthernetPort::come_back(LcoreLoop& lcore, Nic& nic) {
  bool in_use = false;
  lcore.run_on([&] {
    attached_ = false;
    in_use = nic.holds_arrivals();
    for (const UniqueFd& socket : sockets_) lcore.unwatch_arrivals(socket.get());
  });
  close_device();
  retire_buffers(in_use);
  if (auto opened = open_device(); !opened) {
    close_device();
    retire_buffers(false);
    return opened;
  }
  lcore.run_on([&] {
    for (const UniqueFd& socket : sockets_) lcore.watch_arrivals(socket.get());
    attached_ = true;
  });
  return {};
}

// Why DPDK has not opened a port, of which it says an errno value: EFAULT where it has no driver of
// that name.
std::string EthernetPort::what_is_amiss(int error) const {
  if (adapter_)
    if (std::string amiss = adapter_->what_is_amiss(); !amiss.empty()) return amiss;
  if (error != EFAULT) return rte_strerror(error);
  const bool is_interface = if_nametoindex(devargs_.c_str()) != 0;
  return fmt::format("ports are wire, udp, net_af_packet0,iface={} or the address of a PCI device",
                     is_interface ? devargs_ : "NAME");
}

// EAL has probed adapters when it started.
Expected<void, std::string> EthernetPort::probe() {
  if (adapter_ && rte_eth_dev_get_port_by_name(device_.c_str(), &port_id_) == 0) return {};
  if (const int error = rte_dev_probe(with_defaults(devargs_).c_str()))
    return Unexpected(
        fmt::format("{}: DPDK can't open port {}: {}", name_, devargs_, what_is_amiss(-error)));
  if (rte_eth_dev_get_port_by_name(device_.c_str(), &port_id_) != 0) {
    port_id_ = UINT16_MAX;
    return Unexpected(fmt::format("{}: {} is no Ethernet port that DPDK drives", name_, devargs_));
  }
  return {};
}

// The MTU that the driver is to be set to; 0: it is left alone. af_packet believes in 1518 bytes
// whatever the interface says. An adapter has Ethernet's usual MTU unless a larger one is asked
// for: switches on its way need not take more.
Expected<uint32_t, std::string> EthernetPort::choose_port_mtu(uint32_t largest_bytes) const {
  uint16_t now_bytes = 0;
  if (interface_ || wanted_ib_mtu_bytes_ == 0 || rte_eth_dev_get_mtu(port_id_, &now_bytes) != 0)
    return 0;
  const uint32_t needed_bytes = wanted_ib_mtu_bytes_ + kPacketOverheadBytes;
  if (needed_bytes <= now_bytes) return 0;
  if (needed_bytes > largest_bytes)
    return Unexpected(fmt::format(
        "{}: mtu {} needs a port MTU of {} bytes, and the driver of {} has at most {}: use mtu {}",
        name_, wanted_ib_mtu_bytes_, needed_bytes, devargs_, largest_bytes,
        largest_ib_mtu(largest_bytes)));
  return needed_bytes;
}

// Returns 0 or a negative errno value. Drivers learn of the MTU when they are configured; some want
// to be told by itself, others know no such call.
int EthernetPort::start_queues(uint32_t mtu_bytes) {
  rte_eth_conf conf{};
  conf.rxmode.mtu = mtu_bytes;
  uint16_t rx_descriptors = kRxDescriptors, tx_descriptors = kTxDescriptors;
  int error = rte_eth_dev_configure(port_id_, 1, 1, &conf);
  if (error == 0)
    error = rte_eth_dev_adjust_nb_rx_tx_desc(port_id_, &rx_descriptors, &tx_descriptors);
  if (error == 0 && mtu_bytes != 0) {
    error = rte_eth_dev_set_mtu(port_id_, static_cast<uint16_t>(mtu_bytes));
    if (error == -ENOTSUP) error = 0;
  }
  if (error == 0)
    error = rte_eth_rx_queue_setup(port_id_, 0, rx_descriptors, SOCKET_ID_ANY, nullptr, rx_pool_);
  if (error == 0)
    error = rte_eth_tx_queue_setup(port_id_, 0, tx_descriptors, SOCKET_ID_ANY, nullptr);
  return error == 0 ? rte_eth_dev_start(port_id_) : error;
}

Expected<void, std::string> EthernetPort::configure() {
  rte_eth_dev_info info{};
  if (const int error = rte_eth_dev_info_get(port_id_, &info))
    return Unexpected(fmt::format("{}: port {}: {}", name_, devargs_, rte_strerror(-error)));
  auto mtu_bytes =
      choose_port_mtu(std::min<uint32_t>(info.max_mtu, info.max_rx_pktlen - kFrameBytesBesideMtu));
  if (!mtu_bytes) return Unexpected(mtu_bytes.error());
  if (rx_pool_ == nullptr)
    rx_pool_ = rte_pktmbuf_pool_create(
        fmt::format("{}_rx{}", name_, pools_made_++).c_str(), kRxBuffers, 256, 0,
        buffer_room_bytes(devargs_) + RTE_PKTMBUF_HEADROOM, rte_eth_dev_socket_id(port_id_));
  if (rx_pool_ == nullptr)
    return Unexpected(fmt::format("{}: no memory for receive buffers: {} (more by EAL's -m)", name_,
                                  rte_strerror(rte_errno)));
  if (const int error = start_queues(*mtu_bytes); error != 0)
    return Unexpected(
        fmt::format("{}: port {} doesn't start: {}", name_, devargs_, rte_strerror(-error)));
  if (interface_) {
    auto mtu = interface_mtu(*interface_);
    if (!mtu) return Unexpected(fmt::format("{}: {}", name_, mtu.error()));
    mtu_bytes_ = *mtu;
  } else {
    uint16_t mtu = 0;
    rte_eth_dev_get_mtu(port_id_, &mtu);
    mtu_bytes_ = mtu;
  }
  return {};
}

// Finds the driver's sockets, at which the kernel's interfaces announce packets: the driver keeps
// them to itself, so they are those that this process has now and had not before.
void EthernetPort::find_sockets(const std::vector<int>& sockets_before) {
  if (!interface_) return;
  for (const int fd : packet_sockets())
    if (std::find(sockets_before.begin(), sockets_before.end(), fd) == sockets_before.end())
      sockets_.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

bool EthernetPort::announces_packets() const { return is_af_packet(devargs_) && !sockets_.empty(); }

// Has the interface take multicast, which DPDK's drivers for interfaces can't ask for. Without it
// everything else works.
void EthernetPort::take_groups() {
  int error = 0;
  if (interface_) {
    group_membership_ = take_groups_from(*interface_);
    error = group_membership_ ? 0 : errno;
  } else {
    error = -rte_eth_allmulticast_enable(port_id_);
  }
  if (error != 0)
    log_problem("{}: multicast may not arrive: port {} can't be told to take it: {}", name_,
                devargs_, strerror(error));
}

// Keeps the kernel from answering packets: net_af_packet leaves it a copy of each; net_af_xdp
// doesn't.
void EthernetPort::silence_kernel() {
  if (!interface_ || is_af_xdp(devargs_)) return;
  kernel_silence_ = end_roce_before_ip(*interface_, ip_);
  if (!kernel_silence_) kernel_silence_ = silence_roce_of(*interface_);
  if (!kernel_silence_)
    log_problem("{}: the kernel may answer RoCE packets on {} with ICMP port unreachable: {}",
                name_, *interface_, strerror(errno));
}

EthernetPort::~EthernetPort() {
  close_device();
  rte_mempool_free(rx_pool_);
  for (rte_mempool* pool : old_pools_) rte_mempool_free(pool);
}

bool EthernetPort::read_link() const {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(port_id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

uint32_t EthernetPort::speed_mbps() const { return speed_mbps_.load(std::memory_order_relaxed); }

// Frees what a driver handed over in pieces, which is longer than our buffers and so than any
// packet of ours, and moves the others together. Returns how many these are.
uint16_t EthernetPort::keep_whole(rte_mbuf** packets, uint16_t count) {
  uint16_t kept = 0;
  for (uint16_t i = 0; i < count; ++i) {
    if (packets[i]->nb_segs == 1) {
      packets[kept++] = packets[i];
    } else {
      rte_pktmbuf_free(packets[i]);
    }
  }
  in_pieces_.store(in_pieces_.load(std::memory_order_relaxed) + (count - kept),
                   std::memory_order_relaxed);
  return kept;
}

uint16_t EthernetPort::receive(uint16_t queue, rte_mbuf** packets, uint16_t max) {
  if (unlikely(!attached_)) return 0;
  uint16_t received = rte_eth_rx_burst(port_id_, queue, packets, max);
  full_bursts_ = received == max ? full_bursts_ + 1 : 0;
  bool whole = true;
  for (uint16_t i = 0; i < received; ++i) {
    packets[i]->ol_flags |= icrc_flag();
    whole &= packets[i]->nb_segs == 1;
  }
  if (unlikely(!whole)) received = keep_whole(packets, received);
  return received;
}

// Without a link packets are lost, as an adapter loses them. The driver would keep them, and its
// ring be full of what is old when the link comes back.
uint16_t EthernetPort::drop(rte_mbuf** packets, uint16_t count) {
  dropped_.store(dropped_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  rte_pktmbuf_free_bulk(packets, count);
  return count;
}

uint16_t EthernetPort::transmit(uint16_t /*peer*/, rte_mbuf** packets, uint16_t count) {
  if (unlikely(told_down() || !attached_)) return drop(packets, count);
  return rte_eth_tx_burst(port_id_, 0, packets, count);
}

PortView EthernetPort::view() const {
  return {.kind = PortKind::kEthernet,
          .device = devargs_,
          .mtu_bytes = mtu_bytes_.load(),
          .link_up = link_up(),
          .lost_without_link = dropped_.load(std::memory_order_relaxed),
          .missed = missed_.load(std::memory_order_relaxed),
          .without_buffer = without_buffer_.load(std::memory_order_relaxed),
          .bad_frames = bad_frames_.load(std::memory_order_relaxed) +
                        in_pieces_.load(std::memory_order_relaxed),
          .not_sent = not_sent_.load(std::memory_order_relaxed)};
}

}  // namespace hostnic
