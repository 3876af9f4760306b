// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/error_book.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

constexpr std::string_view kFileName = "errors.tsv";
// A file of ours has less.
constexpr size_t kMaxFileBytes = 2 * ErrorBook::kMaxKinds * (ErrorBook::kMaxLineBytes + 100);
constexpr uint64_t kLinesOfAKind = 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

std::string one_line(std::string_view text) {
  std::string line(text.substr(0, ErrorBook::kMaxLineBytes));
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

std::optional<uint64_t> take_number(std::string_view& line) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc() || end == line.data() + line.size() || *end != '\t') return std::nullopt;
  line.remove_prefix(static_cast<size_t>(end - line.data()) + 1);
  return value;
}

}  // namespace

std::string ErrorBook::kind_of(std::string_view line) {
  std::string kind;
  for (size_t i = 0; i < line.size();) {
    if (!is_digit(line[i])) {
      kind += line[i++];
      continue;
    }
    // A whole number, or an address with its points: 0x66c7, 127.77.0.1, 1.5.
    const bool hex = line.substr(i).starts_with("0x");
    if (hex) i += 2;
    while (i < line.size() && (hex ? is_hex(line[i])
                                   : is_digit(line[i]) || (line[i] == '.' && i + 1 < line.size() &&
                                                           is_digit(line[i + 1]))))
      ++i;
    kind += 'N';
  }
  constexpr std::string_view kPid = " (pid ";
  for (size_t at = kind.find(kPid); at != std::string::npos; at = kind.find(kPid, at + 1)) {
    const size_t space = kind.rfind(' ', at == 0 ? 0 : at - 1);
    const size_t begin = space == std::string::npos || space >= at ? 0 : space + 1;
    kind.replace(begin, at - begin, "NAME");
    at = begin + 4;
  }
  return kind;
}

ErrorBook::Entry& ErrorBook::entry_for(std::string kind) {
  const auto known = std::ranges::find(entries_, kind, &Entry::kind);
  if (known != entries_.end()) return *known;
  if (entries_.size() < kMaxKinds) return entries_.emplace_back(Entry{.kind = std::move(kind)});
  Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::last_s);
  forgotten_ += oldest.count;
  oldest = Entry{.kind = std::move(kind)};
  return oldest;
}

uint64_t ErrorBook::note(std::string_view line, uint64_t now_s) {
  std::string example = one_line(line);
  std::string kind = kind_of(example);
  std::lock_guard lock(mutex_);
  Entry& entry = entry_for(std::move(kind));
  if (entry.count == 0) entry.first_s = now_s;
  entry.last_s = std::max(entry.last_s, now_s);
  entry.example = std::move(example);
  changed_ = true;
  return ++entry.count;
}

std::vector<ErrorBook::Entry> ErrorBook::entries() const {
  std::vector<Entry> entries;
  {
    std::lock_guard lock(mutex_);
    entries = entries_;
  }
  std::ranges::stable_sort(entries, std::ranges::greater(), &Entry::last_s);
  return entries;
}

uint64_t ErrorBook::forgotten() const {
  std::lock_guard lock(mutex_);
  return forgotten_;
}

bool ErrorBook::unsaved() const {
  std::lock_guard lock(mutex_);
  return changed_ && !path_.empty();
}

std::string ErrorBook::to_file(const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& entry : entries)
    text +=
        fmt::format("{}\t{}\t{}\t{}\n", entry.count, entry.first_s, entry.last_s, entry.example);
  return text;
}

std::vector<ErrorBook::Entry> ErrorBook::from_file(std::string_view text) {
  std::vector<Entry> entries;
  while (!text.empty() && entries.size() < kMaxKinds) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto count = take_number(line);
    const auto first_s = count ? take_number(line) : std::nullopt;
    const auto last_s = first_s ? take_number(line) : std::nullopt;
    if (!last_s || *count == 0 || *last_s < *first_s || line.empty()) continue;
    Entry entry{.count = *count, .first_s = *first_s, .last_s = *last_s, .example = one_line(line)};
    entry.kind = kind_of(entry.example);
    if (std::ranges::find(entries, entry.kind, &Entry::kind) == entries.end())
      entries.push_back(std::move(entry));
  }
  return entries;
}

int ErrorBook::keep_in(const std::string& directory) {
  const std::string path = fmt::format("{}/{}", directory, kFileName);
  std::string text;
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno != ENOENT) return errno;
  // Nothing to read is a book that begins; a directory that is none shows when it is written.
  if (!file && access(directory.c_str(), W_OK | X_OK) != 0) return errno;
  while (file && text.size() < kMaxFileBytes) {
    char part[4096];
    const ssize_t got = read(file.get(), part, sizeof(part));
    if (got < 0) return errno;
    if (got == 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  std::lock_guard lock(mutex_);
  path_ = path;
  for (Entry& kept : from_file(text)) {
    Entry& entry = entry_for(kept.kind);
    if (entry.count == 0) {
      entry = std::move(kept);
      continue;
    }
    entry.count += kept.count;
    entry.first_s = std::min(entry.first_s, kept.first_s);
  }
  return 0;
}

int ErrorBook::save() {
  std::string path;
  {
    std::lock_guard lock(mutex_);
    if (!changed_ || path_.empty()) return 0;
    changed_ = false;
    path = path_;
  }
  const std::string text = to_file(entries());
  const std::string fresh = path + ".new";
  {
    const UniqueFd file(
        open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return errno;
    for (size_t done = 0; done < text.size();) {
      const ssize_t written = write(file.get(), text.data() + done, text.size() - done);
      if (written < 0 && errno != EINTR) return errno;
      done += static_cast<size_t>(std::max<ssize_t>(written, 0));
    }
  }
  return rename(fresh.c_str(), path.c_str()) == 0 ? 0 : errno;
}

ErrorBook& error_book() {
  static ErrorBook book;
  return book;
}

uint64_t note_error(std::string_view line) {
  return error_book().note(line, static_cast<uint64_t>(time(nullptr)));
}

bool worth_a_line(uint64_t count) { return count <= kLinesOfAKind || std::has_single_bit(count); }

}  // namespace hostnic
