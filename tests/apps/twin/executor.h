// SPDX-License-Identifier: BSD-3-Clause
// Does operations, on the program's memory and on the model of it, and compares them.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/apps/twin/calls.h"
#include "tests/apps/twin/model.h"
#include "tests/apps/twin/operations.h"
#include "tests/apps/twin/peer.h"

namespace hostnic::twin {

struct Settings {
  uint64_t seed = 1;
  Choice choice;
  bool may_refuse = false;  // registrations: HOSTNIC_MEMORY asks for a way that not all memory has
  // Where pages migrate private memory may be a file's for now, which takes no bare MADV_FREE, and
  // a page without access may keep memory from growing in place. A bare mremap is of one area of
  // the kernel's: elsewhere there would be one where there are several.
  bool bare_may_fail = false;
  bool verbose = false;
  std::string again;  // the command that repeats it
};

// How long the longest call of each kind took.
using Longest = std::array<double, kKinds>;

class Executor {
 public:
  // `ends` and `peer` are null in threads and in dry runs.
  Executor(const Settings& settings, const Profile& profile, uint64_t arena, Ends* ends, Peer* peer,
           unsigned thread = 0);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run(const Operation& operation, size_t index);
  // Deregisters what is registered, and compares all that there is.
  void finish();
  // Ends the process: this is what the twin is for.
  [[noreturn]] void fail(const std::string& why);

  // Pages that others register, and of which every fourth belongs to them.
  void keep(uint64_t first, size_t count, size_t every);
  // Memory of the program's data or its stack, which stays for as long as the executor does.
  void add_fixed(uint8_t* at, size_t bytes);
  Longest longest{};
  Model model;

 private:
  struct Range {
    uint64_t address = 0;
    size_t length = 0;
    uint64_t first() const { return address / kPage; }
    size_t pages() const { return length / kPage; }
    uint64_t end() const { return address + length; }
  };
  // Where bytes can be put or got: mapped pages, or a part of a block.
  struct Place {
    uint64_t address = 0;
    size_t length = 0;
    BlockRef block;
    size_t offset = 0;
  };
  using Filter = std::function<bool(const Page&)>;

  // ---- what to do it to
  std::optional<Range> pick_pages(const Filter& wanted, size_t most = SIZE_MAX);
  std::optional<Range> pick_run(const Filter& wanted);
  std::optional<Place> pick_place(const Filter& wanted, size_t most_bytes);
  uint64_t find_gap(size_t count, uint64_t random, size_t align = 1) const;
  uint64_t random(size_t which) const { return operation_.random[which]; }
  // A page's place in the arena.
  int64_t shown(uint64_t number) const { return static_cast<int64_t>(number - arena_); }
  uint32_t new_mapping() { return model.next_mapping++; }
  void mark_split(const Range& range);
  bool is_split(uint64_t first) { return model.split[model.pages.at(first).mapping]; }
  // Its bytes are not known, for now.
  static bool is_busy(const Page& page);
  static bool is_streamed(const Page& page);
  static bool is_plain(const Page& page) { return !page.huge && !page.heap; }
  // A shared page of a file system: an adapter can't pin it for writing (Linux 6.5).
  static bool is_on_disk(const Page& page) {
    return page.shared && page.object->fixed_size && page.object->fd >= 0;
  }
  bool in_arena(const Range& range) const;

  // ---- saying and timing
  template <typename... T>
  void say(fmt::format_string<T...> format, T&&... arguments) {
    line_ += fmt::format(format, std::forward<T>(arguments)...);
  }
  void skip() { line_ += " (nothing to do it to)"; }
  template <typename F>
  auto timed(F&& call) {
    const double start = now_s();
    const pid_t caller = getpid();
    const auto result = call();
    const int error = errno;
    // A child may be stopped before it comes out of fork.
    if (getpid() == caller) note_time(now_s() - start);
    errno = error;
    return result;
  }
  void note_time(double seconds);
  void expect(bool succeeded, int expected_error, const char* what);
  bool bare_call_failed(bool failed, int error);
  // Whether a bare mremap may take a page: advice about forks would not go along.
  bool may_move(const Page& page) const;

  // ---- comparing
  void check_page(uint64_t number, const Page& page);
  void check_range(uint64_t address, size_t length);
  void check_place(const Place& place);
  void check_block(const Block& block);
  void check_everything();
  void check_signals();
  [[noreturn]] void differs(uint64_t address, const uint8_t* got, const uint8_t* expected,
                            size_t length);
  std::vector<uint8_t> content(size_t length, uint64_t seed) const;
  void wrote(const Place& place, const uint8_t* bytes);
  std::vector<uint8_t> expected(const Place& place);
  void store_some_private(unsigned times);

  // ---- mappings (run_mappings.cc)
  void map(bool over);
  void unmap();
  void move(bool over);
  void move_dont_unmap();
  void grow(bool in_place);
  void shrink();
  void protect();
  enum ObjectKind : unsigned { kAnonymous, kMemfd, kShm, kDisk };
  ObjectRef new_object(unsigned kind, size_t pages);
  void fill_pages(const Range& range, uint64_t seed);

  // ---- advice, locks (run_advice.cc)
  void advise(int advice);
  void dont_need();
  void discard(const Range& range);
  void make_guards();
  void guard(const Range& range);
  static bool can_make_guards();
  static bool may_be_guard(const Page& page);
  void remove_pages();
  void huge_page();
  void dont_fork();
  void wipe_on_fork();
  void lock();
  void unlock();
  void lock_all();
  void register_after_lock();
  void unlock_all();
  std::optional<size_t> locked_at(const Range& range);

  // ---- heap (run_heap.cc)
  void allocate();
  void reallocate();
  void free_block();
  void trim();
  void move_break();
  BlockRef pick_block(bool busy_too = false);
  void block_gone(const Block& block, size_t keep_bytes, bool reachable);

  // ---- processes (run_processes.cc)
  void fork_child(bool late, bool raw);
  void fork_stopped();
  void reap();
  void reap_one(pid_t child);
  [[noreturn]] void child(bool late, unsigned delay_ms, bool fork_again);
  void start_program(bool by_vfork);

  // ---- files (run_files.cc)
  ObjectRef pick_object(const std::function<bool(const Object&)>& wanted);
  void seal();
  void punch();
  void truncate();
  void file_write();
  bool object_busy(const Object& object) const;

  // ---- segments (run_segments.cc)
  void attach();
  void detach();

  // ---- bytes by system calls (run_bytes.cc)
  void store();
  void check();
  void read_into();
  void write_from();
  void read_invalid();
  void direct();
  void ring();
  void peer_vm();
  void splice_pages();
  void user_fault();
  void guard();
  void signals();

  // ---- verbs (run_registrations.cc, run_requests.cc)
  struct Target {
    Region* region = nullptr;
    uint64_t offset = 0;
    size_t length = 0;
    std::vector<Segment> parts;
    bool strict = true;  // an adapter's result and ours must be the same
    uint64_t address() const { return region->address + offset; }
  };
  void register_memory();
  void reregister();
  void deregister();
  bool choose_range(uint64_t& address, size_t& length, int access, bool& valid,
                    std::vector<Segment>& segments);
  std::optional<Target> pick_target(int access, size_t least, size_t most, bool aligned,
                                    bool strict_only);
  // The page that is there now.
  struct Present {
    FrameRef frame;   // null: none, or another mapping's
    uint64_t at = 0;  // where the program sees the part; 0: nowhere, or it can't look
    Page* page = nullptr;
    uint64_t number = 0;  // of the page
  };
  Present present(const Segment& part);
  void peer_write();
  void peer_read();
  void peer_atomic();
  void peer_send(bool datagram);
  void send_out();
  void write_out();
  void read_in();
  void stream();
  void end_stream();
  void stream_deregistered();
  void share_atomics();
  bool register_file_page();
  bool succeeded(const Target& target, int status, const char* what);
  void arrived(const Target& target, const uint8_t* bytes, bool success);
  void compare_read(const Target& target, const uint8_t* got);
  void reconnect();

  const Settings& settings_;
  const Profile& profile_;
  const uint64_t arena_;  // first page
  const uint64_t arena_pages_;
  uint64_t zone_pages_ = 0;  // at the arena's beginning: some are others'
  Ends* ends_;
  Peer* peer_;
  unsigned thread_;
  bool check_all_ = false;  // after each operation
  bool can_lock_all_ = false;
  bool lock_future_ = false;
  Operation operation_;
  size_t index_ = 0;
  std::string line_;
  std::deque<std::string> lines_;
  std::vector<std::weak_ptr<Object>> objects_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<pid_t> children_;
  struct Stream {
    std::vector<Segment> parts;
    uint64_t seed = 0, pages = 0;
    Region* region = nullptr;  // null: deregistered meanwhile
  };
  std::optional<Stream> stream_;
  uint64_t signal_page_ = 0;
  ibv_mr* signal_mr_ = nullptr;
  std::vector<uint8_t> results_;  // of atomics
  ibv_mr* results_mr_ = nullptr;
};

// Installs the handlers of the thread that runs an executor (run_bytes.cc).
void install_handlers();
// The number of registered pages that a signal handler counts in, and what it should be.
void start_signals(uint64_t word_address);
void stop_signals();
uint64_t signals_seen();

}  // namespace hostnic::twin
