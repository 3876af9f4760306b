// SPDX-License-Identifier: BSD-3-Clause
// The rings between two processes: bounds, wrap, all-or-nothing, and a peer that lies about its
// position.
#include "protocol/hostif/ring.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "protocol/hostif/descriptors.h"

namespace hostnic {
namespace {

constexpr uint32_t kEntries = 64, kCapacity = kEntries - 1;

struct Element {
  uint64_t number;
  uint64_t check[7];
};
static_assert(sizeof(Element) == 64);

Element element(uint64_t number) {
  Element e{number, {}};
  for (uint64_t i = 0; i < 7; ++i) e.check[i] = number * 0x9e3779b97f4a7c15 + i;
  return e;
}

// Both ends of one ring over one memfd, as driver and NIC have them.
class Ring : public testing::Test {
 protected:
  Ring() {
    fd_ = memfd_create("ring-test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd_, kBytes), 0);
    for (std::byte*& side : sides_) {
      void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
      EXPECT_NE(at, MAP_FAILED);
      side = static_cast<std::byte*>(at);
    }
    EXPECT_EQ(producer_.init(sides_[0], kEntries, sizeof(Element), &indices_), 0);
    EXPECT_EQ(consumer_.init(sides_[1], kEntries, sizeof(Element), &indices_), 0);
  }
  ~Ring() override {
    for (std::byte* side : sides_) munmap(side, kBytes);
    close(fd_);
  }

  bool enqueue(uint32_t count) {
    std::vector<Element> elements;
    for (uint32_t i = 0; i < count; ++i) elements.push_back(element(produced_ + i));
    if (!producer_.enqueue_bulk(elements.data(), count)) return false;
    produced_ += count;
    return true;
  }
  // Dequeues, checks what came, returns how many.
  int dequeue(uint32_t max) {
    std::vector<Element> out(max + 1);
    std::memset(out.data(), 0xee, out.size() * sizeof(Element));
    const int count = consumer_.dequeue_burst(out.data(), max);
    for (int i = 0; i < count; ++i) {
      const Element expected = element(consumed_++);
      EXPECT_EQ(std::memcmp(&out[static_cast<size_t>(i)], &expected, sizeof(Element)), 0);
    }
    const size_t untouched = count < 0 ? 0 : static_cast<size_t>(count);
    EXPECT_EQ(out[untouched].number, 0xeeeeeeeeeeeeeeee) << "wrote more than it returned";
    return count;
  }

  static constexpr size_t kBytes = 2 * 4096;
  int fd_ = -1;
  std::byte* sides_[2] = {};  // the same memory, as each process maps it
  RingIndices indices_{};
  RingEnd producer_, consumer_;
  uint64_t produced_ = 0, consumed_ = 0;
};

TEST_F(Ring, EmptyAndFull) {
  EXPECT_TRUE(consumer_.empty());
  EXPECT_TRUE(producer_.drained());
  EXPECT_EQ(dequeue(8), 0);
  EXPECT_EQ(producer_.free_count(), kCapacity);
  for (uint32_t i = 0; i < kCapacity; ++i) ASSERT_TRUE(enqueue(1));
  EXPECT_EQ(producer_.free_count(), 0u);
  EXPECT_FALSE(enqueue(1));
  EXPECT_FALSE(consumer_.empty());
  EXPECT_FALSE(producer_.drained());
  EXPECT_EQ(dequeue(1), 1);
  EXPECT_EQ(producer_.free_count(), 1u);
  EXPECT_TRUE(enqueue(1));
  EXPECT_EQ(dequeue(kEntries), static_cast<int>(kCapacity));
  EXPECT_TRUE(consumer_.empty());
  EXPECT_TRUE(producer_.drained());
}

TEST_F(Ring, AskingAheadTakesNothing) {
  for (uint32_t i = 0; i < 2 * kEntries; ++i) {
    consumer_.prefetch(kEntries);
    ASSERT_TRUE(enqueue(3));
    consumer_.prefetch(2);
    consumer_.prefetch(kEntries);
    ASSERT_EQ(dequeue(kEntries), 3);
    ASSERT_TRUE(consumer_.empty());
  }
}

TEST_F(Ring, BulkIsAllOrNothing) {
  ASSERT_TRUE(enqueue(kCapacity - 4));
  EXPECT_FALSE(enqueue(5));
  EXPECT_EQ(producer_.free_count(), 4u) << "nothing of a refused bulk is in the ring";
  EXPECT_TRUE(enqueue(4));
  EXPECT_FALSE(enqueue(kEntries)) << "more than it ever holds";
  EXPECT_TRUE(enqueue(0));
  EXPECT_EQ(dequeue(kEntries), static_cast<int>(kCapacity));
}

TEST_F(Ring, WrapsAtEveryPosition) {
  for (uint32_t count = 1; count <= kCapacity; ++count) {
    for (uint32_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(enqueue(count));
      ASSERT_EQ(dequeue(kEntries), static_cast<int>(count));
    }
  }
}

TEST_F(Ring, RandomBulksAndBursts) {
  std::mt19937 random(11);
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t free = producer_.free_count();
    ASSERT_EQ(free, kCapacity - (produced_ - consumed_));
    const uint32_t count = random() % 24;
    ASSERT_EQ(enqueue(count), count <= free);
    const uint32_t max = random() % 24;
    const uint64_t queued = produced_ - consumed_;
    ASSERT_EQ(dequeue(max), static_cast<int>(std::min<uint64_t>(max, queued)));
  }
}

TEST_F(Ring, SmallElements) {
  static_assert(sizeof(MetaReport) == 16);
  RingIndices indices{};
  RingEnd in, out;
  ASSERT_EQ(in.init(sides_[0], 256, sizeof(MetaReport), &indices), 0);
  ASSERT_EQ(out.init(sides_[1], 256, sizeof(MetaReport), &indices), 0);
  for (uint32_t i = 0; i < 1000; ++i) {
    const MetaReport reports[3] = {{i, 1, {}}, {i, 2, {}}, {i, 3, {}}};
    ASSERT_TRUE(in.enqueue_bulk(reports, 3));
    MetaReport got[4];
    ASSERT_EQ(out.dequeue_burst(got, 4), 3);
    EXPECT_EQ(std::memcmp(got, reports, sizeof(reports)), 0);
  }
}

TEST_F(Ring, RefusesWhatIsNoRing) {
  RingEnd ring;
  EXPECT_EQ(ring.init(sides_[0] + 8, kEntries, 64, &indices_), EINVAL) << "not on a cache line";
  EXPECT_EQ(ring.init(sides_[0], 63, 64, &indices_), EINVAL) << "not a power of two";
  EXPECT_EQ(ring.init(sides_[0], 192, 64, &indices_), EINVAL) << "not a power of two";
  EXPECT_EQ(ring.init(sides_[0], 1, 4096, &indices_), EINVAL) << "no capacity";
}

// Several rings lie in one page, a huge one: neither writes what is not its own.
TEST_F(Ring, NothingAroundItChanges) {
  RingIndices indices{};
  RingEnd in, out;
  constexpr size_t kBegin = 640, kEnd = kBegin + 16 * sizeof(Element);
  std::memset(sides_[0], 0x77, kBytes);
  ASSERT_EQ(in.init(sides_[0] + kBegin, 16, sizeof(Element), &indices), 0);
  ASSERT_EQ(out.init(sides_[1] + kBegin, 16, sizeof(Element), &indices), 0);
  for (uint64_t i = 0; i < 100; ++i) {
    const Element sent[3] = {element(i), element(i + 1), element(i + 2)};
    ASSERT_TRUE(in.enqueue_bulk(sent, 3));
    ASSERT_TRUE(in.enqueue<Element>([&](Element& e) { e = element(i + 3); }));
    Element got[4];
    ASSERT_EQ(out.dequeue_burst(got, 4), 4);
    EXPECT_EQ(std::memcmp(got, sent, sizeof(sent)), 0);
    EXPECT_EQ(got[3].number, i + 3);
  }
  for (size_t at = 0; at < kBytes; ++at) {
    if (at >= kBegin && at < kEnd) continue;
    ASSERT_EQ(sides_[1][at], std::byte{0x77}) << "byte " << at;
  }
}

// ---- a hostile peer can only store positions

TEST_F(Ring, ImpossibleProducerPositionIsReported) {
  ASSERT_TRUE(enqueue(10));
  ASSERT_EQ(dequeue(4), 4);
  const uint32_t honest = indices_.producer;
  for (const uint32_t lie : {4u + kCapacity + 1, 4u + kEntries, 3u, 0u, 0x80000000u, ~0u}) {
    indices_.producer = lie;
    consumer_.prefetch(kEntries);
    EXPECT_EQ(dequeue(8), -1) << lie;
    EXPECT_EQ(indices_.consumer, 4u) << "nothing is consumed on a lie";
  }
  indices_.producer = honest;
  EXPECT_EQ(dequeue(8), 6) << "our own state is untouched";
}

TEST_F(Ring, ALieInsideTheRingCostsOnlyTheLiar) {
  ASSERT_TRUE(enqueue(2));
  indices_.producer = kCapacity;  // never written: garbage, but inside the ring
  std::vector<Element> out(kEntries);
  EXPECT_EQ(consumer_.dequeue_burst(out.data(), kEntries), static_cast<int>(kCapacity));
}

TEST_F(Ring, ScribbledConsumerPositionNeverOverwrites) {
  ASSERT_TRUE(enqueue(40));
  ASSERT_EQ(dequeue(10), 10);
  ASSERT_EQ(producer_.free_count(), kCapacity - 30);
  // Positions never produced, or behind what was consumed already: the ring looks full, or as it
  // was.
  for (const uint32_t lie : {41u, 100u, 9u, 0x80000000u, ~0u}) {
    indices_.consumer = lie;
    EXPECT_EQ(producer_.free_count(), kCapacity - 30) << lie;
    EXPECT_FALSE(enqueue(kCapacity - 29)) << lie;
  }
  EXPECT_TRUE(enqueue(kCapacity - 30));
  EXPECT_EQ(producer_.free_count(), 0u);
  EXPECT_EQ(dequeue(kEntries), static_cast<int>(kCapacity)) << "the consumer has its own position";
  EXPECT_EQ(producer_.free_count(), kCapacity) << "and tells it again";
}

TEST_F(Ring, TwoThreads) {
  constexpr uint64_t kTotal = 300'000;
  std::atomic<bool> stop{false};
  std::thread producer([this, &stop] {
    std::mt19937 random(1);
    while (produced_ < kTotal && !stop) {
      const auto count =
          static_cast<uint32_t>(std::min<uint64_t>(1 + random() % 16, kTotal - produced_));
      if (!enqueue(count)) std::this_thread::yield();
    }
  });
  std::mt19937 random(2);
  while (consumed_ < kTotal) {
    const int count = dequeue(1 + random() % 32);
    if (count < 0 || HasFailure()) break;
    if (count == 0) std::this_thread::yield();
  }
  EXPECT_EQ(consumed_, kTotal);
  stop = true;
  producer.join();
  EXPECT_TRUE(producer_.drained());
}

}  // namespace
}  // namespace hostnic
