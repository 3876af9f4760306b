// SPDX-License-Identifier: BSD-3-Clause
// What has gone wrong in this hostnicd: each kind of thing once, with its count, when it was first
// and last, and the newest of its lines. Two lines are of one kind if they differ in numbers and in
// the names of programs only. Bounded: where there are too many kinds the one that was longest ago
// makes room. With a directory the book survives restarts of hostnicd.
//
// Any thread but an lcore, but where it says otherwise.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace hostnic {

class ErrorBook {
 public:
  static constexpr size_t kMaxKinds = 256;
  static constexpr size_t kMaxLineBytes = 600;

  struct Entry {
    std::string kind;
    uint64_t count = 0;
    uint64_t first_s = 0, last_s = 0;  // seconds of UNIX time
    std::string example;               // the newest line
  };

  // Notes a line; returns how many of its kind there have been. Longer lines are cut, what is not
  // printable becomes '?'.
  uint64_t note(std::string_view line, uint64_t now_s);
  // The entries, the latest one first.
  std::vector<Entry> entries() const;
  // How many lines belonged to kinds that had to make room.
  uint64_t forgotten() const;

  // What lines of one kind have in common: numbers are N, the name before "(pid" is NAME.
  static std::string kind_of(std::string_view line);

  // Says where the book is kept from now on, and adds what is kept there. Returns an errno value.
  // Lines of the file that make no sense are left out. Called by the control thread.
  int keep_in(const std::string& directory);
  // Writes the book if it has changed and somewhere to be; the old file stays until the new one is
  // whole. Returns an errno value. Called by the control thread.
  int save();
  // Whether there is something to write.
  bool unsaved() const;

  // The book as a file: a line for each entry, its fields apart by tabs.
  static std::string to_file(const std::vector<Entry>& entries);
  static std::vector<Entry> from_file(std::string_view text);

 private:
  Entry& entry_for(std::string kind);  // under mutex_

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  uint64_t forgotten_ = 0;
  bool changed_ = false;
  std::string path_;
};

// hostnicd's own.
ErrorBook& error_book();

// Notes a line in it as of now; returns how many of its kind there have been.
uint64_t note_error(std::string_view line);

// Whether the so-manieth line of a kind is worth a place in a log: the first few, then ever fewer.
bool worth_a_line(uint64_t count);

}  // namespace hostnic
