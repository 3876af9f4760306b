// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/explain.h"

#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/observe/view_json.h"

namespace hostnic {
namespace {

constexpr size_t kMostOfAProgram = 64;

std::optional<uint32_t> number_in(std::string_view text) {
  const bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The queue pairs of a NIC that a program has, and that went with it.
std::string of_program(Daemon& daemon, const Asker& asker, NicInstance& instance, uint32_t pid,
                       bool& more) {
  std::vector<QpView> live;
  std::vector<DeadQpView> dead;
  instance.lcore->run_on([&] {
    live = instance.nic->views().qps_of(pid, kMostOfAProgram);
    dead = instance.nic->views().dead_qps();
  });
  std::string text;
  for (const QpView& qp : live) {
    if (!asker.sees(qp.uid)) continue;
    bool is_asking = false;
    text += describe(daemon, instance, qp, is_asking);
    more |= is_asking;
  }
  for (const DeadQpView& one : dead)
    if (one.last.pid == pid && asker.sees(one.last.uid)) text += describe(instance, one);
  return text;
}

std::string of_number(Daemon& daemon, const Asker& asker, NicInstance& instance, uint32_t qpn,
                      bool& more) {
  std::optional<QpView> live;
  std::optional<DeadQpView> dead;
  instance.lcore->run_on([&] {
    live = instance.nic->views().qp(qpn);
    dead = instance.nic->views().dead_qp(qpn);
  });
  if (live && asker.sees(live->uid)) return describe(daemon, instance, *live, more);
  if (dead && asker.sees(dead->last.uid)) return describe(instance, *dead);
  return {};
}

// The queue pair that went last, of all NICs: their lcores have one clock.
std::string of_last(Daemon& daemon, const Asker& asker) {
  NicInstance* where = nullptr;
  DeadQpView last;
  for (NicInstance& instance : daemon.nics()) {
    std::vector<DeadQpView> dead;
    instance.lcore->run_on([&] { dead = instance.nic->views().dead_qps(); });
    for (const DeadQpView& one : dead) {
      if (!asker.sees(one.last.uid) || (where != nullptr && one.at_ns < last.at_ns)) continue;
      where = &instance;
      last = one;
    }
  }
  return where == nullptr ? "no queue pair has gone yet\n" : describe(*where, last);
}

CommandResult run_explain(Daemon& daemon, const Asker& asker,
                          std::span<const std::string_view> args) {
  if (args.size() != 1) return usage_error(kExplain);
  if (args[0] == "last") return {0, of_last(daemon, asker)};
  const auto number = number_in(args[0]);
  if (!number) return usage_error(kExplain);
  std::string text;
  bool more = false;
  for (NicInstance& instance : daemon.nics())
    text += of_number(daemon, asker, instance, *number, more);
  if (!text.empty()) return {0, text, more};
  for (NicInstance& instance : daemon.nics())
    text += of_program(daemon, asker, instance, *number, more);
  if (!text.empty()) return {0, text, more};
  return {ENOENT,
          fmt::format("no queue pair, and no program with one, has the number {}", args[0])};
}

CommandResult show_dead(Daemon& daemon, const Asker& asker,
                        std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowDead);
  std::string text;
  for (NicInstance& instance : daemon.nics()) {
    std::vector<DeadQpView> dead;
    instance.lcore->run_on([&] { dead = instance.nic->views().dead_qps(); });
    for (const DeadQpView& one : dead)
      if (asker.sees(one.last.uid)) text += describe(instance, one);
  }
  return {0, text.empty() ? "no queue pair has gone yet\n" : text};
}

CommandResult show_dead_json(Daemon& daemon, const Asker& asker,
                             std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowDead);
  JsonWriter json;
  json.begin_array();
  for (NicInstance& instance : daemon.nics()) {
    std::vector<DeadQpView> dead;
    TimeNs now_ns = 0;
    instance.lcore->run_on([&] {
      dead = instance.nic->views().dead_qps();
      now_ns = instance.nic->now_ns();
    });
    for (const DeadQpView& one : dead) {
      if (!asker.sees(one.last.uid)) continue;
      json.begin_object();
      write_members(json, instance.plan.settings.name, one.last, peer_address(daemon, one.last));
      json.member("gone_ns", now_ns - std::min(one.at_ns, now_ns))
          .member("with_its_program", one.with_its_program)
          .end_object()
          .line();
    }
  }
  return {0, json.end_array().line().take()};
}

}  // namespace

const PromptCommand kExplain = {command_info("explain"), run_explain};
const PromptCommand kShowDead = {command_info("show dead"), show_dead, show_dead_json};

}  // namespace hostnic
