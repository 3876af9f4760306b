// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/calls/originals.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hostnic::calls {
namespace {

struct Functions {
  int number = 0;
};

TEST(TraceOriginals, AnObjectIsThereOnce) {
  static Originals<Functions> originals;
  int object = 0;
  EXPECT_EQ(originals.find(&object), nullptr);
  EXPECT_TRUE(originals.add(&object, {1}));
  EXPECT_FALSE(originals.add(&object, {2}));
  EXPECT_EQ(originals.find(&object)->number, 1);
  Functions had;
  EXPECT_TRUE(originals.remove(&object, had));
  EXPECT_EQ(had.number, 1);
  EXPECT_FALSE(originals.remove(&object, had));
  EXPECT_TRUE(originals.add(&object, {3})) << "another one at the same address";
  EXPECT_EQ(originals.find(&object)->number, 3);
}

TEST(TraceOriginals, ManyThreadsComeAndGo) {
  static Originals<Functions> originals;
  static int objects[8][500];
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t] {
      for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 500; ++i) EXPECT_TRUE(originals.add(&objects[t][i], {t * 1000 + i}));
        for (int i = 0; i < 500; ++i)
          EXPECT_EQ(originals.find(&objects[t][i])->number, t * 1000 + i);
        Functions had;
        for (int i = 0; i < 500; ++i) EXPECT_TRUE(originals.remove(&objects[t][i], had));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hostnic::calls
