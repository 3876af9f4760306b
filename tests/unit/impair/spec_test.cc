// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/spec.h"

#include <gtest/gtest.h>

#include "protocol/impair/adversary.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::impair {
namespace {

Spec must_parse(const std::string& text) {
  auto spec = parse_spec(text);
  if (spec) return *spec;
  ADD_FAILURE() << text << ": " << spec.error().message();
  return {};
}

// The only rule of a text.
Rule rule_of(const std::string& text) {
  const Spec spec = must_parse(text);
  EXPECT_EQ(spec.rules.size(), 1u) << text;
  return spec.rules.empty() ? Rule{} : spec.rules[0];
}

TEST(Adversary, HasRulesForWhatArrives) {
  const Spec rules = adversary_rules();
  EXPECT_EQ(rules.direction, Direction::kRx);
  ASSERT_EQ(rules.rules.size(), 3u);
  EXPECT_EQ(rules.rules[0].action, Action::kReorder);
  EXPECT_EQ(rules.rules[2].action, Action::kDuplicate);
  EXPECT_EQ(rules.rules[2].selectors.kinds, mask_of(PacketKind::kAck));
}

TEST(Adversary, DrawsDifferOfSeedsAndNics) {
  EXPECT_EQ(adversary_seed(1, 0), adversary_seed(1, 0));
  EXPECT_NE(adversary_seed(1, 0), adversary_seed(2, 0));
  EXPECT_NE(adversary_seed(1, 0), adversary_seed(1, 1));
  EXPECT_NE(adversary_seed(0, 0), 0u) << "0 is no adversary";
}

TEST(Adversary, DrawsAboutWhatHasAName) {
  constexpr uint64_t kNames = 10'000, kMostNs = 16'000;
  uint64_t drawn = 0, long_ones = 0;
  for (uint64_t name = 0; name < kNames; ++name) {
    const TimeNs ns = draw(1, AdversaryDraw::kUnseenWrite, name, 4, kMostNs);
    ASSERT_EQ(ns, draw(1, AdversaryDraw::kUnseenWrite, name, 4, kMostNs));
    ASSERT_LE(ns, kMostNs);
    drawn += ns != 0 ? 1 : 0;
    long_ones += ns > kMostNs / 16 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(drawn), kNames / 4.0, kNames / 40.0);
  EXPECT_GT(long_ones, drawn / 16);
  EXPECT_LT(long_ones, drawn / 4);
  uint64_t differ = 0;
  for (uint64_t name = 0; name < 100; ++name) {
    const TimeNs ns = draw(1, AdversaryDraw::kUnseenWrite, name, 1, kMostNs);
    differ += ns != draw(2, AdversaryDraw::kUnseenWrite, name, 1, kMostNs) ? 1 : 0;
    differ += ns != draw(1, AdversaryDraw::kSplitAtomic, name, 1, kMostNs) ? 1 : 0;
  }
  EXPECT_GT(differ, 180u);
}

TEST(ImpairSpec, EmptyAndNoneMeanNothing) {
  EXPECT_EQ(must_parse(""), Spec{});
  EXPECT_EQ(must_parse(" \n"), Spec{});
  EXPECT_EQ(must_parse("none"), Spec{});
  EXPECT_EQ(to_string(Spec{}), "none");
}

TEST(ImpairSpec, FirstWordMayNameTheDirection) {
  EXPECT_EQ(must_parse("drop 1%").direction, std::nullopt);
  EXPECT_EQ(must_parse("rx drop 1%").direction, Direction::kRx);
  EXPECT_EQ(must_parse("tx none").direction, Direction::kTx);
  EXPECT_TRUE(must_parse("tx none").rules.empty());
}

TEST(ImpairSpec, DropUniform) {
  const Rule rule = rule_of("drop 0.25%");
  EXPECT_EQ(rule.action, Action::kDrop);
  EXPECT_EQ(rule.trigger.kind, TriggerKind::kUniform);
  EXPECT_EQ(rule.trigger.probability_ppb, 2'500'000u);
  EXPECT_EQ(rule.selectors, Selectors{});
}

TEST(ImpairSpec, GilbertElliott) {
  const Rule rule = rule_of("drop burst p 0.1% r 20% bad 90% good 0.01%");
  EXPECT_EQ(rule.trigger.kind, TriggerKind::kBurst);
  EXPECT_EQ(rule.trigger.to_bad_ppb, 1'000'000u);
  EXPECT_EQ(rule.trigger.to_good_ppb, 200'000'000u);
  EXPECT_EQ(rule.trigger.hit_bad_ppb, 900'000'000u);
  EXPECT_EQ(rule.trigger.hit_good_ppb, 100'000u);
  EXPECT_EQ(rule_of("drop burst p 1% r 20%").trigger.hit_bad_ppb, 1'000'000'000u);
}

TEST(ImpairSpec, Scripts) {
  const Rule third_ack = rule_of("drop nth 3 kind ack per-qp");
  EXPECT_EQ(third_ack.trigger.kind, TriggerKind::kNth);
  EXPECT_EQ(third_ack.trigger.count, 3u);
  EXPECT_TRUE(third_ack.trigger.per_qp);
  EXPECT_EQ(third_ack.selectors.kinds, mask_of(PacketKind::kAck));

  const Rule last = rule_of("drop last-packet once");
  EXPECT_EQ(last.trigger.kind, TriggerKind::kAlways);
  EXPECT_TRUE(last.selectors.last_packet);
  EXPECT_TRUE(last.selectors.once);

  const Rule hole = rule_of("black-hole from 2 s to 2.5 s");
  EXPECT_EQ(hole, rule_of("blackhole from 2s to 2500ms"));
  EXPECT_EQ(hole.action, Action::kDrop);
  EXPECT_EQ(hole.selectors.from_ns, 2'000'000'000u);
  EXPECT_EQ(hole.selectors.to_ns, 2'500'000'000u);
}

TEST(ImpairSpec, Selectors) {
  const Rule rule = rule_of("corrupt all kind data,atomic peer 10.1.2.3 qpn 0x1f first-attempt");
  EXPECT_EQ(rule.action, Action::kCorrupt);
  EXPECT_EQ(rule.selectors.kinds, kDataKinds | mask_of(PacketKind::kAtomicRequest) |
                                      mask_of(PacketKind::kAtomicResponse));
  EXPECT_EQ(rule.selectors.peer, Ipv4Address{0x0a010203});
  EXPECT_EQ(rule.selectors.qpn, Qpn{0x1f});
  EXPECT_TRUE(rule.selectors.first_attempt);
  EXPECT_FALSE(rule.selectors.last_packet);
}

TEST(ImpairSpec, TimesAndRates) {
  const Rule delay = rule_of("delay 1.5us jitter 100ns normal");
  EXPECT_EQ(delay.delay.base_ns, 1'500u);
  EXPECT_EQ(delay.delay.jitter_ns, 100u);
  EXPECT_EQ(delay.delay.distribution, Distribution::kNormal);
  const Rule rate = rule_of("rate 2.5Gbit queue 64");
  EXPECT_EQ(rate.rate_bits_per_second, 2'500'000'000u);
  EXPECT_EQ(rate.queue_packets, 64u);
  EXPECT_EQ(rule_of("rate 1Tbit").queue_packets, kDefaultRateQueue);
  EXPECT_EQ(rate.marks_from_packets, 0u);
  EXPECT_EQ(rule_of("rate 1Gbit ecn 16 queue 64").marks_from_packets, 16u);
}

TEST(ImpairSpec, Reorder) {
  const Rule by_distance = rule_of("reorder 5% distance 64 flush 1ms");
  EXPECT_EQ(by_distance.distance, 64u);
  EXPECT_EQ(by_distance.flush_ns, 1'000'000u);
  EXPECT_EQ(rule_of("reorder 5% distance 8").flush_ns, kDefaultFlushNs);
  const Rule by_delay = rule_of("reorder 1% delay 100us jitter 50us exponential");
  EXPECT_EQ(by_delay.distance, 0u);
  EXPECT_EQ(by_delay.delay.base_ns, 100'000u);
  EXPECT_EQ(by_delay.delay.distribution, Distribution::kExponential);
}

TEST(ImpairSpec, RulesKeepTheirOrder) {
  const Spec spec = must_parse("drop 1%; reorder 5% distance 8;duplicate 0.5% ;corrupt 0.1%;");
  ASSERT_EQ(spec.rules.size(), 4u);
  EXPECT_EQ(spec.rules[0].action, Action::kDrop);
  EXPECT_EQ(spec.rules[1].action, Action::kReorder);
  EXPECT_EQ(spec.rules[2].action, Action::kDuplicate);
  EXPECT_EQ(spec.rules[3].action, Action::kCorrupt);
}

TEST(ImpairSpec, CanonicalTextParsesToTheSame) {
  const std::pair<const char*, const char*> cases[] = {
      {"drop 1.0%", "drop 1%"},
      {"drop 0.0000001%", "drop 0.0000001%"},
      {"rx  drop 100 %", "rx drop 100%"},
      {"drop kind ack nth 3 per-qp", "drop nth 3 per-qp kind ack"},
      {"drop first 5;drop every 7", "drop first 5; drop every 7"},
      {"blackhole to 1000us", "drop all to 1ms"},
      {"drop burst p 1% r 2% good 3%", "drop burst p 1% r 2% good 3%"},
      {"drop 1% kind write,send,read-response", "drop 1% kind data"},
      {"drop 1% kind other,ack,any", "drop 1%"},
      {"delay 999ns jitter 0us normal", "delay 999ns"},
      {"delay 50us all", "delay 50us"},
      {"delay 1ms 0.1% peer 10.0.0.2 from 0.5s", "delay 1ms 0.1% peer 10.0.0.2 from 500ms"},
      {"reorder 5% flush 200us distance 8", "reorder 5% distance 8"},
      {"reorder all delay 1us jitter 3us exponential last-packet first-attempt",
       "reorder all delay 1us jitter 3us exponential last-packet first-attempt"},
      {"rate 1Gbit ecn 16 queue 64", "rate 1Gbit queue 64 ecn 16"},
      {"rate 1234567bit qpn 0x10", "rate 1.234567Mbit queue 256 qpn 16"},
      {"tx none", "tx none"},
  };
  for (const auto& [text, canonical] : cases) {
    const Spec spec = must_parse(text);
    EXPECT_EQ(to_string(spec), canonical);
    EXPECT_EQ(must_parse(to_string(spec)), spec) << text;
  }
}

struct Malformed {
  const char* text;
  size_t column;
  const char* found;
  const char* expected_begins;
};

class ImpairSpecMalformed : public testing::TestWithParam<Malformed> {};

TEST_P(ImpairSpecMalformed, SaysWhereAndWhy) {
  const Malformed& bad = GetParam();
  const auto spec = parse_spec(bad.text);
  ASSERT_FALSE(spec) << bad.text << " was taken for " << to_string(*spec);
  EXPECT_EQ(spec.error().column, bad.column) << bad.text;
  EXPECT_EQ(spec.error().found, bad.found) << bad.text;
  EXPECT_TRUE(spec.error().expected.starts_with(bad.expected_begins))
      << bad.text << ": " << spec.error().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, ImpairSpecMalformed,
    testing::Values(
        Malformed{"lose 1%", 1, "lose", "a rule: drop"},
        Malformed{"rx", 3, "the end", "a rule: drop"},
        Malformed{";drop 1%", 1, ";", "a rule: drop"},
        Malformed{"drop 1%;; drop 1%", 9, ";", "a rule: drop"},
        Malformed{"none drop", 6, "drop", "the end after none"},
        Malformed{"drop", 5, "the end", "which packets"},
        Malformed{"drop ; delay 1us", 6, ";", "which packets"},
        Malformed{"drop 1x", 6, "1x", "a percentage"}, Malformed{"drop 1", 6, "1", "a percentage"},
        Malformed{"drop 100.1%", 6, "100.1%", "a percentage"},
        Malformed{"drop 0.00000001%", 6, "0.00000001%", "a percentage"},
        Malformed{"drop -1%", 6, "-1%", "a percentage, all"},
        Malformed{"drop 1% 2%", 9, "2%", "only one of a percentage"},
        Malformed{"blackhole 1%", 11, "1%", "only one of a percentage"},
        Malformed{"drop 1% once once", 14, "once", "once only once"},
        Malformed{"drop 1% kind data kind ack", 19, "kind", "kind only once"},
        Malformed{"drop 1% kind foo", 14, "foo", "a packet kind: any"},
        Malformed{"drop 1% kind ack,", 18, "the end", "a packet kind: any"},
        Malformed{"drop 1% peer 10.0.0.256", 14, "10.0.0.256", "an IPv4 address"},
        Malformed{"drop 1% peer 10.0", 14, "10.0", "an IPv4 address"},
        Malformed{"drop 1% peer 1.2.3.4.5", 14, "1.2.3.4.5", "an IPv4 address"},
        Malformed{"drop 1% qpn 0x1000000", 13, "0x1000000", "a QP number"},
        Malformed{"drop 1% qpn 0x", 13, "0x", "a QP number"},
        Malformed{"drop nth 0", 10, "0", "a count"},
        Malformed{"drop nth 1.5", 10, "1.5", "a count"},
        Malformed{"drop nth 99999999999999999999", 10, "99999999999999999999", "a count"},
        Malformed{"drop 1% per-qp", 15, "the end", "nth N"},
        Malformed{"drop burst 1%", 12, "1%", "p PERCENT"},
        Malformed{"drop burst p 1%", 16, "the end", "r PERCENT"},
        Malformed{"drop all from 2s to 1s", 21, "1s", "a time later"},
        Malformed{"drop all to 0s", 13, "0s", "a time later"},
        Malformed{"drop all from 2", 15, "2", "a time such as"},
        Malformed{"drop all to 1s from 2s", 16, "from", "only one time window"},
        Malformed{"delay", 6, "the end", "a time such as"},
        Malformed{"delay 50", 7, "50", "a time such as"},
        Malformed{"delay 50 usec", 7, "50", "a time such as"},
        Malformed{"delay 0.1ns", 7, "0.1ns", "a time such as"},
        Malformed{"delay 86401s", 7, "86401s", "a time such as"},
        Malformed{"delay 1us distance 3", 11, "distance", "a percentage, all"},
        Malformed{"reorder 1%", 11, "the end", "distance N or delay TIME"},
        Malformed{"reorder 1% distance 4097", 21, "4097", "a number of packets"},
        Malformed{"reorder 1% distance 0", 21, "0", "a number of packets"},
        Malformed{"reorder 1% distance 2 delay 5us", 23, "delay", "only one of distance"},
        Malformed{"reorder 1% distance 2 jitter 5us", 33, "the end", "no jitter"},
        Malformed{"reorder 1% delay 2us flush 5us", 31, "the end", "flush only"},
        Malformed{"reorder distance 2", 19, "the end", "which packets"},
        Malformed{"rate 10", 6, "10", "a rate such as"},
        Malformed{"rate 999bit", 6, "999bit", "a rate such as"},
        Malformed{"rate 11Tbit", 6, "11Tbit", "a rate such as"},
        Malformed{"rate 1Gbit 5%", 12, "5%", "queue, ecn, kind"},
        Malformed{"rate 1Gbit queue 8 ecn 8", 25, "the end", "ecn below the queue's 8 packets"},
        Malformed{"rate 1Gbit ecn 0", 16, "0", "a number of packets"},
        Malformed{"rate 1Gbit queue 0", 18, "0", "a number of packets"},
        Malformed{"drop 1% \xff", 9, "\xff", "a percentage, all"}));

TEST(ImpairSpec, AtMostSixteenRules) {
  std::string text;
  for (int i = 0; i < 16; ++i) text += "drop 1%;";
  EXPECT_EQ(must_parse(text).rules.size(), kMaxRules);
  const auto spec = parse_spec(text + " drop 2%");
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().column, text.size() + 2);
  EXPECT_EQ(spec.error().message(), "column 130: found \"drop\", expected the end after 16 rules");
}

TEST(ImpairSpec, MessageIsOnePrintableLine) {
  const auto spec = parse_spec("drop \x01\x7f");
  ASSERT_FALSE(spec);
  for (const char c : spec.error().message()) EXPECT_TRUE(c >= ' ' && c <= '~');
}

TEST(ImpairSpec, EveryExampleInTheHelpParses) {
  const std::string help(spec_help());
  for (const char* example :
       {"drop 1%", "drop burst p 0.1% r 20%", "drop nth 3 kind ack per-qp", "drop last-packet once",
        "duplicate 0.5%", "corrupt 0.1%", "reorder 5% distance 8",
        "reorder 1% delay 100us jitter 50us normal", "delay 50us jitter 10us",
        "rate 10Gbit queue 256", "blackhole from 2s to 2.5s", "mark 5% kind data",
        "rate 10Gbit queue 128 ecn 32"}) {
    EXPECT_NE(help.find(example), std::string::npos) << example;
    must_parse(example);
  }
}

TEST(ImpairValues, Decimals) {
  EXPECT_EQ(parse_decimal("1.25", 3), 1250u);
  EXPECT_EQ(parse_decimal("1.2500", 2), 125u);
  EXPECT_EQ(parse_decimal(".5", 1), 5u);
  EXPECT_EQ(parse_decimal("5.", 1), 50u);
  EXPECT_EQ(parse_decimal("18446744073709551615", 0), ~uint64_t{0});
  for (const char* bad : {"", ".", "1.2.3", "1.255", "18446744073709551616", "-1", "1e3"}) {
    EXPECT_EQ(parse_decimal(bad, 2), std::nullopt) << bad;
  }
  EXPECT_EQ(format_decimal(1250, 3), "1.25");
  EXPECT_EQ(format_decimal(5, 3), "0.005");
  EXPECT_EQ(format_decimal(0, 3), "0");
}

TEST(ImpairValues, Ipv4) {
  EXPECT_EQ(parse_ipv4("255.0.10.1"), Ipv4Address{0xff000a01});
  EXPECT_EQ(format_ipv4(Ipv4Address{0xff000a01}), "255.0.10.1");
  for (const char* bad : {"", "1.2.3", "1.2.3.", "1..2.3", "1.2.3.4.", "256.1.1.1", "0001.1.1.1"}) {
    EXPECT_EQ(parse_ipv4(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace hostnic::impair
