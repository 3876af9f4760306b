// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/service_manager.h"

#include <gtest/gtest.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

class ServiceManager : public testing::Test {
 protected:
  ~ServiceManager() override {
    unsetenv("NOTIFY_SOCKET");
    unlink(path_.c_str());
  }
  // Listens on the name, as systemd does, and announces it.
  void listen_on(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, name.size());
    if (name[0] == '@') address.sun_path[0] = 0;
    socket_ = UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  std::string heard() {
    char text[64];
    const ssize_t bytes = recv(socket_.get(), text, sizeof(text), 0);
    return bytes < 0 ? "" : std::string(text, static_cast<size_t>(bytes));
  }
  std::string path_ = testing::TempDir() + "hostnic-notify-" + std::to_string(getpid());
  UniqueFd socket_;
};

TEST_F(ServiceManager, HearsThatHostnicdIsReady) {
  listen_on(path_);
  EXPECT_TRUE(tell_service_manager_ready());
  EXPECT_EQ(heard(), "READY=1");
}

TEST_F(ServiceManager, HearsItByAnAbstractName) {
  listen_on("@hostnic-notify-" + std::to_string(getpid()));
  EXPECT_TRUE(tell_service_manager_ready());
  EXPECT_EQ(heard(), "READY=1");
}

TEST_F(ServiceManager, WhereThereIsNoneNobodyIsTold) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(tell_service_manager_ready());
  setenv("NOTIFY_SOCKET", "", 1);
  EXPECT_FALSE(tell_service_manager_ready());
  setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  EXPECT_FALSE(tell_service_manager_ready());
  setenv("NOTIFY_SOCKET", std::string(200, 'x').c_str(), 1);
  EXPECT_FALSE(tell_service_manager_ready());
}

}  // namespace
}  // namespace hostnic
