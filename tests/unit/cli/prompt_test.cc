// SPDX-License-Identifier: BSD-3-Clause
// The prompt of `hostnic ctl`: completion, its own commands, rates.
#include <gtest/gtest.h>

#include <algorithm>

#include "dataplane/cli/prompt_words.h"

namespace hostnic::cli {
namespace {

using Words = std::vector<std::string>;
const Words kNics = {"hnic0", "hnic1"};

Words completed(std::string_view line) { return completions(line, kNics); }

TEST(Prompt, CompletesCommandsWordByWord) {
  EXPECT_EQ(completed("sh"), Words{"show"});
  EXPECT_EQ(completed("show n"), Words{"nic"});
  EXPECT_EQ(completed("show c"), (Words{"client", "cm", "counters"}));
  EXPECT_EQ(completed("se"), Words{"set"});
  EXPECT_EQ(completed("nonsense "), Words{});
  const Words all = completed("");
  EXPECT_TRUE(std::ranges::find(all, "watch") != all.end());
  EXPECT_TRUE(std::ranges::find(all, "quit") == all.end()) << "it ends hostnicd";
}

TEST(Prompt, CompletesNicsAndWhatElseMayFollow) {
  EXPECT_EQ(completed("show qp "), kNics);
  EXPECT_EQ(completed("show qp hnic0 "), Words{});
  EXPECT_EQ(completed("show counters "), (Words{"all", "help", "hnic0", "hnic1"}));
  EXPECT_EQ(completed("show counters hnic1 h"), Words{"help"});
  EXPECT_EQ(completed("show metrics p"), Words{"prometheus"});
  EXPECT_EQ(completed("set impair h"), kNics);
  EXPECT_EQ(completed("set impair all "), (Words{"rx", "tx"}));
  EXPECT_EQ(completed("set impair all rx dr"), Words{"drop"});
  EXPECT_EQ(completed("explain "), Words{"last"});
  EXPECT_EQ(completed("rates hnic1"), Words{"hnic1"});
  EXPECT_EQ(completed("fault "), (Words{"add", "list", "remove"}));
}

TEST(Prompt, CompletesWhatIsWatched) {
  EXPECT_EQ(completed("watch sho"), Words{"show"});
  EXPECT_EQ(completed("watch 2 show n"), Words{"nic"});
  EXPECT_EQ(completed("watch 0.5 ra"), Words{"rates"});
  EXPECT_EQ(completed("watch w"), Words{});
}

TEST(Prompt, TakesLinesApart) {
  using Kind = PromptLine::Kind;
  const auto parsed = [](std::string_view line) { return parse_prompt_line(line).value(); };
  EXPECT_EQ(parsed("  ").kind, Kind::kNothing);
  EXPECT_EQ(parsed("# note").kind, Kind::kNothing);
  EXPECT_EQ(parsed(" show   qp hnic0\n").text, "show qp hnic0");
  EXPECT_EQ(parsed("show qp").watch_ms, 0u);
  EXPECT_EQ(parsed("watch show qp").watch_ms, 1000u);
  EXPECT_EQ(parsed("watch 0.5 show qp").watch_ms, 500u);
  EXPECT_EQ(parsed("watch 0.5 show qp").text, "show qp");
  EXPECT_EQ(parsed("rates hnic1").kind, Kind::kRates);
  EXPECT_EQ(parsed("rates hnic1").text, "hnic1");
  EXPECT_EQ(parsed("fault add  wc delay 1ms").kind, Kind::kFault);
  EXPECT_EQ(parsed("fault add  wc delay 1ms").text, "add wc delay 1ms");
  EXPECT_EQ(parsed("exit").kind, Kind::kExit);
  EXPECT_EQ(parsed("quit").kind, Kind::kExit) << "the prompt ends, not hostnicd";
  EXPECT_EQ(parsed("help").kind, Kind::kHelp);
}

TEST(Prompt, SaysHowACommandIsUsed) {
  const auto error = [](std::string_view line) {
    const auto parsed = parse_prompt_line(line);
    return parsed ? std::string() : parsed.error();
  };
  EXPECT_EQ(error("watch"), "usage: watch [SECONDS] COMMAND");
  EXPECT_EQ(error("watch 1"), "usage: watch [SECONDS] COMMAND");
  EXPECT_EQ(error("watch watch show nic"), "usage: watch [SECONDS] COMMAND");
  EXPECT_EQ(error("watch 0 show nic"), "watch: use 0.1 to 3600 seconds");
  EXPECT_EQ(error("watch 99999999999999999999 show nic"), "watch: use 0.1 to 3600 seconds");
  EXPECT_EQ(error("rates a b"), "usage: rates [hnicK]");
  EXPECT_EQ(error("exit now"), "usage: exit");
}

TEST(Prompt, RatesAreDifferencesBySecond) {
  const CounterValues before = counters_in("hnic0 tx_packets 100\nhnic0 rx_packets 7\n");
  const CounterValues now =
      counters_in("hnic0 tx_packets 1100\nhnic0 rx_packets 7\nhnic1 rx_packets 5\n");
  EXPECT_EQ(rates_text(before, now, 500'000'000),
            "hnic0 tx_packets                                     2000/s\n"
            "hnic1 rx_packets                                       10/s\n");
  EXPECT_EQ(rates_text(now, now, 500'000'000), "no counter has moved\n");
  // Counters were cleared in between.
  EXPECT_EQ(rates_text(now, counters_in("hnic0 tx_packets 3\n"), 2'000'000'000),
            "hnic0 tx_packets                                      1.5/s\n");
  EXPECT_TRUE(counters_in("all counters are 0\n").empty());
}

TEST(Prompt, HelpNeedsNobody) {
  EXPECT_TRUE(is_answered_here("help"));
  EXPECT_TRUE(is_answered_here("watch show nic"));
  EXPECT_FALSE(is_answered_here("show nic"));
  for (const char* part :
       {"\nshow counters [hnicK] [all|help] ", "watch [SECONDS] COMMAND", "SPEC:"})
    EXPECT_NE(prompt_help().find(part), std::string::npos) << part;
  EXPECT_EQ(prompt_help().find("\nquit "), std::string::npos);
}

}  // namespace
}  // namespace hostnic::cli
