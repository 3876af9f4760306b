// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/collectives/mesh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/verbs_pair.h"

namespace hostnic::collectives {
namespace {

Device open_device(const std::string& name) {
  Device device{};
  device.context = verbs::open_device(name);
  if (device.context == nullptr) die_of_errno(fmt::format("RDMA device '{}'", name).c_str());
  ibv_port_attr port{};
  must(ibv_query_port(device.context, 1, &port), "ibv_query_port");
  device.mtu = port.active_mtu;
  must(ibv_query_gid(device.context, 1, 0, &device.gid), "ibv_query_gid");
  device.pd = must(ibv_alloc_pd(device.context), "ibv_alloc_pd");
  device.channel = must(ibv_create_comp_channel(device.context), "ibv_create_comp_channel");
  const int flags = fcntl(device.channel->fd, F_GETFL);
  must(fcntl(device.channel->fd, F_SETFL, flags | O_NONBLOCK), "fcntl");
  return device;
}

}  // namespace

Mesh::Mesh(Place& place) : place_(place), peers_(place.options.ranks) {
  const Options& options = place.options;
  place.doing(Doing::kOpen);
  device_ = open_device(options.devices[place.rank % options.devices.size()]);
  place.doing(Doing::kConnect);
  for (unsigned r = 0; r < options.ranks; ++r) {
    if (r == place.rank) continue;
    peers_[r] = std::make_unique<Peer>(place, device_, r);
    place.shared.addresses[place.rank][r] = peers_[r]->address();
  }
  place.meet();
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) die_of_errno("eventfd");
  thread_ = std::thread([this] { take_completions(); });
  for (unsigned r = 0; r < options.ranks; ++r)
    if (peers_[r]) peers_[r]->connect(place.shared.addresses[r][place.rank]);
  // What a peer sends before this end is connected is lost, and on RC repeated, but slowly.
  place.meet();
}

// All ranks have what they wait for, and everything that this one has sent is done.
Mesh::~Mesh() {
  wait_sent();
  place_.meet();
  place_.doing(Doing::kClose);
  must(eventfd_write(stop_, 1), "eventfd_write");
  thread_.join();
  close(stop_);
  peers_.clear();
  must(ibv_destroy_comp_channel(device_.channel), "ibv_destroy_comp_channel");
  must(ibv_dealloc_pd(device_.pd), "ibv_dealloc_pd");
  must(ibv_close_device(device_.context), "ibv_close_device");
}

void Mesh::wait_sent() {
  for (const auto& peer : peers_)
    if (peer) peer->wait_sent();
}

// Sleeps until there is an event: one that is lost shows as a hang.
void Mesh::take_completions() {
  pollfd fds[2] = {{device_.channel->fd, POLLIN, 0}, {stop_, POLLIN, 0}};
  while ((fds[1].revents & POLLIN) == 0) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) die_of_errno("poll");
    ibv_cq* cq = nullptr;
    void* peer = nullptr;
    while (ibv_get_cq_event(device_.channel, &cq, &peer) == 0) static_cast<Peer*>(peer)->on_event();
    if (errno != EAGAIN) die_of_errno("ibv_get_cq_event");
  }
}

}  // namespace hostnic::collectives
