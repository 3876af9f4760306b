// SPDX-License-Identifier: BSD-3-Clause
// Which way each kind of memory is reached, and that the bytes are right both ways.
#include <fcntl.h>
#include <sys/shm.h>

#include <cstdlib>
#include <thread>

#include "tests/unit/memory/testing.h"
#include "verbs-shim/memory/file_view.h"

namespace hostnic::memory_testing {
namespace {

using memory::Area;
using memory::parse_area;

TEST(MemoryAreas, ParsesLinesOfMaps) {
  const std::string line =
      "7f0000001000-7f0000003000 r-xs 00002000 fe:01 4711                       /tmp/a file";
  Area area;
  ASSERT_TRUE(parse_area(line.data(), line.size(), area));
  EXPECT_EQ(0x7f0000001000u, area.start);
  EXPECT_EQ(0x7f0000003000u, area.end);
  EXPECT_EQ(PROT_READ | PROT_EXEC, area.prot);
  EXPECT_TRUE(area.shared);
  EXPECT_EQ(0x2000u, area.offset);
  EXPECT_TRUE(area.same_file_as(0xfe, 1, 4711));
  EXPECT_STREQ("/tmp/a file", area.path);
  for (size_t length = 0; length < 40; length++)
    EXPECT_FALSE(parse_area(line.data(), length, area)) << length;
  const std::string other = "VmFlags: rd wr mr mw me ac sd";
  EXPECT_FALSE(parse_area(other.data(), other.size(), area));
}

TEST(MemoryAreas, BothWaysSeeTheSame) {
  Buffer buffer(16 * kPage);
  const int fd = memfd_create("a name", MFD_CLOEXEC);
  ASSERT_EQ(0, ftruncate(fd, kMiB));
  ASSERT_NE(MAP_FAILED, mmap(buffer.data() + kPage, kPage, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_FIXED, fd, 3 * kPage));
  ASSERT_NE(MAP_FAILED, mmap(buffer.data() + 3 * kPage, kPage, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  memory::RawVector<Area> queried, parsed;
  // Their own memory is mapped before there is a hole that it fits into.
  memory::query_areas(buffer.va() + 1, buffer.va() + 10 * kPage, queried);
  ASSERT_TRUE(memory::parse_areas(buffer.va() + 1, buffer.va() + 10 * kPage, parsed));
  ASSERT_EQ(0, munmap(buffer.data() + 8 * kPage, kPage));
  ASSERT_TRUE(memory::parse_areas(buffer.va() + 1, buffer.va() + 10 * kPage, parsed));
  ASSERT_EQ(6u, parsed.size());
  EXPECT_TRUE(parsed[4].above_guard);
  EXPECT_FALSE(parsed[5].above_guard);
  EXPECT_EQ(3 * kPage, parsed[1].offset);
  EXPECT_TRUE(parsed[1].shared);
  EXPECT_GE(memory::count_areas(), 6u);
  close(fd);
  if (!memory::query_areas(buffer.va() + 1, buffer.va() + 10 * kPage, queried))
    GTEST_SKIP() << "PROCMAP_QUERY needs Linux 6.11: " << std::strerror(errno);
  ASSERT_EQ(parsed.size(), queried.size());
  for (size_t i = 0; i < parsed.size(); i++)
    EXPECT_EQ(0, std::memcmp(&parsed[i], &queried[i], offsetof(Area, path))) << i;
  EXPECT_STREQ(parsed[1].path, queried[1].path);
  // Where nothing follows, and at the very beginning.
  EXPECT_TRUE(memory::query_areas(0, kPage, queried));
  EXPECT_TRUE(queried.empty());
}

// Since Linux 6.17 the kernel tells of mappings beside a change of theirs: where mremap replaces
// one, there is nothing for a moment.
TEST(MemoryAreas, WhatIsBeingReplacedIsNoGap) {
  constexpr size_t kBytes = 16 * kMiB, kPlace = 3 * kBytes;
  constexpr int kProt = PROT_READ | PROT_WRITE;
  Buffer place(kPlace);
  std::byte* const target = place.data() + kBytes;
  // A neighbour that is an area of its own: the kernel waits where the next one is in use.
  ASSERT_EQ(0, mprotect(target + kBytes, kPage, PROT_READ));
  memory::RawVector<Area> areas;
  memory::TextRoom room;
  areas.reserve(64);
  std::atomic<bool> stop{false};
  std::atomic<int> replaced{0};
  std::thread replaces([&] {
    for (; !stop; replaced++) {
      void* const other =
          mmap(nullptr, kBytes, kProt, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      if (mremap(other, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, target) != target) abort();
    }
  });
  const auto va = reinterpret_cast<uint64_t>(target);
  int gaps = 0, looks = 0;
  while (replaced < 200 && gaps < 3) {
    ASSERT_TRUE(memory::read_areas(va, va + kBytes, areas));
    uint64_t at = va;
    for (const Area& area : areas) at = area.start <= at ? area.end : at;
    Area next;
    gaps += at < va + kBytes || !memory::next_area(va, next, room) || next.start > va ? 1 : 0;
    ++looks;
  }
  stop = true;
  replaces.join();
  EXPECT_EQ(gaps, 0) << "of " << looks << " looks";
}

using MemoryPaths = MemoryTest;

TEST_F(MemoryPaths, PrivateMemoryMigrates) {
  if (!migrates()) GTEST_SKIP() << registrar().status();
  Buffer buffer(3 * kMiB);
  buffer.fill(1);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  EXPECT_TRUE(all_of_kind(mr, RegionKind::kMirror)) << how_it_is();
  EXPECT_EQ(Buffer::pattern(1, 777777), buffer.data()[777777]);
  expect_right_bytes(mr);
  const std::vector<std::byte> before(buffer.data(), buffer.data() + buffer.size());
  registrar().after_registration(buffer.va(), buffer.size());
  EXPECT_EQ(0, std::memcmp(before.data(), buffer.data(), before.size()));
  nic.remove(mr);
  EXPECT_EQ(0, std::memcmp(before.data(), buffer.data(), before.size()));
  EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
}

TEST_F(MemoryPaths, UntouchedMemoryReadsAsZero) {
  Buffer buffer(kMiB);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr)) << nic.error;
  EXPECT_EQ(std::vector<std::byte>(kMiB), nic.read(mr, 0, kMiB));
  nic.remove(mr);
  EXPECT_EQ(std::byte{0}, buffer.data()[kMiB - 1]);
}

TEST_F(MemoryPaths, HeadAndTailStayWithTheirNeighbours) {
  Buffer buffer(16 * kPage);
  buffer.fill(2);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + 100, 5 * kPage, mr)) << nic.error;
  EXPECT_EQ(RegionKind::kMemFd, mr.regions.front().kind);
  EXPECT_EQ(RegionKind::kMemFd, mr.regions.back().kind);
  if (migrates()) {
    ASSERT_EQ(3u, mr.regions.size());
    EXPECT_EQ(RegionKind::kMirror, mr.regions[1].kind);
    EXPECT_EQ(buffer.va() + kPage, mr.regions[1].va);
    EXPECT_EQ(4 * kPage, mr.regions[1].length_bytes);
  }
  expect_right_bytes(mr);
  EXPECT_EQ(Buffer::pattern(2, 99), buffer.data()[99]);
  EXPECT_EQ(Buffer::pattern(2, 100 + 5 * kPage), buffer.data()[100 + 5 * kPage]);
  nic.remove(mr);
}

TEST_F(MemoryPaths, ManySmallOnesOnOnePage) {
  std::vector<std::byte> heap(64 * 64);
  std::vector<Nic::Mr> mrs(64);
  for (size_t i = 0; i < mrs.size(); i++)
    ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(&heap[i * 64]), 64, mrs[i])) << nic.error;
  for (const auto& mr : mrs) expect_right_bytes(mr);
  for (const auto& mr : mrs) nic.remove(mr);
}

TEST_F(MemoryPaths, OverlappingAndAdjacentRegistrationsShare) {
  const size_t areas = area_count();
  {
    Buffer buffer(4 * kMiB);
    buffer.fill(3);
    Nic::Mr a, b, c, again;
    ASSERT_TRUE(nic.add(buffer.va(), 2 * kMiB, a)) << nic.error;
    ASSERT_TRUE(nic.add(buffer.va() + kMiB, 2 * kMiB, b)) << nic.error;
    ASSERT_TRUE(nic.add(buffer.va() + 3 * kMiB, kMiB, c)) << nic.error;
    ASSERT_TRUE(nic.add(buffer.va(), 2 * kMiB, again)) << nic.error;
    // The same byte has one identity, and one host address, in every registration.
    EXPECT_EQ(a.pieces.front().space_id, b.pieces.front().space_id);
    EXPECT_EQ(a.pieces.front().space_offset, again.pieces.front().space_offset);
    EXPECT_EQ(a.pieces.front().host, again.pieces.front().host);
    ASSERT_TRUE(nic.write(a, kMiB + 5, {std::byte{42}}));
    EXPECT_EQ(std::byte{42}, nic.read(b, 5, 1)[0]);
    nic.remove(a);
    expect_right_bytes(again);
    expect_right_bytes(b);
    nic.remove(again);
    expect_right_bytes(b);
    EXPECT_EQ(migrates() ? 3 * kMiB : 0, registrar().counters().in_mirror_bytes);
    nic.remove(b);
    expect_right_bytes(c);
    nic.remove(c);
    EXPECT_EQ(Buffer::pattern(3, 2500000), buffer.data()[2500000]);
    EXPECT_EQ(0u, registrar().counters().in_mirror_bytes);
    EXPECT_EQ(areas + 3, area_count()) << "areas do not merge again";
  }
  EXPECT_EQ(0u, nic.memory().mapping_count());
}

TEST_F(MemoryPaths, RefusesWhatIsNoMemory) {
  Buffer buffer(4 * kPage);
  Nic::Mr mr;
  EXPECT_FALSE(nic.add(buffer.va(), 0, mr));
  EXPECT_EQ(EINVAL, nic.error_number);
  EXPECT_FALSE(nic.add(buffer.va(), UINT64_MAX - 100, mr));
  EXPECT_EQ(EINVAL, nic.error_number);
  EXPECT_FALSE(nic.add(buffer.va(), 5 * kPage, mr));  // a guard page follows
  EXPECT_EQ(EFAULT, nic.error_number);
  EXPECT_FALSE(nic.add(kPage, kPage, mr));
  EXPECT_EQ(EFAULT, nic.error_number);
  EXPECT_NE(std::string::npos, nic.error.find("0x1000 is not mapped")) << nic.error;
}

TEST_F(MemoryPaths, ReadOnlyMemoryForReadingOnly) {
  Buffer buffer(kMiB);
  buffer.fill(4);
  ASSERT_EQ(0, mprotect(buffer.data(), buffer.size(), PROT_READ));
  Nic::Mr mr;
  EXPECT_FALSE(nic.add(buffer.va(), buffer.size(), mr, true));
  EXPECT_EQ(EFAULT, nic.error_number);
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr, false)) << nic.error;
  EXPECT_EQ(Buffer::pattern(4, 4711), nic.read(mr, 4711, 1)[0]);
  nic.remove(mr);
  EXPECT_EQ(Buffer::pattern(4, 4711), buffer.data()[4711]);
  // What the program does to the protection while registered, holds afterwards.
  ASSERT_TRUE(nic.add(buffer.va(), buffer.size(), mr, false)) << nic.error;
  ASSERT_EQ(0, mprotect(buffer.data(), buffer.size(), PROT_READ | PROT_WRITE));
  buffer.data()[0] = std::byte{9};
  nic.remove(mr);
  buffer.data()[1] = std::byte{9};
  EXPECT_EQ(std::byte{9}, buffer.data()[0]);
}

TEST_F(MemoryPaths, MemfdAndDevShm) {
  const int memfd = memfd_create("test", MFD_CLOEXEC);
  const std::string name = "/dev/shm/hostnic-memory-test-" + std::to_string(getpid());
  const int shm = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  ASSERT_GE(shm, 0);
  for (const int fd : {memfd, shm}) {
    ASSERT_EQ(0, ftruncate(fd, kMiB));
    Buffer first(kMiB, MAP_SHARED, fd), second(kMiB, MAP_SHARED, fd);
    if (fd == shm) close(shm);  // only its path leads there now
    Nic::Mr a, b;
    ASSERT_TRUE(nic.add(first.va() + 10, kMiB - 10, a)) << nic.error;
    EXPECT_TRUE(all_of_kind(a, RegionKind::kFile));
    ASSERT_TRUE(nic.add(second.va() + 20, kMiB - 20, b)) << nic.error;
    EXPECT_EQ(a.pieces.front().space_id, b.pieces.front().space_id);
    EXPECT_EQ(a.pieces.front().space_offset + 10, b.pieces.front().space_offset);
    EXPECT_EQ(a.pieces.front().host + 10, b.pieces.front().host);
    expect_right_bytes(a);
    expect_right_bytes(b);
    nic.remove(a);
    nic.remove(b);
  }
  unlink(name.c_str());
  close(memfd);
}

TEST_F(MemoryPaths, ReadOnlyFileMapping) {
  const int writable = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(0, ftruncate(writable, kMiB));
  const int fd = open(("/proc/self/fd/" + std::to_string(writable)).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  close(writable);
  void* at = mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(MAP_FAILED, at);
  Nic::Mr mr;
  EXPECT_FALSE(nic.add(reinterpret_cast<uint64_t>(at), kMiB, mr, true));
  EXPECT_EQ(EFAULT, nic.error_number);
  ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(at), kMiB, mr, false)) << nic.error;
  ASSERT_EQ(1u, mr.pieces.size());
  EXPECT_FALSE(mr.pieces[0].writable);
  EXPECT_EQ(std::vector<std::byte>(100), nic.read(mr, 5, 100));
  nic.remove(mr);
  munmap(at, kMiB);
  close(fd);
}

TEST_F(MemoryPaths, SystemVAndAnonymousSharedMemory) {
  const int id = shmget(IPC_PRIVATE, kMiB, IPC_CREAT | 0600);
  ASSERT_GE(id, 0);
  void* at = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_NE(reinterpret_cast<void*>(-1), at);
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(at), kMiB, mr)) << nic.error;
  expect_right_bytes(mr);
  nic.remove(mr);
  shmdt(at);
  Buffer shared(kMiB, MAP_SHARED | MAP_ANONYMOUS);
  ASSERT_TRUE(nic.add(shared.va(), kMiB, mr)) << nic.error;
  expect_right_bytes(mr);
  nic.remove(mr);
}

TEST_F(MemoryPaths, FilesOnDiskGoThroughTheMemFd) {
  char name[] = "/var/tmp/hostnic-memory-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  unlink(name);
  ASSERT_EQ(0, ftruncate(fd, kMiB));
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    Buffer buffer(kMiB, flags, fd);
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(buffer.va(), kMiB, mr)) << nic.error;
    EXPECT_TRUE(all_of_kind(mr, RegionKind::kMemFd) || flags == MAP_SHARED);
    expect_right_bytes(mr);
    nic.remove(mr);
  }
  close(fd);
}

TEST_F(MemoryPaths, HugePages) {
  constexpr size_t kHuge = 2 * kMiB;
  const int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
  if (fd < 0 || ftruncate(fd, 2 * kHuge) != 0)
    GTEST_SKIP() << "no hugetlbfs: " << std::strerror(errno);
  void* at = mmap(nullptr, 2 * kHuge, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    close(fd);
    GTEST_SKIP() << "no huge pages reserved (sysctl vm.nr_hugepages=2): " << std::strerror(errno);
  }
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(at) + 100, kHuge, mr)) << nic.error;
  EXPECT_TRUE(all_of_kind(mr, RegionKind::kFile));
  expect_right_bytes(mr);
  nic.remove(mr);
  munmap(at, 2 * kHuge);
  close(fd);
}

TEST_F(MemoryPaths, SeveralAreasInOneRegistration) {
  const int fd = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(0, ftruncate(fd, kMiB));
  Buffer buffer(3 * kMiB);
  ASSERT_EQ(buffer.data() + kMiB, mmap(buffer.data() + kMiB, kMiB, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_FIXED, fd, 0));
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va() + 5, 3 * kMiB - 10, mr)) << nic.error;
  expect_right_bytes(mr);
  nic.remove(mr);
  close(fd);
}

TEST_F(MemoryPaths, StacksWork) {
  alignas(kPage) std::byte own[8 * kPage];
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(reinterpret_cast<uint64_t>(own), sizeof(own), mr)) << nic.error;
  expect_right_bytes(mr);
  nic.remove(mr);
  std::vector<std::string> failures;
  std::thread other([&] {
    alignas(kPage) std::byte local[64 * kPage];
    Nic::Mr of_thread;
    if (!nic.add(reinterpret_cast<uint64_t>(local), sizeof(local), of_thread))
      failures.push_back(nic.error);
    else
      expect_right_bytes(of_thread);
    nic.remove(of_thread);
  });
  other.join();
  EXPECT_TRUE(failures.empty()) << failures.front();
}

struct Mode {
  const char* memory;
  const char* migrate;
  bool private_in_mirror, shared_as_file;
};
class MemoryModes : public ::testing::TestWithParam<Mode> {};

TEST_P(MemoryModes, TakeTheirWay) {
  const Mode mode = GetParam();
  in_child([&] {
    setenv("HOSTNIC_MEMORY", mode.memory, 1);
    setenv("HOSTNIC_MIGRATE", mode.migrate, 1);
    struct Body : MemoryTest {
      void TestBody() override {}
      void run(const Mode& want) {
        const int fd = memfd_create("test", MFD_CLOEXEC);
        ASSERT_EQ(0, ftruncate(fd, kMiB));
        Buffer own(kMiB), shared(kMiB, MAP_SHARED, fd);
        Nic::Mr a, b;
        ASSERT_TRUE(nic.add(own.va(), kMiB, a)) << nic.error;
        ASSERT_TRUE(nic.add(shared.va(), kMiB, b)) << nic.error;
        EXPECT_TRUE(all_of_kind(
            a, want.private_in_mirror && migrates() ? RegionKind::kMirror : RegionKind::kMemFd));
        EXPECT_TRUE(all_of_kind(b, want.shared_as_file ? RegionKind::kFile : RegionKind::kMemFd));
        expect_right_bytes(a);
        expect_right_bytes(b);
        nic.remove(a);
        nic.remove(b);
      }
    } body;
    body.run(mode);
  });
}
INSTANTIATE_TEST_SUITE_P(Ways, MemoryModes,
                         ::testing::Values(Mode{"auto", "1", true, true},
                                           Mode{"auto", "0", false, true},
                                           Mode{"memfd", "1", false, false},
                                           Mode{"file", "1", false, true}),
                         [](const auto& info) {
                           return std::string(info.param.memory) + "_migrate" + info.param.migrate;
                         });

TEST(MemoryModesRefuse, UnknownNames) {
  in_child([] {
    setenv("HOSTNIC_MEMORY", "fast", 1);
    auto ready = memory::MemoryRegistrar::process().init(-1);
    ASSERT_FALSE(ready.has_value());
    EXPECT_EQ(EINVAL, ready.error().error);
    EXPECT_EQ("HOSTNIC_MEMORY=fast: use auto, memfd, window or file", ready.error().message);
  });
}

TEST(MemoryModesRefuse, MirrorWithoutMigration) {
  in_child([] {
    setenv("HOSTNIC_MEMORY", "window", 1);
    setenv("HOSTNIC_MIGRATE", "0", 1);
    ASSERT_TRUE(memory::MemoryRegistrar::process().init(-1).has_value());
    Buffer buffer(kMiB);
    auto added = memory::MemoryRegistrar::process().add(buffer.va(), kMiB, true);
    ASSERT_FALSE(added.has_value());
    EXPECT_EQ(EOPNOTSUPP, added.error().error);
  });
}

using MemoryFileView = MemoryTest;

TEST_F(MemoryFileView, IsReachedByItsFileOrNotAtAll) {
  constexpr size_t kLength = 8 * kPage;
  const int fd = memfd_create("view", MFD_CLOEXEC);
  ASSERT_EQ(0, ftruncate(fd, kLength));
  auto view = memory::FileView::map(fd, kPage + 100, 3 * kPage, true);
  ASSERT_TRUE(view);
  const auto va = reinterpret_cast<uint64_t>(view->address());
  auto registration = registrar().add(va, 3 * kPage, true, memory::Paging::kAsMapped,
                                      memory::Arrival::kNow, memory::LostPages::kRefused);
  ASSERT_TRUE(registration) << registration.error().message;
  ASSERT_EQ(1u, registration->regions.size());
  EXPECT_EQ(RegionKind::kFile, registration->regions[0].kind);
  EXPECT_EQ(kPage + 100, registration->regions[0].file_offset);
  registrar().remove(va, 3 * kPage, registration->number);
  Buffer buffer(4 * kPage);
  auto refused = registrar().add(buffer.va(), kPage, true, memory::Paging::kAsMapped,
                                 memory::Arrival::kNow, memory::LostPages::kRefused);
  ASSERT_FALSE(refused);
  EXPECT_EQ(EOPNOTSUPP, refused.error().error);
  close(fd);
}

TEST_F(MemoryFileView, DeviceMemoryIsFoundByItsName) {
  for (const bool peers : {true, false}) {
    const int fd = memfd_create(peers ? "hostnic-gpu" : "hostnic-gpu-nopeer", MFD_CLOEXEC);
    ASSERT_EQ(0, ftruncate(fd, 4 * kPage));
    void* at = mmap(nullptr, 2 * kPage, PROT_NONE, MAP_SHARED, fd, kPage);
    const auto va = reinterpret_cast<uint64_t>(at);
    const auto found = memory::find_device_memory(va + 10, kPage);
    ASSERT_EQ(peers, found.has_value());
    if (peers) {
      EXPECT_EQ(kPage + 10, found->offset);
      EXPECT_FALSE(memory::find_device_memory(va + 10, 2 * kPage)) << "it ends before";
    }
    munmap(at, 2 * kPage);
    close(fd);
  }
  Buffer buffer(kPage);
  EXPECT_FALSE(memory::find_device_memory(buffer.va(), 1));
}

// An adapter can't pin such memory either (pin_user_pages).
TEST_F(MemoryTest, SecretMemoryIsRefused) {
  constexpr long kMemfdSecret = 447;  // Linux 5.14
  const UniqueFd file(static_cast<int>(syscall(kMemfdSecret, 0)));
  if (file.get() < 0) GTEST_SKIP() << "memfd_secret: " << std::strerror(errno);
  ASSERT_EQ(ftruncate(file.get(), 4 * kPage), 0);
  void* const at = mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) GTEST_SKIP() << "secret memory: " << std::strerror(errno);
  Nic::Mr mr;
  EXPECT_FALSE(nic.add(reinterpret_cast<uint64_t>(at), 4 * kPage, mr));
  EXPECT_EQ(nic.error_number, EFAULT) << nic.error;
  munmap(at, 4 * kPage);
}

}  // namespace
}  // namespace hostnic::memory_testing
