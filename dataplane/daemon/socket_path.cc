#include "dataplane/daemon/socket_path.h"

#include <cstdlib>

namespace hostnic {

std::string default_socket_path() {
  if (const char* path = getenv("HOSTNIC_SOCKET"); path != nullptr && *path != 0) return path;
  if (const char* dir = getenv("XDG_RUNTIME_DIR"); dir != nullptr && *dir != 0)
    return std::string(dir) + "/hostnic/hostnicd.sock";
  return "/run/hostnic/hostnicd.sock";
}

}  // namespace hostnic
