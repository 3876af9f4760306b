// SPDX-License-Identifier: BSD-3-Clause
// Memory that the program gives away while a key leads to it by the mem fd: the key keeps the
// pages, as an adapter does that has pinned them.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/unit/memory/watching.h"

namespace hostnic::memory_testing {
namespace {

constexpr size_t kBytes = 8 * kPage;

class MemoryKept : public MemoryWatch {
 protected:
  // Registers what the mem fd reaches; the number is for release().
  uint64_t add(uint64_t va, uint64_t length) {
    auto registration = registrar().add(va, length, /*need_write=*/true);
    EXPECT_TRUE(registration) << registration.error().message;
    if (!registration) return 0;
    for (const MemoryRegion& region : registration->regions)
      EXPECT_EQ(RegionKind::kMemFd, region.kind);
    return registration->number;
  }
  // Where the NIC finds what was registered at `va`, all changes told.
  uint64_t place(uint64_t va) {
    wait_for_revoker();
    return device.place_of(va);
  }
  static std::string read_at(uint64_t va, size_t length) {
    std::string bytes(length, '\0');
    const auto got =
        read_client(registrar().mem_fd(), va, {reinterpret_cast<std::byte*>(bytes.data()), length});
    return got == MemFdResult::kOk ? bytes : "nothing";
  }
  static bool write_at(uint64_t va, std::string bytes) {
    return write_client(registrar().mem_fd(), va,
                        {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}) ==
           MemFdResult::kOk;
  }
};

// Private pages of a file: they never migrate.
class PrivateFile {
 public:
  PrivateFile() : file_(memfd_create("private", MFD_CLOEXEC)) {
    EXPECT_EQ(0, ftruncate(file_.get(), kBytes));
  }
  int fd() const { return file_.get(); }

 private:
  UniqueFd file_;
};

// Keeps a gap from being somebody else's: a Buffer unmaps all of itself at its end.
void hold(const std::byte* at, size_t length) {
  memory::raw_mmap(const_cast<std::byte*>(at), length, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}
int unmap(std::byte* at, size_t length) {
  const int result = munmap(at, length);
  hold(at, length);
  return result;
}

void put(uint64_t va, const char* text) {
  std::memcpy(reinterpret_cast<void*>(va), text, std::strlen(text));
}

TEST_F(MemoryKept, WhatIsUnmappedOrMappedOver) {
  const PrivateFile file;
  for (const bool over : {false, true}) {
    Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
    const uint64_t va = buffer.va() + kSkew, last = va + 5 * kPage;
    wait_for_revoker();
    device.forget_revocations();
    put(va, "before");
    put(last, "last");
    const uint64_t number = add(va, 6 * kPage);
    const bool gone = over ? buffer.data() == mmap(buffer.data(), kBytes, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
                           : unmap(buffer.data(), kBytes) == 0;
    ASSERT_TRUE(gone) << std::strerror(errno);
    const uint64_t kept = place(va), kept_last = place(last);
    ASSERT_NE(0u, kept);
    EXPECT_NE(va, kept);
    EXPECT_EQ("before", read_at(kept, 6));
    EXPECT_EQ("last", read_at(kept_last, 4));
    EXPECT_TRUE(write_at(kept, "after"));
    EXPECT_EQ("aftere", read_at(kept, 6));
    if (over) {
      EXPECT_EQ(std::byte{}, buffer.data()[kSkew]) << "the program's new page is its own";
    }
    registrar().remove(va, 6 * kPage, number);
    EXPECT_EQ("nothing", read_at(kept, 6)) << "nothing is kept for nobody";
    EXPECT_EQ("nothing", read_at(kept_last, 4));
  }
}

TEST_F(MemoryKept, WhatStaysBecauseTheCallFails) {
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
  const uint64_t va = buffer.va() + kSkew;
  put(va, "still here");
  const uint64_t number = add(va, 2 * kPage);
  EXPECT_EQ(MAP_FAILED, mmap(buffer.data(), kBytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0));
  EXPECT_EQ(EBADF, errno);
  EXPECT_EQ(MAP_FAILED, mremap(buffer.data(), kBytes, kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
                               buffer.data() + kPage));  // onto itself
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(0, std::memcmp(buffer.data() + kSkew, "still here", 10));
  EXPECT_EQ(va, place(va));
  EXPECT_EQ("still here", read_at(va, 10));
  registrar().remove(va, 2 * kPage, number);
}

// A part of what is registered, and again what has been registered there since: each key keeps its
// own pages, and no longer than it lasts.
TEST_F(MemoryKept, PartsAndGenerations) {
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
  const auto map_again = [&] {
    return mmap(buffer.data(), kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file.fd(),
                0);
  };
  uint64_t older = add(buffer.va(), kBytes);
  for (int round = 0; round < 5; round++) {
    const std::string text = "round " + std::to_string(round);
    put(buffer.va() + 3 * kPage, text.c_str());
    ASSERT_EQ(buffer.data() + 3 * kPage,  // a gap might be taken by somebody else
              mmap(buffer.data() + 3 * kPage, kPage, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    const uint64_t kept = place(buffer.va() + 3 * kPage);
    EXPECT_EQ(buffer.va() + 2 * kPage, place(buffer.va() + 2 * kPage));
    EXPECT_EQ(buffer.va() + 4 * kPage, place(buffer.va() + 4 * kPage));
    EXPECT_EQ(text, read_at(kept, text.size()));
    ASSERT_EQ(buffer.data(), map_again());
    wait_for_revoker();
    device.forget_revocations();
    const uint64_t newer = add(buffer.va(), kBytes);
    registrar().remove(buffer.va(), kBytes, older);
    EXPECT_EQ("nothing", read_at(kept, text.size())) << "kept for a newer registration";
    older = newer;
  }
  registrar().remove(buffer.va(), kBytes, older);
}

TEST_F(MemoryKept, WhatTwoKeysLeadTo) {
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
  put(buffer.va() + kPage, "one");
  put(buffer.va() + 3 * kPage, "both");
  const uint64_t first = add(buffer.va() + kPage, 3 * kPage);
  const uint64_t second = add(buffer.va() + 2 * kPage, 5 * kPage);
  ASSERT_EQ(0, unmap(buffer.data(), kBytes));
  const uint64_t one = place(buffer.va() + kPage), both = place(buffer.va() + 3 * kPage);
  registrar().remove(buffer.va() + kPage, 3 * kPage, first);
  EXPECT_EQ("nothing", read_at(one, 3));
  EXPECT_EQ("both", read_at(both, 4));
  registrar().remove(buffer.va() + 2 * kPage, 5 * kPage, second);
  EXPECT_EQ("nothing", read_at(both, 4));
}

TEST_F(MemoryKept, WhatHasMovedAndWhatIsCutOff) {
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd()), target(kBytes);
  put(buffer.va(), "moved");
  put(buffer.va() + 7 * kPage, "cut off");
  const uint64_t number = add(buffer.va(), kBytes);
  ASSERT_EQ(target.data(),
            mremap(buffer.data(), kBytes, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
  hold(buffer.data(), kBytes);
  hold(target.data() + 4 * kPage, 4 * kPage);
  EXPECT_EQ(target.va(), place(buffer.va()));
  const uint64_t tail = place(buffer.va() + 7 * kPage);
  EXPECT_EQ("cut off", read_at(tail, 7));
  ASSERT_EQ(0, unmap(target.data(), 4 * kPage));
  const uint64_t kept = place(buffer.va());
  EXPECT_EQ("moved", read_at(kept, 5));
  registrar().remove(buffer.va(), kBytes, number);
  EXPECT_EQ("nothing", read_at(kept, 5));
  EXPECT_EQ("nothing", read_at(tail, 7));
}

// Registered, moved, and registered again where it is then.
TEST_F(MemoryKept, WhatWasRegisteredAtTwoPlaces) {
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd()), target(kBytes);
  put(buffer.va() + kPage, "once");
  const uint64_t first = add(buffer.va(), 4 * kPage);
  ASSERT_EQ(target.data(),
            mremap(buffer.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, target.data()));
  hold(buffer.data(), kBytes);
  const uint64_t second = add(target.va() + kPage, 5 * kPage);
  ASSERT_EQ(0, unmap(target.data(), kBytes));
  const uint64_t both = place(buffer.va() + kPage), of_second = place(target.va() + 5 * kPage);
  registrar().remove(target.va() + kPage, 5 * kPage, second);
  EXPECT_EQ("nothing", read_at(of_second, 4));
  EXPECT_EQ("once", read_at(both, 4));
  registrar().remove(buffer.va(), 4 * kPage, first);
  EXPECT_EQ("nothing", read_at(both, 4));
}

// A bare move leaves an area at the old place: its end must not be told as that of what lies beside
// it, which is kept.
TEST_F(MemoryKept, WhatLiesBesideWhatABareMoveHasLeft) {
  needs_watch();
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd()), target(kPage);
  put(buffer.va() + 5 * kPage, "beside");
  const uint64_t number = add(buffer.va(), kBytes);
  constexpr int kLeaves = 4;  // MREMAP_DONTUNMAP
  ASSERT_EQ(target.data(),
            memory::raw_mremap(buffer.data() + 2 * kPage, kPage, kPage,
                               MREMAP_MAYMOVE | MREMAP_FIXED | kLeaves, target.data()));
  EXPECT_EQ(target.va(), place(buffer.va() + 2 * kPage));
  ASSERT_EQ(0, unmap(buffer.data(), kBytes));
  EXPECT_EQ("beside", read_at(place(buffer.va() + 5 * kPage), 6));
  EXPECT_EQ(target.va(), place(buffer.va() + 2 * kPage));
  registrar().remove(buffer.va(), kBytes, number);
}

// The kernel watches what has grown in place, and would report the end of all that is mapped over.
TEST_F(MemoryKept, WhatHasGrownBesideIt) {
  needs_watch();
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
  put(buffer.va(), "grown");
  ASSERT_EQ(0, memory::raw_munmap(buffer.data() + 2 * kPage, kBytes - 2 * kPage));
  const uint64_t number = add(buffer.va(), 2 * kPage);
  if (memory::raw_mremap(buffer.data(), 2 * kPage, 3 * kPage, 0, nullptr) == MAP_FAILED)
    GTEST_SKIP() << "somebody else is there";
  ASSERT_EQ(buffer.data(), mmap(buffer.data(), 3 * kPage, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  EXPECT_EQ("grown", read_at(place(buffer.va()), 5));
  registrar().remove(buffer.va(), 2 * kPage, number);
  hold(buffer.data() + 3 * kPage, kBytes - 3 * kPage);
}

// So it does when that has been divided: no part of the area is known to be watched.
TEST_F(MemoryKept, WhatHasGrownAndIsAnAreaOfItsOwn) {
  needs_watch();
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
  put(buffer.va(), "grown");
  ASSERT_EQ(0, memory::raw_munmap(buffer.data() + 2 * kPage, kBytes - 2 * kPage));
  const uint64_t number = add(buffer.va(), 2 * kPage);
  if (memory::raw_mremap(buffer.data(), 2 * kPage, 6 * kPage, 0, nullptr) == MAP_FAILED)
    GTEST_SKIP() << "somebody else is there";
  ASSERT_EQ(0, memory::raw_madvise(buffer.data() + 3 * kPage, kPage, MADV_DONTDUMP));
  ASSERT_EQ(0, unmap(buffer.data(), 6 * kPage));
  EXPECT_EQ("grown", read_at(place(buffer.va()), 5));
  registrar().remove(buffer.va(), 2 * kPage, number);
}

// The kernel watches what has grown in the mirror as well, of which a part is registered here.
TEST_F(MemoryKept, WhatHasGrownInTheMirrorBesideIt) {
  needs_watch();
  if (!migrates()) GTEST_SKIP() << registrar().status();
  Buffer buffer(kBytes);
  std::memset(buffer.data(), 6, 2 * kPage);
  ASSERT_EQ(0, memory::raw_munmap(buffer.data() + 2 * kPage, kBytes - 2 * kPage));
  Nic::Mr mr;
  ASSERT_TRUE(nic.add(buffer.va(), 2 * kPage, mr)) << nic.error;
  ASSERT_EQ(buffer.data(), memory::raw_mremap(buffer.data(), 2 * kPage, 6 * kPage, 0, nullptr))
      << std::strerror(errno);
  const uint64_t va = buffer.va() + 5 * kPage;
  put(va, "grown");
  const uint64_t number = add(va, kPage);
  std::byte* const over = buffer.data() + 3 * kPage;
  ASSERT_EQ(over, mmap(over, 3 * kPage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  EXPECT_EQ("grown", read_at(place(va), 5));
  registrar().remove(va, kPage, number);
  nic.remove(mr);
  hold(buffer.data() + 6 * kPage, kBytes - 6 * kPage);
}

// Nobody has a part of a watched area registered any more; its end is told by the call that takes
// it, and not afterwards.
TEST_F(MemoryKept, WhatMovesToAPartThatNobodyHas) {
  needs_watch();
  const PrivateFile file;
  for (int round = 0; round < 50; round++) {
    wait_for_revoker();
    device.forget_revocations();  // of the round before
    Buffer buffer(kBytes, MAP_PRIVATE, file.fd()), target(4 * kPage, MAP_PRIVATE, file.fd());
    const uint64_t beside = add(target.va(), kPage), number = add(buffer.va(), 2 * kPage);
    ASSERT_EQ(target.data() + 2 * kPage,
              mremap(buffer.data(), 2 * kPage, 2 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
                     target.data() + 2 * kPage));
    hold(buffer.data(), 2 * kPage);
    EXPECT_EQ(target.va() + 2 * kPage, place(buffer.va()));
    registrar().remove(buffer.va(), 2 * kPage, number);
    registrar().remove(target.va(), kPage, beside);
  }
}

TEST_F(MemoryKept, BlocksOfTheHeap) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory for a while";
#endif
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  for (const bool aligned : {false, true}) {
    void* const block = aligned ? std::aligned_alloc(kPage, 64 * kMiB) : std::malloc(64 * kMiB);
    const auto va = reinterpret_cast<uint64_t>(block) + 8;
    put(va, "freed");
    wait_for_revoker();
    device.forget_revocations();  // of what was at the same address
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(va, 1000, mr)) << nic.error;
    std::free(block);
    const uint64_t kept = place(va);
    EXPECT_EQ("freed", read_at(kept, 5));
    nic.remove(mr);
    EXPECT_EQ("nothing", read_at(kept, 5));
  }
}

// The kernel unlocks all of an area of which a part moves away.
TEST_F(MemoryKept, WhatIsLockedBesideItStaysLocked) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer makes mlock do nothing";
#endif
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
  ASSERT_EQ(0, mlock(buffer.data(), kBytes)) << std::strerror(errno);
  const uint64_t number = add(buffer.va() + 3 * kPage, kPage);
  ASSERT_EQ(0, unmap(buffer.data() + 3 * kPage, kPage));
  memory::RawVector<memory::Area> areas;
  ASSERT_TRUE(memory::read_areas(buffer.va(), buffer.va() + kBytes, areas));
  memory::mark_locked(areas);
  size_t locked = 0;
  for (const memory::Area& area : areas)
    if (area.locked) locked += area.end - area.start;
  EXPECT_EQ(7 * kPage, locked);
  registrar().remove(buffer.va() + 3 * kPage, kPage, number);
}

// Where there is no room for a second place the memory goes, and so does the key: no call fails.
TEST_F(MemoryKept, WithoutRoomForIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer needs more address space than any limit leaves";
#endif
  const PrivateFile file;
  Buffer much(64 * kMiB);
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
  const uint64_t first = add(much.va() + kSkew, 100), second = add(buffer.va(), kBytes);
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit full{pages * kPage, before.rlim_max};
  ASSERT_EQ(0, setrlimit(RLIMIT_AS, &full));
  const int first_error = munmap(much.data(), much.size()) == 0 ? 0 : errno;
  const int second_error = munmap(buffer.data(), kBytes) == 0 ? 0 : errno;
  setrlimit(RLIMIT_AS, &before);
  hold(much.data(), much.size());
  hold(buffer.data(), kBytes);
  EXPECT_EQ(0, first_error);
  EXPECT_EQ(0, second_error);
  registrar().remove(much.va() + kSkew, 100, first);
  registrar().remove(buffer.va(), kBytes, second);
}

TEST_F(MemoryKept, AChildHasNoneOfIt) {
  const PrivateFile file;
  Buffer buffer(kBytes, MAP_PRIVATE, file.fd());
  const uint64_t number = add(buffer.va(), kBytes);
  ASSERT_EQ(0, unmap(buffer.data(), kBytes));
  const uint64_t kept = place(buffer.va());
  in_child([&] {
    memory::RawVector<memory::Area> areas;
    ASSERT_TRUE(memory::read_areas(kept, kept + kBytes, areas));
    EXPECT_TRUE(areas.empty());
  });
  registrar().remove(buffer.va(), kBytes, number);
}

}  // namespace
}  // namespace hostnic::memory_testing
