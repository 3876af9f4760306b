// SPDX-License-Identifier: BSD-3-Clause
// What Linux gives a program whose registered pages an adapter has pinned: which page of memory is
// at which address, what is in it, and to which pages a key leads.
#pragma once

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/apps/twin/content.h"

namespace hostnic::twin {

// A file, or what a shared anonymous mapping has in its place.
struct Object {
  int fd = -1;
  bool sealable = false;
  bool immutable = false;  // private mappings of it show its bytes: nobody changes them
  bool fixed_size = false;
  bool segment = false;  // of System V
  unsigned seals = 0;
  uint64_t pages = 0;
  std::vector<FrameRef> frames;
  std::vector<int> mapped;  // by how many places each page can be seen

  FrameRef frame(uint64_t page);
  // Another page, of zeros, takes the place of this one.
  void replace(uint64_t page);
  ~Object();
};
using ObjectRef = std::shared_ptr<Object>;

struct Page {
  uint32_t mapping = 0;
  uint64_t slot = 0;  // its number, which goes along when the program moves it
  int prot = PROT_READ | PROT_WRITE;
  bool shared = false;
  bool huge = false;  // of hugetlbfs
  bool locked = false;
  bool dont_fork = false;
  bool wipe_on_fork = false;
  bool lazy = false;  // MADV_FREE: MADV_PAGEOUT may take its bytes
  bool keep = false;  // stays mapped, and writable: others register it
  bool heap = false;  // of brk
  ObjectRef object;
  uint64_t object_page = 0;
  FrameRef discarded;  // what the program emptied here last
  FrameRef own;        // of a private mapping; null: untouched, or the file's

  FrameRef frame() const;
  bool beyond_end() const { return object != nullptr && object_page >= object->pages; }
  bool can_read() const { return (prot & PROT_READ) != 0 && !beyond_end(); }
  bool can_write() const { return (prot & PROT_WRITE) != 0 && !beyond_end(); }
};

// Pages that follow each other and are of one mapping.
struct Run {
  uint64_t first = 0;  // address / kPage
  size_t pages = 0;
  uint64_t address() const { return first * kPage; }
  uint64_t end() const { return (first + pages) * kPage; }
};

// A block of the heap. Its pages begin with it.
struct Block {
  uint8_t* at = nullptr;
  size_t bytes = 0;
  std::vector<FrameRef> frames;
  bool fixed = false;      // of the program's data or its stack: never freed
  bool is_mapped() const;  // by itself: it isn't a part of a heap
};
using BlockRef = std::shared_ptr<Block>;

// The part of a region that lies in one page.
struct Segment {
  FrameRef frame;
  uint32_t offset = 0;  // in the page
  uint32_t length = 0;
  uint64_t address = 0;  // in the region
  uint32_t mapping = 0;  // that the page was of; 0: a block of the heap
  uint64_t slot = 0;     // of the page
  ObjectRef object;      // of a shared page
  uint64_t object_page = 0;
  bool dead = false;  // may be anybody's: never reached by us any more
};

struct Region {
  ibv_mr* mr = nullptr;
  uint64_t address = 0;
  size_t length = 0;
  int access = 0;
  std::vector<Segment> segments;
  bool cut_off = false;  // some of its file was cut off
  // That of the segments what lies in [offset, offset + length).
  std::vector<Segment> part(uint64_t offset, size_t length) const;
};

class Model {
 public:
  std::map<uint64_t, Page> pages;  // by address / kPage
  std::vector<BlockRef> blocks;
  uint32_t next_mapping = 1;
  // Whether what goes away at this moment does so by a call of the C library's.
  bool by_libc = true;
  // Mappings that have been changed in part: the kernel may have made several areas of them.
  std::map<uint32_t, bool> split;

  void put(uint64_t number, Page page);
  void remove(uint64_t first, size_t count);
  // What MADV_DONTNEED does to a page.
  void discard(Page& page, uint64_t number);
  // A private page of its own, where it was the file's or nobody's.
  void make_own(Page& page, uint64_t number);
  Page* find(uint64_t number);
  // The number of the page that has the slot now; 0: none.
  uint64_t find_slot(uint64_t slot) const;
  std::vector<Run> runs(const std::function<bool(const Page&)>& wanted) const;
  // How many pages from `first` on are mapped, and wanted.
  size_t extent(uint64_t first, size_t most, const std::function<bool(const Page&)>& wanted) const;
  bool is_free(uint64_t first, size_t count) const;
  // What the program writes, in its own memory.
  void write(uint64_t address, const uint8_t* bytes, size_t length);
  void read(uint64_t address, uint8_t* to, size_t length);
  std::vector<Segment> segments(uint64_t address, size_t length);

  static std::vector<Segment> segments(const Block& block, size_t offset, size_t length);
  void add(const BlockRef& block);
  void drop(const BlockRef& block);
  static void write(Block& block, size_t offset, const uint8_t* bytes, size_t length);

 private:
  void attach(Page& page, uint64_t number);
  void detach(Page& page);

  uint64_t last_slot_ = 0;
  std::unordered_map<uint64_t, uint64_t> slots_;  // to page numbers
};

}  // namespace hostnic::twin
