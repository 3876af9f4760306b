// SPDX-License-Identifier: BSD-3-Clause
// Namespaces of a lab with hosts: what is made by whom needs no privilege, and nothing but a
// process or a descriptor keeps it.
#pragma once

#include <sys/types.h>

#include <string>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {

// Moves this process, which must have one thread, into network, mount and UTS namespaces of its
// own. A user who may not do that gets a user namespace first, in which he is who he is and may
// do anything that concerns these. Returns whether one was made; an error says what forbids it, and
// what to do.
Expected<bool, std::string> enter_lab_namespaces();

// The namespaces of one host: descriptors that keep them, and its root directory in its mounts.
struct HostNamespaces {
  UniqueFd network, mounts, names, root;
  ino_t network_id = 0;  // by which processes are known that are in it
};

// Moves this process from the lab's mount namespace into new ones of a host.
Expected<HostNamespaces, std::string> enter_new_host();
// Opens a namespace of this process: "net", "mnt", "uts", "user".
UniqueFd own_namespace(const char* kind);
// Opens the root directory of this process, which in a chroot is not that of its mount namespace.
UniqueFd own_root();
// Moves this process into a mount namespace, below that root directory in it: the kernel by itself
// moves it to the root of the namespace, and so out of a chroot. The working directory is the root.
bool enter_mounts(int mounts, int root);
// The number of the network namespace of a process; 0: it can't be seen.
ino_t network_id_of(pid_t pid);

// Has programs that this process executes keep the capabilities that a user namespace gives to who
// is in it. Without this they go with exec, since nobody is root there.
void keep_capabilities();

}  // namespace hostnic::cli
