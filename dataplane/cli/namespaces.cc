// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace hostnic::cli {
namespace {

constexpr int kNamespaces = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS;

// The number in a file of /proc/sys; -1: there is none.
long setting(const std::string& name) {
  std::ifstream file("/proc/sys/" + name);
  long value = -1;
  return file >> value ? value : -1;
}

// What keeps an ordinary user from a user namespace, as far as it can be known, and the remedy.
std::string obstacle(int error) {
  if (setting("kernel/unprivileged_userns_clone") == 0)
    return "kernel.unprivileged_userns_clone is 0; as root: sysctl "
           "kernel.unprivileged_userns_clone=1";
  if (setting("kernel/apparmor_restrict_unprivileged_userns") == 1)
    return "AppArmor restricts them; as root: sysctl "
           "kernel.apparmor_restrict_unprivileged_userns=0";
  for (const char* kind : {"user", "net", "mnt", "uts"})
    if (setting(fmt::format("user/max_{}_namespaces", kind)) == 0)
      return fmt::format(
          "user.max_{0}_namespaces is 0; as root: sysctl "
          "user.max_{0}_namespaces=10000",
          kind);
  if (error == ENOSPC)
    return "so many as user.max_*_namespaces allow are there; as root: sysctl "
           "user.max_net_namespaces=10000, and so on";
  return "in a container, start it with --privileged, or with --security-opt seccomp=unconfined "
         "--security-opt apparmor=unconfined; in a chroot, or where these are not yours to choose, "
         "run hostnic as root";
}

Unexpected<std::string> forbidden(const char* what, int error) {
  return Unexpected(
      fmt::format("--hosts needs namespaces, and may make none here ({}: {}): {}. Labs without "
                  "--hosts need none",
                  what, strerror(error), obstacle(error)));
}

// What is mounted outside later is to be seen in here, and nothing the other way round.
bool follow_outer_mounts() {
  const auto follow = [] { return mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0; };
  if (follow()) return true;
  if (errno != EINVAL) return false;
  // In a chroot nothing need be mounted on "/": at the root of the namespace there is.
  const UniqueFd root = own_root(), mounts = own_namespace("mnt");
  if (!root || !mounts || setns(mounts.get(), CLONE_NEWNS) != 0) return false;
  const bool done = follow();
  const int error = errno;
  const bool back = fchdir(root.get()) == 0 && chroot(".") == 0;
  if (!done) errno = error;
  return done && back;
}

bool write_file(const char* path, const std::string& text) {
  const UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
  return fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Everybody is in the namespace who he is outside. Only this user and his group exist there.
Expected<void, std::string> enter_user_namespace() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWUSER) != 0) return forbidden("unshare", errno);
  if (!write_file("/proc/self/setgroups", "deny") && errno != ENOENT)
    return forbidden("setgroups", errno);
  if (!write_file("/proc/self/uid_map", fmt::format("{} {} 1", user, user)))
    return forbidden("uid_map", errno);
  if (!write_file("/proc/self/gid_map", fmt::format("{} {} 1", group, group)))
    return forbidden("gid_map", errno);
  return {};
}

}  // namespace

Expected<bool, std::string> enter_lab_namespaces() {
  if (!own_namespace("net"))
    return Unexpected(
        fmt::format("--hosts needs /proc, and there is none here ({}): mount -t proc proc /proc. "
                    "Labs without --hosts need none",
                    strerror(errno)));
  const bool privileged = geteuid() == 0 && unshare(kNamespaces) == 0;
  if (!privileged) {
    if (auto entered = enter_user_namespace(); !entered) return Unexpected(entered.error());
    if (unshare(kNamespaces) != 0) return forbidden("unshare", errno);
  }
  if (!follow_outer_mounts()) return forbidden("mount", errno);
  return !privileged;
}

Expected<HostNamespaces, std::string> enter_new_host() {
  if (unshare(kNamespaces) != 0) return forbidden("unshare", errno);
  HostNamespaces made{own_namespace("net"), own_namespace("mnt"), own_namespace("uts"), own_root(),
                      network_id_of(getpid())};
  if (!made.network || !made.mounts || !made.names || !made.root)
    return Unexpected(fmt::format("/proc/self/ns: {}", strerror(errno)));
  return made;
}

UniqueFd own_namespace(const char* kind) {
  return UniqueFd(open(fmt::format("/proc/self/ns/{}", kind).c_str(), O_RDONLY | O_CLOEXEC));
}

UniqueFd own_root() { return UniqueFd(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)); }

bool enter_mounts(int mounts, int root) {
  return setns(mounts, CLONE_NEWNS) == 0 && fchdir(root) == 0 && chroot(".") == 0;
}

ino_t network_id_of(pid_t pid) {
  struct stat status {};
  return stat(fmt::format("/proc/{}/ns/net", pid).c_str(), &status) == 0 ? status.st_ino : 0;
}

void keep_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (syscall(SYS_capget, &header, data) != 0) return;
  for (__user_cap_data_struct& part : data) part.inheritable = part.permitted;
  if (syscall(SYS_capset, &header, data) != 0) return;
  for (unsigned long capability = 0; capability <= 63; ++capability)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0);
}

}  // namespace hostnic::cli
