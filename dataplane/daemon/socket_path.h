// Where hostnicd listens and where its clients look. Without DPDK: the `hostnic` program uses it.
#pragma once

#include <string>

namespace hostnic {

// $HOSTNIC_SOCKET, else $XDG_RUNTIME_DIR/hostnic/hostnicd.sock, else /run/hostnic/hostnicd.sock: as
// the verbs library does.
std::string default_socket_path();

}  // namespace hostnic
