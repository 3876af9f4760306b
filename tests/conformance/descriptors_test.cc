// SPDX-License-Identifier: BSD-3-Clause
// A program that closes all descriptors but the standard ones, as daemons do, and opens files of
// its own, which get numbers that were others' before: devices work, and the files stay what they
// are. Each in a child, whose devices are its own, so that the descriptors of the tests stay.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr int kFiles = 600;  // more than there are numbers below those of the library

void close_each() {
  for (int fd = 3; fd < 1024; ++fd) close(fd);
}
void close_range_of_all() { close_range(3, ~0u, 0); }
void close_from() { closefrom(3); }

struct Way {
  const char* name;
  void (*close_all)();
};
constexpr Way kWays[] = {
    {"close", close_each}, {"close_range", close_range_of_all}, {"closefrom", close_from}};

// Files in all numbers that are free.
class Files {
 public:
  Files() {
    for (int i = 0; i < kFiles; ++i) {
      const int fd = memfd_create("program", MFD_CLOEXEC);
      if (fd >= 0) fds_.push_back(fd);
    }
  }
  // Whether nobody has closed them or written to them.
  bool untouched() const {
    for (const int fd : fds_) {
      struct stat status {};
      if (fstat(fd, &status) != 0 || status.st_size != 0 || lseek(fd, 0, SEEK_CUR) != 0)
        return false;
    }
    return fds_.size() > 100;
  }

 private:
  std::vector<int> fds_;
};

// A connection between both NICs, of memory of its own.
struct Connection {
  Host near_host{"hnic0"}, far_host{"hnic1"};
  std::unique_ptr<Endpoint> near, far;
  bool connect() {
    if (!near_host.valid() || !far_host.valid()) return false;
    near = std::make_unique<Endpoint>(near_host, ConnectOptions{});
    far = std::make_unique<Endpoint>(far_host, ConnectOptions{});
    connect_endpoints(*near, *far);
    return near->state() == IBV_QPS_RTS;
  }
  bool writes(std::byte value) {
    near_host.bytes()[0] = value;
    ibv_sge sge = near_host.sge(8);
    if (near->post(request(1, IBV_WR_RDMA_WRITE, &sge, far_host)) != 0) return false;
    return near->next().status == IBV_WC_SUCCESS && far_host.bytes()[0] == value;
  }
};

class Descriptors : public testing::TestWithParam<Way> {
 protected:
  static int in_child(const std::function<int()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      _exit(work());
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
};

TEST_P(Descriptors, ADeviceThatWasProbedOpensAgain) {
  const auto close_all = GetParam().close_all;
  EXPECT_EQ(in_child([close_all] {
              {
                Connection probe;
                if (!probe.connect() || !probe.writes(std::byte{1})) return 1;
              }
              close_all();
              const Files files;
              {
                Connection connection;
                if (!connection.connect()) return 2;
                if (!connection.writes(std::byte{2})) return 3;
              }
              return files.untouched() ? 0 : 4;
            }),
            0);
}

TEST_P(Descriptors, AnOpenDeviceGoesOn) {
  const auto close_all = GetParam().close_all;
  EXPECT_EQ(in_child([close_all] {
              auto connection = std::make_unique<Connection>();
              if (!connection->connect()) return 1;
              ibv_comp_channel* channel = ibv_create_comp_channel(connection->near_host.context);
              ibv_cq* armed = ibv_create_cq(connection->near_host.context, 16, nullptr, channel, 0);
              close_all();
              const Files files;
              if (!connection->writes(std::byte{2})) return 2;
              std::vector<std::byte> more(1 << 20);
              ibv_mr* mr = ibv_reg_mr(connection->near_host.pd, more.data(), more.size(),
                                      IBV_ACCESS_LOCAL_WRITE);
              if (mr == nullptr || ibv_dereg_mr(mr) != 0) return 3;
              // What the program was given is gone with its closing, and nobody else's now. An
              // event comes when the device is closed, at the latest.
              ibv_destroy_cq(armed);
              ibv_destroy_comp_channel(channel);
              connection.reset();
              return files.untouched() ? 0 : 4;
            }),
            0);
}

TEST_P(Descriptors, AChildMayCloseItsParents) {
  Connection connection;
  ASSERT_TRUE(connection.connect());
  const auto close_all = GetParam().close_all;
  EXPECT_EQ(in_child([close_all] {
              close_all();
              for (int fd = 3; fd < 1024; ++fd)
                if (fcntl(fd, F_GETFD) >= 0) return 1;
              const Files files;
              Connection own;
              if (!own.connect() || !own.writes(std::byte{2})) return 2;
              return files.untouched() ? 0 : 3;
            }),
            0);
  EXPECT_TRUE(connection.writes(std::byte{3})) << "the parent's";
}

INSTANTIATE_TEST_SUITE_P(Ways, Descriptors, testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hostnic::conformance
