// SPDX-License-Identifier: BSD-3-Clause
// Large memory stays in the mirror when it is deregistered, and is the program's like any other:
// it can be freed, moved, discarded and forked, and another hostnicd may come.
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <chrono>
#include <thread>

#include "tests/unit/memory/testing.h"

namespace hostnic::memory_testing {
namespace {

bool is_filled(const Buffer& buffer, unsigned seed) {
  for (size_t i = 0; i < buffer.size(); i += 997)
    if (buffer.data()[i] != Buffer::pattern(seed, i)) return false;
  return true;
}

// Runs `body(nic, registrar, buffer)` in a process of its own, with a buffer of `length` that was
// registered and deregistered.
template <class Body>
void with_deregistered(size_t length, Body body) {
  in_child([&] {
    auto mirror = create_mirror();
    ASSERT_TRUE(mirror.has_value()) << mirror.error();
    auto& registrar = memory::MemoryRegistrar::process();
    ASSERT_TRUE(registrar.init(*mirror).has_value());
    close(*mirror);
    if (!registrar.status().starts_with("private memory migrates")) return;
    Nic nic(registrar.mirror_fd());
    Buffer buffer(length), fragment(kPage);
    buffer.fill(1);
    Nic::Mr mr, by_mem_fd;
    ASSERT_TRUE(nic.add(fragment.va() + 8, 64, by_mem_fd)) << nic.error;  // so that the watch runs
    ASSERT_TRUE(nic.add(buffer.va(), length, mr)) << nic.error;
    ASSERT_EQ(length, registrar.counters().in_mirror_bytes) << registrar.status();
    nic.remove(mr);
    nic.remove(by_mem_fd);
    body(nic, registrar, buffer);
  });
}

TEST(MemoryParked, LargeMemoryStays) {
  with_deregistered(kLarge, [](Nic& nic, memory::MemoryRegistrar& registrar, const Buffer& buffer) {
    EXPECT_EQ(kLarge, registrar.counters().parked_bytes);
    EXPECT_TRUE(is_filled(buffer, 1));
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr)) << nic.error;
    EXPECT_EQ(0u, registrar.counters().parked_bytes);
    EXPECT_EQ(1u, registrar.counters().migrations) << "it was there already";
    EXPECT_EQ(Buffer::pattern(1, kMiB + 5), nic.read(mr, kMiB + 5, 1)[0]);
    nic.remove(mr);
    // A small registration's end brings home what is small.
    Buffer small(kMiB);
    ASSERT_TRUE(nic.add(small.va(), kMiB, mr)) << nic.error;
    nic.remove(mr);
    EXPECT_EQ(kLarge, registrar.counters().in_mirror_bytes);
  });
}

// The C library's heaps of threads are smaller.
TEST(MemoryParked, WhatMayBeOfAHeapComesHome) {
  with_deregistered(kLarge - kPage,
                    [](Nic&, memory::MemoryRegistrar& registrar, const Buffer& buffer) {
                      EXPECT_EQ(0u, registrar.counters().in_mirror_bytes);
                      EXPECT_EQ(0u, mirror_file_bytes(registrar.mirror_fd()));
                      EXPECT_TRUE(is_filled(buffer, 1));
                    });
}

TEST(MemoryParked, AtOnceIfWanted) {
  setenv("HOSTNIC_MIGRATE", "at-once", 1);
  with_deregistered(kLarge, [](Nic&, memory::MemoryRegistrar& registrar, const Buffer& buffer) {
    EXPECT_EQ(0u, registrar.counters().in_mirror_bytes);
    EXPECT_TRUE(is_filled(buffer, 1));
  });
  setenv("HOSTNIC_MIGRATE", "now", 1);
}

// As free() does it, past the interposers.
TEST(MemoryParked, FreedMemoryFreesTheMirrors) {
  with_deregistered(kLarge, [](Nic&, memory::MemoryRegistrar& registrar, const Buffer& buffer) {
    ASSERT_EQ(kLarge, mirror_file_bytes(registrar.mirror_fd()));
    ASSERT_EQ(0, syscall(SYS_munmap, buffer.data(), kLarge / 2));
    EXPECT_TRUE(comes_true([&] { return registrar.counters().in_mirror_bytes == kLarge / 2; }));
    EXPECT_TRUE(comes_true([&] { return mirror_file_bytes(registrar.mirror_fd()) == kLarge / 2; }));
    EXPECT_EQ(Buffer::pattern(1, kLarge - 1), buffer.data()[kLarge - 1]);
  });
}

TEST(MemoryParked, MovesAndIsDiscarded) {
  with_deregistered(kLarge, [](Nic&, memory::MemoryRegistrar& registrar, const Buffer& buffer) {
    ASSERT_EQ(0, madvise(buffer.data(), kMiB, MADV_DONTNEED));
    EXPECT_EQ(std::byte{0}, buffer.data()[5]);
    EXPECT_EQ(Buffer::pattern(1, kMiB), buffer.data()[kMiB]);
    auto* moved =
        static_cast<std::byte*>(mremap(buffer.data(), kLarge, 2 * kLarge, MREMAP_MAYMOVE));
    ASSERT_NE(MAP_FAILED, static_cast<void*>(moved)) << std::strerror(errno);
    EXPECT_EQ(0u, registrar.counters().in_mirror_bytes);
    EXPECT_EQ(std::byte{0}, moved[5]);
    for (size_t i = kMiB; i < kLarge; i += 997) ASSERT_EQ(Buffer::pattern(1, i), moved[i]);
    for (size_t i = kLarge; i < 2 * kLarge; i += 997) ASSERT_EQ(std::byte{0}, moved[i]);
    munmap(moved, 2 * kLarge);
  });
}

// A fork brings it home: children share it with their parent, as any memory, until somebody writes.
TEST(MemoryParked, ComesHomeBeforeAFork) {
  with_deregistered(kLarge, [](Nic&, memory::MemoryRegistrar& registrar, const Buffer& buffer) {
    in_child([&] {
      EXPECT_TRUE(is_filled(buffer, 1));
      std::memset(buffer.data(), 7, kMiB);
    });
    EXPECT_EQ(0u, registrar.counters().in_mirror_bytes);
    EXPECT_EQ(0u, mirror_file_bytes(registrar.mirror_fd()));
    EXPECT_TRUE(is_filled(buffer, 1));
  });
}

TEST(MemoryParked, ComesHomeForAnotherHostnicd) {
  with_deregistered(kLarge, [](Nic&, memory::MemoryRegistrar& registrar, const Buffer& buffer) {
    auto second = create_mirror();
    ASSERT_TRUE(second.has_value()) << second.error();
    auto ready = registrar.init(*second);
    ASSERT_TRUE(ready.has_value()) << ready.error().message;
    close(*second);
    EXPECT_EQ(0u, registrar.counters().in_mirror_bytes);
    EXPECT_TRUE(is_filled(buffer, 1));
    Nic nic(registrar.mirror_fd());
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr)) << nic.error;
    EXPECT_EQ(Buffer::pattern(1, 3 * kMiB), nic.read(mr, 3 * kMiB, 1)[0]);
    nic.remove(mr);
  });
}

// A thread can't bring home what it stands on.
TEST(MemoryParked, AThreadsOwnStackStays) {
  setenv("HOSTNIC_MIGRATE", "at-once", 1);
  with_deregistered(kLarge, [](Nic& nic, memory::MemoryRegistrar& registrar, const Buffer& buffer) {
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kLarge, mr)) << nic.error;
    struct Standing {
      Nic& nic;
      Nic::Mr& mr;
    } standing{nic, mr};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    ASSERT_EQ(0, pthread_attr_setstack(&attributes, buffer.data() + 8 * kMiB, 8 * kMiB));
    pthread_t thread{};
    const auto run = [](void* argument) -> void* {
      auto& own = *static_cast<Standing*>(argument);
      own.nic.remove(own.mr);
      return nullptr;
    };
    ASSERT_EQ(0, pthread_create(&thread, &attributes, run, &standing));
    pthread_join(thread, nullptr);
    EXPECT_EQ(kLarge, registrar.counters().parked_bytes);
    EXPECT_EQ(Buffer::pattern(1, kMiB), buffer.data()[kMiB]);
    EXPECT_EQ(Buffer::pattern(1, kLarge - 1), buffer.data()[kLarge - 1]);
  });
  setenv("HOSTNIC_MIGRATE", "now", 1);
}

}  // namespace
}  // namespace hostnic::memory_testing
