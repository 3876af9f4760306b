// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/adapter_watch.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "dataplane/daemon/log.h"

namespace hostnic {
namespace {

// How long a link may take to come up at the start: DPDK's own programs wait as long.
constexpr std::chrono::seconds kLinkPatience{9};
constexpr std::chrono::milliseconds kBetweenLooks{50};

}  // namespace

AdapterWatch::AdapterWatch(Daemon& daemon, std::function<void()> changed)
    : changed_(std::move(changed)) {
  for (NicInstance& nic : daemon.nics())
    if (nic.network != nullptr && nic.network->ask_driver())
      watched_.push_back({.nic = &nic, .port = nic.network.get()});
  await_links();
  look();
}

void AdapterWatch::await_links() {
  const auto comes_up = [](const Watched& watched) {
    const auto driver = watched.port->ask_driver();
    return driver && driver->is_adapter && driver->is_there && !driver->link_up;
  };
  const Clock::time_point give_up = Clock::now() + kLinkPatience;
  while (std::ranges::any_of(watched_, comes_up) && Clock::now() < give_up)
    std::this_thread::sleep_for(kBetweenLooks);
}

void AdapterWatch::look() {
  for (Watched& watched : watched_) look_at(watched);
  if (std::exchange(news_, false)) changed_();
}

void AdapterWatch::look_at(Watched& watched) {
  if (!watched.there) return;
  const auto driver = watched.port->ask_driver();
  if (!driver) return;
  if (!driver->is_there) return adapter_is_gone(watched);
  if (driver->link_up != watched.up) link_changed(watched, driver->link_up);
  watched.port->tell(watched.up, nullptr);
}

// What the driver left in memory stays as it is: the lcore does not ask it any more.
void AdapterWatch::adapter_is_gone(Watched& watched) {
  log_problem(
      "{}: the adapter of port {} is gone: nothing is sent or received until hostnicd is started "
      "anew with one there",
      watched.nic->plan.settings.name, watched.nic->plan.port);
  watched.there = false;
  watched.up = false;
  count(watched, Counter::interface_lost);
  watched.port->tell(false, nullptr);
  watched.port->leave_driver(*watched.nic->lcore);
  news_ = true;
}

void AdapterWatch::link_changed(Watched& watched, bool up) {
  const std::string& name = watched.nic->plan.settings.name;
  watched.up = up;
  news_ = true;
  if (!up) {
    log_problem("{}: port {} has no link", name, watched.nic->plan.port);
    count(watched, Counter::link_downed);
    watched.down_since = Clock::now();
    return;
  }
  const std::chrono::duration<double> down = Clock::now() - watched.down_since;
  log_line("{}: port {} has a link again, after {:.1f} s", name, watched.nic->plan.port,
           down.count());
}

void AdapterWatch::count(const Watched& watched, Counter counter) {
  watched.nic->lcore->run_on([&] { watched.nic->nic->count(counter); });
}

}  // namespace hostnic
