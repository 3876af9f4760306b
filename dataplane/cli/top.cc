// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/top.h"

#include <curses.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "dataplane/cli/control_client.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/top_model.h"

namespace hostnic::cli {
namespace {

constexpr int kLookMs = 1000;
constexpr int kKeyMs = 100;
constexpr int kEscape = 27, kDelete = 127, kBackspace = 8;

TimeNs now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<TimeNs>(now.tv_sec) * 1'000'000'000 + static_cast<TimeNs>(now.tv_nsec);
}

bool is_utf8() { return std::string_view(nl_langinfo(CODESET)) == "UTF-8"; }

Expected<void, std::string> look(const TopOptions& options, TopModel& model) {
  auto metrics = run_text(options.socket_path, "show metrics");
  if (!metrics) return Unexpected(metrics.error());
  model.update(*metrics, now_ns());
  return {};
}

// Two looks, a second apart, since rates need two.
int print_once(const TopOptions& options) {
  TopModel model;
  for (int i = 0; i < 2; ++i) {
    if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    if (auto done = look(options, model); !done) return fail("top", done.error());
  }
  TopView view;
  view.width = UINT32_MAX;
  view.ascii = !is_utf8();
  for (const TopLine& line : model.lines(view)) fmt::print("{}\n", line.text);
  return 0;
}

// The terminal as ncurses has it; as it was again behind.
class Screen {
 public:
  Screen() {
    // Where the terminal's kind is not known newterm() says so; initscr() would end the process.
    screen_ = newterm(nullptr, stdout, stdin);
    if (screen_ == nullptr) return;
    set_term(screen_);
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    set_escdelay(25);
    timeout(kKeyMs);
    if (has_colors()) {
      start_color();
      use_default_colors();
      // No red and green, which many can't tell apart.
      init_pair(1, COLOR_MAGENTA, -1);
    }
  }
  ~Screen() {
    if (screen_ == nullptr) return;
    endwin();
    delscreen(screen_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  bool works() const { return screen_ != nullptr; }

  static void show(const std::vector<TopLine>& lines) {
    erase();
    for (int row = 0; row < LINES - 1 && row < static_cast<int>(lines.size()); ++row) {
      const TopLine& line = lines[static_cast<size_t>(row)];
      const attr_t style = line.style == TopLine::Style::kHead    ? A_BOLD | A_UNDERLINE
                           : line.style == TopLine::Style::kBad   ? A_BOLD | COLOR_PAIR(1)
                           : line.style == TopLine::Style::kFaint ? A_DIM
                                                                  : A_NORMAL;
      attrset(style);
      mvaddstr(row, 0, line.text.c_str());
    }
    attrset(A_REVERSE);
    mvaddnstr(LINES - 1, 0, "q quit  s sort  / filter  p pause  (Esc: no filter)",
              std::max(COLS - 1, 0));
    attrset(A_NORMAL);
    refresh();
  }

 private:
  SCREEN* screen_ = nullptr;
};

// Does what a key asks for. Returns false if that is the end.
bool take_key(int key, TopView& view) {
  if (key == kEscape) {
    view.filter.clear();
    view.filtering = false;
  } else if (view.filtering) {
    if (key == '\n' || key == KEY_ENTER) {
      view.filtering = false;
    } else if (key == KEY_BACKSPACE || key == kDelete || key == kBackspace) {
      if (!view.filter.empty()) view.filter.pop_back();
    } else if (key >= ' ' && key <= '~' && view.filter.size() < 64) {
      view.filter += static_cast<char>(key);
    }
  } else if (key == 'q') {
    return false;
  } else if (key == 's') {
    view.sort = static_cast<TopSort>((static_cast<size_t>(view.sort) + 1) % kTopSorts);
  } else if (key == 'p') {
    view.paused = !view.paused;
  } else if (key == '/') {
    view.filtering = true;
  }
  return true;
}

int run_live(const TopOptions& options) {
  std::string ended;
  {
    Screen screen;
    if (!screen.works())
      return fail("top", fmt::format("no such terminal: TERM is {}",
                                     getenv("TERM") != nullptr ? getenv("TERM") : "not set"));
    TopModel model;
    TopView view;
    view.ascii = !is_utf8();
    TimeNs next_ns = 0;
    for (uint32_t looks = 0;;) {
      if (const TimeNs now = now_ns(); now >= next_ns && !view.paused) {
        next_ns = now + uint64_t{kLookMs} * 1'000'000;
        if (options.count != 0 && looks++ == options.count) break;
        if (auto done = look(options, model); !done) {
          ended = done.error();
          break;
        }
      }
      view.width = static_cast<uint32_t>(COLS);
      view.height = static_cast<uint32_t>(LINES);
      Screen::show(model.lines(view));
      const int key = getch();
      if (key != ERR && !take_key(key, view)) break;
    }
  }
  return ended.empty() ? 0 : fail("top", ended);
}

}  // namespace

int run_top(const TopOptions& options) {
  setlocale(LC_CTYPE, "");
  const bool live = !options.once && isatty(STDOUT_FILENO) != 0 && isatty(STDIN_FILENO) != 0;
  return live ? run_live(options) : print_once(options);
}

}  // namespace hostnic::cli
