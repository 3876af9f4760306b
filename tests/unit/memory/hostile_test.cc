// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's side against clients that lie, truncate, and disappear.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <tuple>

#include "dataplane/memory/hole_guard.h"
#include "dataplane/memory/sigbus.h"
#include "tests/unit/memory/testing.h"

namespace hostnic::memory_testing {
namespace {

class ClientMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto mirror = create_mirror();
    ASSERT_TRUE(mirror.has_value()) << mirror.error();
    mirror_ = *mirror;
    memory_ = std::make_unique<ClientMemory>(mirror_, &gone_);
    file_ = memfd_create("file", MFD_CLOEXEC);
    ASSERT_EQ(0, ftruncate(file_, 4 * kMiB));
    populate(file_, 0, 4 * kMiB);
    populate(mirror_, kVa, 4 * kMiB);
  }
  void TearDown() override {
    memory_.reset();
    close(mirror_);
    close(file_);
  }
  // As clients do. (Pages that were only allocated by fallocate still count as holes.)
  static void populate(int fd, uint64_t offset, size_t length) {
    void* at =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    ASSERT_NE(MAP_FAILED, at);
    std::memset(at, 1, length);
    munmap(at, length);
  }
  std::string refused(std::vector<MemoryRegion> regions, std::vector<int> fds) {
    auto pieces = memory_->map(regions, fds);
    EXPECT_EQ(0u, pieces ? 1 : memory_->mapping_count()) << "something stays mapped";
    if (pieces) memory_->unmap(*pieces);
    return pieces ? "" : pieces.error();
  }
  bool accepted(std::vector<MemoryRegion> regions, std::vector<int> fds) {
    auto pieces = memory_->map(regions, fds);
    if (!pieces) return false;
    memory_->unmap(*pieces);
    return memory_->mapping_count() == 0;
  }

  static constexpr uint64_t kVa = 0x200000000000;
  int mirror_ = -1, file_ = -1;
  std::atomic<bool> gone_{false};
  std::unique_ptr<ClientMemory> memory_;
};

// ulimit -v of hostnicd: a program is told ENOMEM, not that it asked for something impossible.
TEST_F(ClientMemoryTest, LackOfAddressSpaceIsNoFaultOfTheRequest) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit none{.rlim_cur = kMiB, .rlim_max = before.rlim_max};
  std::vector<MemoryRegion> regions = {{kVa, 4 * kMiB, RegionKind::kFile, 0, 0}};
  std::vector<int> fds = {file_};
  // A sanitizer's allocator maps memory for each size of objects once, and ends the process if it
  // can't.
  EXPECT_TRUE(accepted(regions, fds));
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  auto pieces = memory_->map(regions, fds);
  setrlimit(RLIMIT_AS, &before);
  EXPECT_FALSE(pieces);
  EXPECT_EQ(memory_->refusal(), ENOMEM);
  EXPECT_TRUE(accepted(regions, fds));
  regions[0].va = 0xffff'ffff'ffff'0000;
  EXPECT_NE(refused(regions, fds), "");
  EXPECT_EQ(memory_->refusal(), EINVAL);
}

TEST_F(ClientMemoryTest, AcceptsWhatIsRight) {
  EXPECT_TRUE(accepted({{kVa, kMiB, RegionKind::kMirror, 0, 0}}, {}));
  EXPECT_TRUE(accepted({{kVa + 5, kMiB, RegionKind::kMirror, 0, 0}}, {}));
  EXPECT_TRUE(accepted({{kVa, 4 * kMiB, RegionKind::kFile, 0, 0}}, {file_}));
  EXPECT_TRUE(accepted({{kVa + 9, kMiB, RegionKind::kFile, 1, kPage + 9}}, {-1, file_}));
  EXPECT_TRUE(accepted(
      {{kVa, kPage, RegionKind::kMemFd, 0, 0}, {kVa + kPage, 9, RegionKind::kMemFd, 0, 0}}, {}));
}

TEST_F(ClientMemoryTest, RefusesRegionsThatDoNotFit) {
  const MemoryRegion good{kVa, kPage, RegionKind::kMemFd, 0, 0};
  EXPECT_NE("", refused({}, {}));
  EXPECT_NE("", refused({good, good}, {}));
  EXPECT_NE("", refused({good, {kVa + 2 * kPage, kPage, RegionKind::kMemFd, 0, 0}}, {}));
  EXPECT_NE("", refused({{kVa, 0, RegionKind::kMemFd, 0, 0}}, {}));
  EXPECT_NE("", refused({{UINT64_MAX - 10, 100, RegionKind::kMemFd, 0, 0}}, {}));
  EXPECT_NE("", refused({{kMirrorBytes - 10, 100, RegionKind::kMirror, 0, 0}}, {}));
  EXPECT_NE("", refused({{kVa, kPage, static_cast<RegionKind>(17), 0, 0}}, {}));
  // Part good, part bad: nothing may stay.
  EXPECT_NE("", refused({{kVa, kPage, RegionKind::kMirror, 0, 0},
                         {kVa + kPage, kPage, static_cast<RegionKind>(17), 0, 0}},
                        {}));
}

// A packet would take a system call for each.
TEST_F(ClientMemoryTest, RefusesPiecesOfPages) {
  std::vector<MemoryRegion> regions;
  for (uint64_t i = 0; i < 2048; ++i) regions.push_back({kVa + i, 1, RegionKind::kMemFd, 0, 0});
  EXPECT_NE("", refused(regions, {}));
  EXPECT_NE("", refused({{kVa, kPage + 1, RegionKind::kMirror, 0, 0},
                         {kVa + kPage + 1, kPage, RegionKind::kMemFd, 0, 0}},
                        {}));
}

TEST_F(ClientMemoryTest, MemFdRegionsInARowAreOnePiece) {
  std::vector<MemoryRegion> regions;
  for (uint64_t i = 0; i < 2048; ++i)
    regions.push_back({kVa + i * kPage, kPage, RegionKind::kMemFd, 0, 0});
  auto pieces = memory_->map(regions, {});
  ASSERT_TRUE(pieces) << pieces.error();
  ASSERT_EQ(1u, pieces->size());
  EXPECT_EQ(2048 * kPage, pieces->front().length_bytes);
}

TEST_F(ClientMemoryTest, RefusesMirrorPagesThatNobodyPaidFor) {
  EXPECT_NE("", refused({{kVa, 4 * kMiB + 1, RegionKind::kMirror, 0, 0}}, {}));
  EXPECT_NE("", refused({{kVa - 1, kPage, RegionKind::kMirror, 0, 0}}, {}));
  EXPECT_NE("", refused({{0, uint64_t{1} << 47, RegionKind::kMirror, 0, 0}}, {}));
}

TEST_F(ClientMemoryTest, RefusesFilesThatDoNotFit) {
  EXPECT_NE("", refused({{kVa, kPage, RegionKind::kFile, 1, 0}}, {file_}));
  EXPECT_NE("", refused({{kVa, kPage, RegionKind::kFile, 0, 0}}, {-1}));
  EXPECT_NE("", refused({{kVa, kPage, RegionKind::kFile, 0, 5}}, {file_}));
  EXPECT_NE("", refused({{kVa, kPage, RegionKind::kFile, 0, 4 * kMiB}}, {file_}));
  EXPECT_NE("", refused({{kVa, 4 * kMiB + 1, RegionKind::kFile, 0, 0}}, {file_}));
  EXPECT_NE("", refused({{kVa, kPage, RegionKind::kFile, 0, UINT64_MAX - kPage + 1}}, {file_}));
  const int read_only =
      open(("/proc/self/fd/" + std::to_string(file_)).c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_NE("", refused({{kVa, kPage, RegionKind::kFile, 0, 0}}, {read_only}));
  close(read_only);
  const int sparse = memfd_create("sparse", MFD_CLOEXEC);
  ASSERT_EQ(0, ftruncate(sparse, 4 * kMiB));
  EXPECT_NE("", refused({{kVa, kPage, RegionKind::kFile, 0, 0}}, {sparse}));
  close(sparse);
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
  char name[] = "/var/tmp/hostnic-memory-XXXXXX";
  const int disk = mkstemp(name);
  unlink(name);
  ASSERT_EQ(static_cast<ssize_t>(kPage), write(disk, std::string(kPage, 'x').data(), kPage));
  for (const int fd : {ends[0], ends[1], zero, disk}) {
    EXPECT_NE("", refused({{kVa, kPage, RegionKind::kFile, 0, 0}}, {fd})) << fd;
    close(fd);
  }
}

class LateRegions : public ClientMemoryTest {
 protected:
  void SetUp() override {
    ClientMemoryTest::SetUp();
    fill_map_ = make_map(MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_GROW);
    states_ = static_cast<uint8_t*>(
        mmap(nullptr, kMapBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fill_map_, 0));
    ASSERT_NE(MAP_FAILED, states_);
  }
  void TearDown() override {
    munmap(states_, kMapBytes);
    close(fill_map_);
    ClientMemoryTest::TearDown();
  }
  static int make_map(unsigned flags, int seals) {
    const int fd = memfd_create("fill-map", MFD_CLOEXEC | flags);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(0, ftruncate(fd, kMapBytes));
    populate(fd, 0, kMapBytes);
    EXPECT_TRUE(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
  }
  static MemoryRegion late(uint64_t va, uint64_t slices, uint64_t at) {
    return {va, slices * kSliceBytes, RegionKind::kMirrorLate, 0, at};
  }

  static constexpr size_t kMapBytes = 2 * kPage;
  // Nothing of it is in the mirror.
  static constexpr uint64_t kEmptyVa = kVa + (uint64_t{1} << 30);
  int fill_map_ = -1;
  uint8_t* states_ = nullptr;
};

TEST_F(LateRegions, AreMappedWithoutTouchingThem) {
  const MemoryRegion region = late(kEmptyVa, 3, 70);
  for (uint64_t i = 0; i < 3; ++i) states_[70 + i] = static_cast<uint8_t>(SliceState::kAside);
  auto pieces = memory_->map({&region, 1}, {&fill_map_, 1});
  ASSERT_TRUE(pieces) << pieces.error();
  ASSERT_EQ(1u, pieces->size());
  const MappedPiece& piece = pieces->front();
  EXPECT_TRUE(piece.is_late() && !piece.by_mem_fd());
  EXPECT_EQ(nullptr, piece.host);
  ASSERT_TRUE(ClientMemory::populate(*pieces));
  EXPECT_EQ(static_cast<off_t>(kEmptyVa), lseek(mirror_, kEmptyVa, SEEK_HOLE)) << "still empty";
  // The states are the client's bytes.
  EXPECT_EQ(SliceState::kAside, slice_state(piece.slices[2]));
  states_[72] = static_cast<uint8_t>(SliceState::kFilled);
  EXPECT_EQ(SliceState::kFilled, slice_state(piece.slices[2]));
  piece.slices[0] = static_cast<uint8_t>(SliceState::kWanted);
  EXPECT_EQ(static_cast<uint8_t>(SliceState::kWanted), states_[70]);
  // It has the same identity as the mirror.
  const MemoryRegion own{kVa, kMiB, RegionKind::kMirror, 0, 0};
  auto other = memory_->map({&own, 1}, {});
  ASSERT_TRUE(other);
  EXPECT_EQ(other->front().space_id, piece.space_id);
  EXPECT_EQ(kEmptyVa, piece.space_offset);
  memory_->unmap(*other);
  memory_->unmap(*pieces);
  EXPECT_EQ(0u, memory_->mapping_count());
}

TEST_F(LateRegions, AreOrdinaryOnceTheyAreFilled) {
  const MemoryRegion region = late(kEmptyVa, 2, 0);
  std::fill_n(states_, 2, static_cast<uint8_t>(SliceState::kAside));
  auto pieces = memory_->map({&region, 1}, {&fill_map_, 1});
  ASSERT_TRUE(pieces) << pieces.error();
  EXPECT_FALSE(memory_->check_filled(*pieces));
  populate(mirror_, kEmptyVa, kSliceBytes);
  states_[0] = 0;
  EXPECT_FALSE(memory_->check_filled(*pieces)) << "half of it";
  states_[1] = 0;
  EXPECT_FALSE(memory_->check_filled(*pieces)) << "the second slice is said to be there";
  populate(mirror_, kEmptyVa + kSliceBytes, kSliceBytes);
  EXPECT_TRUE(memory_->check_filled(*pieces));
  const MappedPiece& piece = pieces->front();
  EXPECT_EQ(piece.length_bytes, ClientMemory::populate_step(piece, 0));
  EXPECT_EQ(std::byte{1}, piece.late_host[2 * kSliceBytes - 1]);
  MappedPiece ordinary = piece;
  ordinary.host = ordinary.late_host;
  memory_->unmap({&ordinary, 1});
  EXPECT_EQ(0u, memory_->mapping_count());
}

TEST_F(LateRegions, GoOnAcrossGigabytes) {
  const MemoryRegion region = late(kVa + 2 * (uint64_t{1} << 30) - kSliceBytes, 2, kPage - 1);
  auto pieces = memory_->map({&region, 1}, {&fill_map_, 1});
  ASSERT_TRUE(pieces) << pieces.error();
  ASSERT_EQ(2u, pieces->size());
  states_[kPage - 1] = 7;
  states_[kPage] = 9;
  EXPECT_EQ(7, *pieces->front().slices);
  EXPECT_EQ(9, *pieces->back().slices);
  memory_->unmap(*pieces);
  EXPECT_EQ(0u, memory_->mapping_count());
}

TEST_F(LateRegions, AreRefusedWhereTheyDoNotFit) {
  EXPECT_TRUE(accepted({late(kVa, 2, 0)}, {fill_map_}));
  EXPECT_TRUE(accepted({late(kVa, 1, kMapBytes - 1)}, {fill_map_}));
  EXPECT_NE("", refused({late(kVa + kPage, 1, 0)}, {fill_map_})) << "no whole slices";
  MemoryRegion part = late(kVa, 2, 0);
  part.length_bytes -= kPage;
  EXPECT_NE("", refused({part}, {fill_map_})) << "no whole slices";
  EXPECT_NE("", refused({late(kVa, 1, kMapBytes)}, {fill_map_})) << "beyond the map";
  EXPECT_NE("", refused({late(kVa, 2, kMapBytes - 1)}, {fill_map_})) << "beyond the map";
  EXPECT_NE("", refused({late(kVa, 2, UINT64_MAX)}, {fill_map_})) << "wraps around";
  EXPECT_NE("", refused({late(kVa, 1, 0)}, {})) << "no map";
  EXPECT_NE("", refused({late(kVa, 1, 0)}, {-1})) << "no descriptor";
  EXPECT_NE("", refused({late(kMirrorBytes - kSliceBytes, 2, 0)}, {fill_map_}));
  // Part good, part bad: nothing may stay.
  EXPECT_NE("", refused({late(kVa, 1, 0), late(kVa + kSliceBytes, 1, kMapBytes)}, {fill_map_}));
}

TEST_F(LateRegions, AreRefusedWithoutAProperFillMap) {
  EXPECT_NE("", refused({late(kVa, 1, 0)}, {file_})) << "not sealed";
  for (const int seals :
       {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE}) {
    const int fd = make_map(MFD_ALLOW_SEALING, seals);
    EXPECT_NE("", refused({late(kVa, 1, 0)}, {fd})) << seals;
    close(fd);
  }
  const int sparse = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(0, ftruncate(sparse, kMapBytes));
  ASSERT_EQ(0, fcntl(sparse, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
  EXPECT_NE("", refused({late(kVa, 1, 0)}, {sparse})) << "nobody paid for its pages";
  close(sparse);
  const std::string name = "/proc/self/fd/" + std::to_string(fill_map_);
  for (const int flags : {O_RDONLY, O_PATH}) {
    const int fd = open(name.c_str(), flags | O_CLOEXEC);
    EXPECT_NE("", refused({late(kVa, 1, 0)}, {fd})) << flags;
    close(fd);
  }
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  EXPECT_NE("", refused({late(kVa, 1, 0)}, {ends[0]}));
  for (const int end : ends) close(end);
}

// Whatever it is, it is the client's own memory that is spoilt.
TEST_F(LateRegions, TheMirrorItselfMayServeAsAFillMap) {
  EXPECT_TRUE(accepted({late(kEmptyVa, 1, kVa)}, {mirror_}));
}

TEST_F(ClientMemoryTest, ChecksMirrorsThatClientsSend) {
  EXPECT_TRUE(check_mirror(mirror_).has_value());
  EXPECT_FALSE(check_mirror(file_).has_value());
  EXPECT_FALSE(check_mirror(-1).has_value());
  const int unsealed = memfd_create("mirror", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(0, ftruncate(unsealed, static_cast<off_t>(kMirrorBytes)));
  EXPECT_FALSE(check_mirror(unsealed).has_value());
  close(unsealed);
  EXPECT_EQ(-1, ftruncate(mirror_, kPage));
}

TEST_F(ClientMemoryTest, TwoClientsOfOneFileShareItsSpace) {
  std::atomic<bool> other_gone{false};
  auto other_mirror = create_mirror();
  ASSERT_TRUE(other_mirror.has_value());
  ClientMemory other(*other_mirror, &other_gone);
  const MemoryRegion file{kVa, kMiB, RegionKind::kFile, 0, kMiB};
  const MemoryRegion own{kVa, kMiB, RegionKind::kMemFd, 0, 0};
  auto a = memory_->map({&file, 1}, {&file_, 1});
  auto b = other.map({&file, 1}, {&file_, 1});
  auto c = memory_->map({&own, 1}, {});
  auto d = other.map({&own, 1}, {});
  ASSERT_TRUE(a && b && c && d);
  EXPECT_EQ(a->front().space_id, b->front().space_id);
  EXPECT_EQ(kMiB, b->front().space_offset);
  EXPECT_NE(c->front().space_id, d->front().space_id);
  EXPECT_NE(c->front().space_id, a->front().space_id);
  close(*other_mirror);
}

TEST_F(ClientMemoryTest, PiecesAcrossGigabytes) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  populate(mirror_, kVa + kGiB - 2 * kMiB, 4 * kMiB);
  const MemoryRegion region{kVa + kGiB - kMiB, 2 * kMiB, RegionKind::kMirror, 0, 0};
  auto pieces = memory_->map({&region, 1}, {});
  ASSERT_TRUE(pieces) << pieces.error();
  ASSERT_EQ(2u, pieces->size());
  EXPECT_EQ(region.va, pieces->front().va);
  EXPECT_EQ(kVa + kGiB, pieces->back().va);
  EXPECT_EQ(kMiB, pieces->back().length_bytes);
  EXPECT_EQ(2u, memory_->mapping_count());
  memory_->unmap(*pieces);
  EXPECT_EQ(0u, memory_->mapping_count());
}

TEST_F(ClientMemoryTest, TruncatedFileMarksTheClient) {
  in_child([&] {
    ASSERT_TRUE(install_sigbus_guard());
    const MemoryRegion region{kVa, 4 * kMiB, RegionKind::kFile, 0, 0};
    auto pieces = memory_->map({&region, 1}, {&file_, 1});
    ASSERT_TRUE(pieces) << pieces.error();
    ASSERT_EQ(0, ftruncate(file_, kPage));
    std::byte* host = pieces->front().host;
    host[0] = std::byte{1};
    EXPECT_FALSE(gone_.load());
    host[2 * kMiB + 5] = std::byte{3};  // SIGBUS, survived
    EXPECT_EQ(std::byte{3}, host[2 * kMiB + 5]);
    EXPECT_TRUE(gone_.load());
    memory_->unmap(*pieces);
  });
}

// What is copied there is nothing of the client's, and must not count.
TEST_F(ClientMemoryTest, WhatIsPutIntoTruncatedFilesIsKnown) {
  in_child([&] {
    ASSERT_TRUE(install_sigbus_guard());
    const MemoryRegion region{kVa, 4 * kMiB, RegionKind::kFile, 0, 0};
    auto pieces = memory_->map({&region, 1}, {&file_, 1});
    ASSERT_TRUE(pieces) << pieces.error();
    std::byte* host = pieces->front().host;
    ASSERT_EQ(0, ftruncate(file_, 2 * kMiB));
    EXPECT_EQ(std::byte{1}, host[kPage]);
    EXPECT_FALSE(has_faulted());
    EXPECT_FALSE(is_replaced(host, 4 * kMiB));
    const uint64_t before = replacements.load();
    EXPECT_EQ(std::byte{0}, host[3 * kMiB]);
    EXPECT_TRUE(has_faulted());
    EXPECT_EQ(before + 1, replacements.load());
    std::thread([] { EXPECT_FALSE(has_faulted()) << "another thread has"; }).join();
    forget_fault();
    EXPECT_FALSE(has_faulted());
    EXPECT_TRUE(is_replaced(host, 4 * kMiB));
    EXPECT_TRUE(is_replaced(host + 3 * kMiB, kPage));
    EXPECT_FALSE(is_replaced(host, 3 * kMiB));
    EXPECT_FALSE(is_replaced(host + 3 * kMiB + kPage, kPage));
    // The file's next pages are not what was put there.
    ASSERT_EQ(0, ftruncate(file_, 4 * kMiB));
    populate(file_, 2 * kMiB, 2 * kMiB);
    auto again = memory_->map({&region, 1}, {&file_, 1});
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(std::byte{1}, again->front().host[3 * kMiB]);
    memory_->unmap(*again);
    memory_->unmap(*pieces);
    EXPECT_FALSE(is_replaced(host, 4 * kMiB));
  });
}

uint64_t pages_of(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 ? static_cast<uint64_t>(file.st_blocks) * 512 / kPage : 0;
}

const MemoryTerms kStrangers{.stranger = 1000};

// A dma-buf's exporter may take pages away: whoever the client is, none is made in their place.
TEST_F(ClientMemoryTest, ARevocableFilesHolesGetNoPages) {
  in_child([&] {
    if (!can_guard_holes()) GTEST_SKIP() << "no userfaultfd here";
    ASSERT_TRUE(install_sigbus_guard());
    ClientMemory memory(mirror_, &gone_);
    const MemoryRegion region{kVa, 4 * kMiB, RegionKind::kFile, 0, 0};
    const int fds[] = {file_};
    auto plain = memory.map({&region, 1}, fds);
    auto revocable = memory.map({&region, 1}, fds, true, true);
    ASSERT_TRUE(plain && revocable);
    ASSERT_TRUE(ClientMemory::populate(*plain) && ClientMemory::populate(*revocable));
    EXPECT_NE(plain->front().host, revocable->front().host);
    EXPECT_EQ(std::byte{1}, revocable->front().host[kMiB]);
    ASSERT_EQ(0, fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kMiB, kMiB));
    const uint64_t pages = pages_of(file_);
    volatile std::byte* const hole = revocable->front().host + kMiB;
    EXPECT_TRUE(*hole == std::byte{0});
    EXPECT_TRUE(gone_.load()) << "its keys end";
    EXPECT_EQ(pages, pages_of(file_));
    memory.unmap(*plain);
    memory.unmap(*revocable);
  });
}

// hostnicd would pay for the page, and the client may take it away again.
TEST_F(ClientMemoryTest, AStrangersHolesGetNoPages) {
  // A userfaultfd is the process's that opened it: nobody asks before the child does.
  in_child([&] {
    if (!can_guard_holes()) GTEST_SKIP() << "no userfaultfd here";
    ASSERT_TRUE(install_sigbus_guard());
    ClientMemory memory(mirror_, &gone_, kStrangers);
    const int read_only =
        open(("/proc/self/fd/" + std::to_string(file_)).c_str(), O_RDONLY | O_CLOEXEC);
    const MemoryRegion in_mirror{kVa, 4 * kMiB, RegionKind::kMirror, 0, 0},
        in_file{kVa, 4 * kMiB, RegionKind::kFile, 0, 0};
    for (const bool reads : {false, true}) {
      const int fds[] = {reads ? read_only : file_};
      auto mirror = memory.map({&in_mirror, 1}, {});
      auto file = memory.map({&in_file, 1}, fds, !reads);
      ASSERT_TRUE(mirror) << mirror.error();
      ASSERT_TRUE(file) << file.error();
      ASSERT_TRUE(ClientMemory::populate(*mirror) && ClientMemory::populate(*file));
      for (const auto& [fd, piece, offset] : {std::tuple(mirror_, mirror->front(), kVa),
                                              std::tuple(file_, file->front(), uint64_t{0})}) {
        gone_.store(false);
        EXPECT_EQ(std::byte{1}, piece.host[kPage]) << "what is there is reached";
        ASSERT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               static_cast<off_t>(offset + kMiB), kMiB));
        const uint64_t pages = pages_of(fd);
        EXPECT_EQ(std::byte{1}, piece.host[kPage]) << "what is there still is reached";
        EXPECT_FALSE(gone_.load());
        volatile std::byte* const hole = piece.host + kMiB + 5 * kPage;
        EXPECT_TRUE(*hole == std::byte{0});
        if (!reads) *hole = std::byte{7};
        EXPECT_TRUE(gone_.load());
        EXPECT_EQ(pages, pages_of(fd));
        populate(fd, offset, 4 * kMiB);
      }
      memory.unmap(*mirror);
      memory.unmap(*file);
    }
    close(read_only);
  });
}

// Our own user's and root's programs may: the memory is theirs, and so is hostnicd.
TEST_F(ClientMemoryTest, HolesOfTheOwnersProgramsAreFilled) {
  in_child([&] {
    ASSERT_TRUE(install_sigbus_guard());
    const MemoryRegion region{kVa, 4 * kMiB, RegionKind::kMirror, 0, 0};
    auto pieces = memory_->map({&region, 1}, {});
    ASSERT_TRUE(pieces) << pieces.error();
    ASSERT_EQ(0, fallocate(mirror_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kVa, kMiB));
    pieces->front().host[kPage] = std::byte{7};
    EXPECT_FALSE(gone_.load());
    memory_->unmap(*pieces);
  });
}

size_t areas() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// A process may have some 65,000 areas, and each page that is put somewhere by itself makes two.
TEST_F(ClientMemoryTest, APageHereAndTherePutsFewAreasThere) {
  in_child([&] {
    ASSERT_TRUE(install_sigbus_guard());
    constexpr uint64_t kSize = 256 * kMiB;
    ASSERT_EQ(0, ftruncate(file_, kSize));
    populate(file_, 0, kSize);
    const MemoryRegion region{kVa, kSize, RegionKind::kFile, 0, 0};
    auto pieces = memory_->map({&region, 1}, {&file_, 1});
    ASSERT_TRUE(pieces) << pieces.error();
    ASSERT_EQ(0, ftruncate(file_, 0));
    const size_t before = areas();
    for (uint64_t at = 0; at < kSize; at += 2 * kPage) pieces->front().host[at] = std::byte{1};
    EXPECT_TRUE(gone_.load());
    EXPECT_LE(areas(), before + 50);
    memory_->unmap(*pieces);
  });
}

TEST_F(ClientMemoryTest, MappingsAreCountedForTheirUser) {
  in_child([&] {
    UserShares shares({.all = 4, .strangers = 3, .user = 2});
    const MemoryTerms strangers{.stranger = 1000, .mappings = &shares}, owners{.mappings = &shares};
    ClientMemory first(mirror_, &gone_, strangers), second(mirror_, &gone_, strangers),
        own(mirror_, &gone_, owners);
    const MemoryRegion in_mirror{kVa, kPage, RegionKind::kMirror, 0, 0},
        in_file{kVa, kPage, RegionKind::kFile, 0, 0};
    const auto a = first.map({&in_mirror, 1}, {});
    const auto b = second.map({&in_file, 1}, {&file_, 1});
    ASSERT_TRUE(a && b);
    EXPECT_FALSE(first.map({&in_file, 1}, {&file_, 1})) << "of another device";
    EXPECT_FALSE(second.map({&in_mirror, 1}, {}));
    EXPECT_TRUE(first.map({&in_mirror, 1}, {})) << "it is mapped already";
    EXPECT_TRUE(own.map({&in_mirror, 1}, {}));
    second.unmap(*b);
    EXPECT_TRUE(first.map({&in_file, 1}, {&file_, 1}));
    EXPECT_EQ(shares.of(1000), 2u);
  });
}

// Of each page that lies alone in 2 MiB hostnicd has a page table, until its mapping goes.
TEST_F(ClientMemoryTest, PageTablesAreCountedForTheirUser) {
  in_child([&] {
    PageTableBudgets budgets(6);
    const MemoryTerms strangers{.stranger = 1000, .page_tables = budgets.of(1000)};
    ClientMemory first(mirror_, &gone_, strangers), second(mirror_, &gone_, strangers),
        own(mirror_, &gone_, MemoryTerms{});
    const auto in_mirror = [](uint64_t at, RegionKind kind = RegionKind::kMirror) {
      return MemoryRegion{kVa + at, kPage, kind, 0, 0};
    };
    const MemoryRegion page = in_mirror(0), same_span = in_mirror(kMiB),
                       other_span = in_mirror(2 * kMiB),
                       across{kVa + kMiB, 2 * kMiB, RegionKind::kMirror, 0, 0},
                       in_file{kVa, kPage, RegionKind::kFile, 0, 3 * kMiB};
    const auto a = first.map({&page, 1}, {});
    ASSERT_TRUE(a);
    EXPECT_EQ(strangers.page_tables->taken(), 2u) << "one, and that of the gigabyte";
    const auto b = first.map({&same_span, 1}, {}), c = first.map({&across, 1}, {});
    ASSERT_TRUE(b && c);
    // Wherever it lies, and so across two gigabytes sometimes.
    const auto gigabyte_of = [](const std::byte* at) {
      return reinterpret_cast<uintptr_t>(at) >> 30;
    };
    const std::byte* const start = c->front().host;
    const uint64_t firsts = gigabyte_of(start) == gigabyte_of(start + 2 * kMiB - 1) ? 3 : 4;
    EXPECT_EQ(strangers.page_tables->taken(), firsts);
    ASSERT_TRUE(second.map({&in_file, 1}, {&file_, 1}));
    EXPECT_EQ(strangers.page_tables->taken(), firsts + 2);
    const auto refused = second.map({&other_span, 1}, {});
    ASSERT_FALSE(refused) << "two more would be wanted";
    EXPECT_NE(refused.error().find("too scattered"), std::string::npos) << refused.error();
    EXPECT_EQ(second.refusal(), ENOMEM);
    EXPECT_NE(second.limit_met(), "");
    EXPECT_EQ(second.mapping_count(), 1u) << "what was refused stays mapped";
    EXPECT_TRUE(own.map({&other_span, 1}, {}));
    first.unmap(*a);
    first.unmap(*c);
    EXPECT_EQ(strangers.page_tables->taken(), firsts + 2)
        << "the kernel keeps them with the mapping";
    first.unmap(*b);
    EXPECT_EQ(strangers.page_tables->taken(), 2u);
    EXPECT_TRUE(second.map({&other_span, 1}, {}));
    EXPECT_EQ(second.limit_met(), "");
  });
}

// An lcore touches late pieces as they are filled: in each slice one page may be enough.
TEST_F(ClientMemoryTest, PageTablesOfLatePiecesAreCounted) {
  in_child([&] {
    PageTableBudgets budgets(100);
    ClientMemory memory(mirror_, &gone_,
                        MemoryTerms{.stranger = 1000, .page_tables = budgets.of(1000)});
    const int fill_map = memfd_create("fill-map", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ftruncate(fill_map, kPage));
    populate(fill_map, 0, kPage);
    ASSERT_EQ(0, fcntl(fill_map, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    const MemoryRegion late{kVa, 64 * kSliceBytes, RegionKind::kMirrorLate, 0, 0};
    const auto pieces = memory.map({&late, 1}, {&fill_map, 1});
    ASSERT_TRUE(pieces) << pieces.error();
    // The levels above have one or two more, by where the kernel maps it.
    EXPECT_GE(budgets.of(1000)->taken(), 64u + 1 + 2);
    EXPECT_LE(budgets.of(1000)->taken(), 64u + 1 + 4);
    const MemoryRegion more{kVa + 64 * kSliceBytes, 64 * kSliceBytes, RegionKind::kMirrorLate, 0,
                            64};
    EXPECT_FALSE(memory.map({&more, 1}, {&fill_map, 1}));
    EXPECT_EQ(memory.refusal(), ENOMEM);
    memory.unmap(*pieces);
    EXPECT_EQ(budgets.of(1000)->taken(), 0u);
    close(fill_map);
  });
}

TEST_F(ClientMemoryTest, SigbusElsewhereAborts) {
  ASSERT_EXIT(
      {
        install_sigbus_guard();
        ftruncate(file_, 0);
        auto* at = static_cast<volatile char*>(
            mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
        at[0] = 1;
        _exit(0);
      },
      ::testing::KilledBySignal(SIGABRT), "SIGBUS outside client memory");
}

TEST(MemFd, TellsGoneFromUnmapped) {
  int to_parent[2], to_child[2];
  ASSERT_EQ(0, pipe(to_parent));
  ASSERT_EQ(0, pipe(to_child));
  Buffer buffer(4 * kPage);
  buffer.fill(1);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(to_child[1]);
    if (write(to_parent[1], "", 1) == 1 && read(to_child[0], &byte, 1) == 1) _exit(0);
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(1, read(to_parent[0], &byte, 1));
  const int fd = open(("/proc/" + std::to_string(child) + "/mem").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0) << std::strerror(errno);
  std::vector<std::byte> bytes(kPage);
  EXPECT_EQ(MemFdResult::kOk, read_client(fd, buffer.va() + 10, bytes));
  EXPECT_EQ(0, std::memcmp(bytes.data(), buffer.data() + 10, kPage));
  std::byte a{1}, b[2] = {std::byte{2}, std::byte{3}};
  const iovec parts[] = {{&a, 1}, {b, 2}};
  EXPECT_EQ(MemFdResult::kOk, write_client_gather(fd, buffer.va(), parts));
  a = b[0] = b[1] = std::byte{0};
  EXPECT_EQ(MemFdResult::kOk, read_client_scatter(fd, buffer.va(), parts));
  EXPECT_EQ(std::byte{1}, a);
  EXPECT_EQ(std::byte{3}, b[1]);
  EXPECT_EQ(MemFdResult::kFault, write_client(fd, kPage, bytes));
  EXPECT_EQ(MemFdResult::kFault, write_client(fd, UINT64_MAX - kPage, bytes));
  ASSERT_EQ(1, write(to_child[1], "", 1));
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(MemFdResult::kGone, write_client(fd, buffer.va(), bytes));
  for (const int end : {to_parent[0], to_parent[1], to_child[0], to_child[1], fd}) close(end);
}

}  // namespace
}  // namespace hostnic::memory_testing
