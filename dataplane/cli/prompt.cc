// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/prompt.h"

#include <errno.h>
#include <fmt/format.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "dataplane/cli/control_client.h"
#include "dataplane/cli/fault_prompt.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/prompt_words.h"
#include "protocol/types.h"

namespace hostnic::cli {
namespace {

constexpr int kKeptLines = 500;
constexpr uint32_t kRatesMs = 1000;

// Ctrl-C ends a watch, or the line that is being typed, and not the prompt.
volatile sig_atomic_t interrupted = 0;
void interrupt(int) { interrupted = 1; }

class InterruptsCaught {
 public:
  InterruptsCaught() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = interrupt;  // without SA_RESTART: waits end
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptsCaught() { sigaction(SIGINT, &before_, nullptr); }
  InterruptsCaught(const InterruptsCaught&) = delete;
  InterruptsCaught& operator=(const InterruptsCaught&) = delete;

 private:
  struct sigaction before_ {};
};

// Keys come at once and are not shown.
class KeysAtOnce {
 public:
  KeysAtOnce() : works_(isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!works_) return;
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  ~KeysAtOnce() {
    if (!works_) return;
    tcflush(STDIN_FILENO, TCIFLUSH);
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  KeysAtOnce(const KeysAtOnce&) = delete;
  KeysAtOnce& operator=(const KeysAtOnce&) = delete;
  bool works() const { return works_; }

 private:
  termios before_{};
  bool works_;
};

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Waits; returns false if a key, the end of input, or Ctrl-C came before.
bool wait_unless_stopped(uint32_t wait_ms, bool listens) {
  pollfd watched{STDIN_FILENO, POLLIN, 0};
  return poll(&watched, listens ? 1 : 0, static_cast<int>(wait_ms)) == 0 && interrupted == 0;
}

// Answers lines: those of the prompt itself here, others by hostnicd.
class Answerer {
 public:
  explicit Answerer(const std::string& socket_path) : socket_path_(socket_path) {}

  // False: that was the last line.
  bool answer(std::string_view line) {
    const auto parsed = parse_prompt_line(line);
    if (!parsed) {
      complain(parsed.error());
    } else if (parsed->kind == PromptLine::Kind::kExit) {
      return false;
    } else if (parsed->watch_ms != 0) {
      watch(*parsed);
    } else {
      once(*parsed, std::nullopt);
    }
    std::fflush(stdout);
    return true;
  }
  bool failed() const { return failed_; }

 private:
  void complain(const std::string& what) {
    failed_ = true;
    std::fflush(stdout);
    fail("ctl", what);
  }

  bool show(const Expected<std::string, std::string>& text) {
    if (text)
      fputs(text->c_str(), stdout);
    else
      complain(text.error());
    return text.has_value();
  }

  // Rates need two looks; where the first one was before, `last_look_ns` says when.
  bool once(const PromptLine& line, std::optional<uint64_t> last_look_ns) {
    if (line.kind == PromptLine::Kind::kFault) return show(answer_fault(line.text));
    if (line.kind == PromptLine::Kind::kHelp) return show(prompt_help());
    if (line.kind == PromptLine::Kind::kCommand) return show(run_text(socket_path_, line.text));
    if (line.kind != PromptLine::Kind::kRates) return true;
    if (!last_look_ns) {
      if (!look(line)) return false;
      last_look_ns = look_ns_;
      if (!wait_unless_stopped(kRatesMs, false)) return true;
    }
    const CounterValues before = counters_;
    if (!look(line)) return false;
    return show(rates_text(before, counters_, std::max<uint64_t>(look_ns_ - *last_look_ns, 1)));
  }

  bool look(const PromptLine& line) {
    const auto text =
        run_text(socket_path_, "show counters" + (line.text.empty() ? "" : " " + line.text));
    if (!text) {
      complain(text.error());
      return false;
    }
    counters_ = counters_in(*text);
    look_ns_ = now_ns();
    return true;
  }

  void watch(const PromptLine& line) {
    const InterruptsCaught caught;
    const KeysAtOnce keys;
    const bool on_screen = isatty(STDOUT_FILENO) != 0;
    std::optional<uint64_t> last_look_ns;
    if (line.kind == PromptLine::Kind::kRates) {
      if (!look(line)) return;
      last_look_ns = look_ns_;
      if (!wait_unless_stopped(line.watch_ms, keys.works())) return;
    }
    const char* const what = line.kind == PromptLine::Kind::kRates ? "rates " : "";
    for (bool first = true;; first = false) {
      if (on_screen)
        fmt::print("\033[H\033[2J{}{}, every {} s; any key ends this\n\n", what, line.text,
                   line.watch_ms / 1000.0);
      else if (!first)
        fmt::print("\n");
      if (!once(line, last_look_ns)) return;
      last_look_ns = look_ns_;
      std::fflush(stdout);
      if (!wait_unless_stopped(line.watch_ms, keys.works())) return;
    }
  }

  std::string socket_path_;
  CounterValues counters_;
  uint64_t look_ns_ = 0;
  bool failed_ = false;
};

// ---- the terminal

// Where lines are kept; empty: nowhere.
std::string history_file() {
  namespace fs = std::filesystem;
  const char* const state = getenv("XDG_STATE_HOME");
  const char* const home = getenv("HOME");
  fs::path directory;
  if (state != nullptr && *state == '/')
    directory = state;
  else if (home != nullptr && *home == '/')
    directory = fs::path(home) / ".local" / "state";
  else
    return {};
  directory /= "hostnic";
  std::error_code error;
  fs::create_directories(directory, error);
  return error ? std::string() : (directory / "history").string();
}

class LineEditor {
 public:
  explicit LineEditor(const std::string& socket_path) : socket_path_(socket_path) {
    editor_ = el_init("hostnic", stdin, stdout, stderr);
    if (editor_ == nullptr) return;
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_GETCFN, &read_key);
    el_set(editor_, EL_ADDFN, "hostnic-complete", "complete a word", &complete);
    el_set(editor_, EL_BIND, "^I", "hostnic-complete", nullptr);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    history_ = history_init();
    if (history_ == nullptr) return;
    history(history_, &event_, H_SETSIZE, kKeptLines);
    history(history_, &event_, H_SETUNIQUE, 1);
    if (!file_.empty()) history(history_, &event_, H_LOAD, file_.c_str());
    el_set(editor_, EL_HIST, history, history_);
    el_source(editor_, nullptr);  // the user's ~/.editrc
  }
  ~LineEditor() {
    if (history_ != nullptr && !file_.empty()) {
      const mode_t before = umask(0077);
      history(history_, &event_, H_SAVE, file_.c_str());
      umask(before);
    }
    if (history_ != nullptr) history_end(history_);
    if (editor_ != nullptr) el_end(editor_);
  }
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  bool works() const { return editor_ != nullptr; }

  // Nothing at the end of input. A line that Ctrl-C has ended is empty.
  std::optional<std::string> read_line() {
    const InterruptsCaught caught;
    int length = 0;
    const char* const text = el_gets(editor_, &length);
    if (text == nullptr || length <= 0) {
      fmt::print("\n");
      if (interrupted == 0) return std::nullopt;
      el_reset(editor_);
      return std::string();
    }
    std::string line(text, static_cast<size_t>(length));
    if (history_ != nullptr && line.find_first_not_of(" \t\n") != std::string::npos)
      history(history_, &event_, H_ENTER, text);
    return line;
  }

 private:
  static LineEditor* self_of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<LineEditor*>(self);
  }

  static char* prompt(EditLine*) {
    static char text[] = "hostnic> ";
    return text;
  }

  // libedit's own tries again when a signal has ended a read. Commands are ASCII.
  static int read_key(EditLine*, wchar_t* key) {
    for (;;) {
      unsigned char byte = 0;
      const ssize_t got = interrupted != 0 ? -1 : read(STDIN_FILENO, &byte, 1);
      if (got == 1) {
        // A Ctrl-D that was typed between the prompt and the first read, while the terminal still
        // edited lines, is a NUL.
        constexpr unsigned char kCtrlD = 4;
        *key = static_cast<wchar_t>(byte == 0 ? kCtrlD : byte);
        return 1;
      }
      if (got == 0) return 0;
      if (interrupted != 0) {
        errno = EINTR;
        return -1;
      }
      if (errno != EINTR && errno != EAGAIN) return -1;
    }
  }

  std::vector<std::string> nics() const {
    std::vector<std::string> names;
    if (const auto devices = list_devices(socket_path_))
      for (const DeviceInfo& device : *devices) names.emplace_back(device.name);
    return names;
  }

  // Inserts what all fitting words have in common; shows them where there are several.
  static unsigned char complete(EditLine* editor, int) {
    const LineInfo* const line = el_line(editor);
    const std::string_view before(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
    const std::vector<std::string> words = completions(before, self_of(editor)->nics());
    if (words.empty()) return CC_REFRESH_BEEP;
    const size_t space = before.find_last_of(" \t");
    const size_t begun = before.size() - (space == std::string_view::npos ? 0 : space + 1);
    std::string common = words.front();
    for (const std::string& word : words)
      common.resize(static_cast<size_t>(std::ranges::mismatch(common, word).in1 - common.begin()));
    std::string more = common.substr(std::min(begun, common.size()));
    if (words.size() == 1) more += ' ';
    if (!more.empty()) return el_insertstr(editor, more.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    fmt::print("\n");
    for (const std::string& word : words) fmt::print("{}  ", word);
    fmt::print("\n");
    std::fflush(stdout);
    return CC_REDISPLAY;
  }

  std::string socket_path_;
  std::string file_ = history_file();
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  HistEvent event_{};
};

int run_script(Answerer& answerer) {
  for (std::string line; std::getline(std::cin, line);)
    if (!answerer.answer(line)) break;
  return answerer.failed() ? 1 : 0;
}

}  // namespace

int run_prompt(const std::string& socket_path) {
  Answerer answerer(socket_path);
  if (isatty(STDIN_FILENO) == 0) return run_script(answerer);
  LineEditor editor(socket_path);
  if (!editor.works()) return run_script(answerer);
  fmt::print("`help` lists commands, Tab completes them, Ctrl-D leaves.\n");
  for (;;) {
    std::fflush(stdout);
    const auto line = editor.read_line();
    if (!line || !answerer.answer(*line)) return 0;
  }
}

int run_prompt_line(const std::string& socket_path, const std::string& line) {
  Answerer answerer(socket_path);
  answerer.answer(line);
  return answerer.failed() ? 1 : 0;
}

}  // namespace hostnic::cli
