// SPDX-License-Identifier: BSD-3-Clause
// Personalities: the files that are shipped, limits that hostnic's own cap, and what is wrong with
// others.
#include "config/personality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace hostnic::config {
namespace {

const DeviceOffer kOwn;

Personality must_parse(const std::string& keys) {
  auto parsed = parse_personality("[personality]\n" + keys, "test.toml");
  EXPECT_TRUE(parsed) << parsed.error().text();
  return parsed ? *parsed : Personality{};
}

Personality must_find(const std::string& name) {
  auto found = find_personality(name);
  EXPECT_TRUE(found) << found.error().text();
  return found ? *found : Personality{};
}

NicConfig must_parse_option(const std::string& text, size_t index = 0) {
  auto nic = parse_nic_option(text, index);
  EXPECT_TRUE(nic) << nic.error().text();
  return nic ? *nic : NicConfig{};
}

TEST(Personality, NothingSaidIsHostnicsOwn) {
  const Personality parsed = must_parse("");
  EXPECT_EQ(parsed, Personality{});
  EXPECT_EQ(parsed.offer, kOwn);
}

TEST(Personality, EachShippedFileIsOneThatIsInstalled) {
  const std::filesystem::path folder =
      std::filesystem::path(HOSTNIC_SOURCE_DIR) / "config" / "like";
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const auto shipped = shipped_personalities();
    const auto found =
        std::ranges::find(shipped, entry.path().stem().string(), &ShippedPersonality::name);
    ASSERT_NE(found, shipped.end()) << entry.path() << " is not in config/meson.build";
    EXPECT_EQ(found->text, text.str());
    const auto by_path = find_personality(entry.path().string());
    ASSERT_TRUE(by_path) << by_path.error().text();
    EXPECT_EQ(*by_path, must_find(entry.path().stem().string()));
    EXPECT_FALSE(by_path->about.empty()) << entry.path();
  }
  EXPECT_EQ(files, shipped_personalities().size());
}

TEST(Personality, VendorsStayOursUnlessAsked) {
  for (const ShippedPersonality& each : shipped_personalities()) {
    const Personality found = must_find(std::string(each.name));
    EXPECT_EQ(found.offer.vendor_id, kOwn.vendor_id) << each.name;
    EXPECT_EQ(found.offer.vendor_part_id, kOwn.vendor_part_id) << each.name;
  }
  EXPECT_EQ(must_parse("vendor_id = 0x02c9\nvendor_part_id = '0x101b'").offer.vendor_id, 0x02c9u);
  EXPECT_EQ(must_parse("vendor_part_id = '4123'").offer.vendor_part_id, 4123u);
}

TEST(Personality, NoneOffersMoreThanHostnicHas) {
  for (const ShippedPersonality& each : shipped_personalities()) {
    const DeviceOffer offer = must_find(std::string(each.name)).offer;
    EXPECT_LE(offer.max_qp_wr, kOwn.max_qp_wr) << each.name;
    EXPECT_LE(offer.max_sge, kOwn.max_sge) << each.name;
    EXPECT_LE(offer.max_inline_bytes, kOwn.max_inline_bytes) << each.name;
    EXPECT_LE(offer.max_qp_rd_atom, kOwn.max_qp_rd_atom) << each.name;
    EXPECT_LE(offer.max_message_bytes, kOwn.max_message_bytes) << each.name;
    EXPECT_LE(offer.max_cqs, kOwn.max_cqs) << each.name;
    EXPECT_LE(offer.max_cqe, kOwn.max_cqe) << each.name;
    EXPECT_LE(offer.max_pds, kOwn.max_pds) << each.name;
    EXPECT_LE(offer.max_ahs, kOwn.max_ahs) << each.name;
    EXPECT_LE(offer.max_srqs, kOwn.max_srqs) << each.name;
    EXPECT_LE(offer.max_srq_wr, kOwn.max_srq_wr) << each.name;
    EXPECT_LE(offer.max_srq_sge, kOwn.max_srq_sge) << each.name;
    EXPECT_GE(offer.local_ca_ack_delay, kOwn.local_ca_ack_delay) << each.name;
  }
}

TEST(Personality, LimitsAreCappedAndSaySo) {
  const Personality parsed =
      must_parse("max_sge = 30\nmax_cqe = 32767\nmax_qp_rd_atom = 8\nlocal_ca_ack_delay = 4\n");
  EXPECT_EQ(parsed.offer.max_sge, kOwn.max_sge);
  EXPECT_EQ(parsed.offer.max_cqe, 32767u);
  EXPECT_EQ(parsed.offer.max_qp_rd_atom, 8u);
  EXPECT_EQ(parsed.offer.local_ca_ack_delay, kOwn.local_ca_ack_delay) << "a promise of speed";
  std::vector<std::string> capped = parsed.capped;
  std::ranges::sort(capped);
  EXPECT_EQ(capped, (std::vector<std::string>{"local_ca_ack_delay = 4 (15 here)",
                                              "max_sge = 30 (16 here)"}));
}

TEST(Personality, FeaturesAreWords) {
  const Personality parsed = must_parse("missing = ' srq  uc '\nfailing = 'send-with-inv'");
  EXPECT_EQ(parsed.offer.missing, uint32_t{kMissingSrq} | kMissingUc);
  EXPECT_TRUE(parsed.offer.lacks(kMissingUc));
  EXPECT_FALSE(parsed.offer.lacks(kMissingUd));
  EXPECT_EQ(parsed.offer.fails_send_with_inv, 1u);
}

TEST(Personality, BadOnesNameTheKeyTheFileAndTheRemedy) {
  struct {
    const char* text;
    const char* error;
  } const cases[] = {
      {"[personality]\nmissing = 'srq xrc'",
       "test.toml:2:16: missing has \"xrc\" (use words of uc"},
      {"[personality]\nmax_sge = 0", "test.toml:2:11: max_sge is 0 (use 1 to 4294967295)"},
      {"[personality]\nmax_qp_wr = 15", "max_qp_wr is 15 (use 16 to"},
      {"[personality]\nmax_cqe = 63", "max_cqe is 63 (use 64 to"},
      {"[personality]\nmax_sge = 'x'", "max_sge is of type string (use an integer)"},
      {"[personality]\nsge = 1",
       "unknown key \"sge\" in [personality] (it knows about, device_name"},
      {"[personality]\ndevice_name = 'mlx5 '", "device_name is \"mlx5 \" (use 1 to 12 letters"},
      {"[personality]\ndevice_name = 'abcdefghijklm'", "use 1 to 12 letters"},
      {"[personality]\ngids = 'all'",
       "gids is \"all\" (use one of: auto, one, mlx5, rxe, link-local)"},
      {"[personality]\nfailing = 'read'", "failing is \"read\" (use \"send-with-inv\")"},
      {"[personality]\nvendor_id = '0x'", "vendor_id is \"0x\" (use a number up to 0xffffff)"},
      {"[personality]\nvendor_id = '0x1000000'", "use a number up to 0xffffff"},
      {"[personality]\nvendor_id = 0x1000000", "vendor_id is 16777216 (use 0 to 16777215)"},
      {"[personality]\nabout = ''", "about is \"\" (use one line of 1 to 120 bytes)"},
      {"[nic]\n", "unknown key \"nic\" (a personality's file has [personality] alone)"},
      {"personality = 1", "personality is of type integer (begin a table: [personality])"},
      {"[personality\n", "(this is not TOML)"},
  };
  for (const auto& each : cases) {
    const auto parsed = parse_personality(each.text, "test.toml");
    ASSERT_FALSE(parsed) << each.text;
    EXPECT_NE(parsed.error().text().find(each.error), std::string::npos) << parsed.error().text();
  }
}

TEST(Personality, OnesThatAreNotThere) {
  const auto error = [](const std::string& name) {
    const auto found = find_personality(name);
    EXPECT_FALSE(found) << name;
    return found ? std::string() : found.error().text();
  };
  EXPECT_NE(error("connectx").find("connectx: no such personality (use one of gid-moves, "),
            std::string::npos);
  EXPECT_NE(error("/nonexistent").find("/nonexistent: can't be read: No such file"),
            std::string::npos);
  EXPECT_NE(error("nothing.toml").find("can't be read"), std::string::npos);
  EXPECT_NE(error("/dev/zero").find("it is no regular file"), std::string::npos);
  EXPECT_NE(error("/").find("it is no regular file"), std::string::npos);
}

TEST(Personality, GivesANicItsNameAndGidsUnlessItHasOwn) {
  NicConfig nic = must_parse_option("like=mlx5", 3);
  EXPECT_EQ(nic.name, "mlx5_3");
  EXPECT_EQ(nic.gids, Gids::kMlx5);
  nic = must_parse_option("gids=one,name=roce0,like=mlx5");
  EXPECT_EQ(nic.name, "roce0");
  EXPECT_EQ(nic.gids, Gids::kOne);
  nic = must_parse_option("like=no-srq", 1);
  EXPECT_EQ(nic.name, "hnic1");
  EXPECT_EQ(nic.gids, Gids::kAuto);
  nic = must_parse_option("vendor_id=0x2c9,vendor_part_id=4123");
  EXPECT_EQ(nic.vendor_id, 0x2c9u);
  EXPECT_EQ(nic.vendor_part_id, 4123u);
  const auto bad = parse_nic_option("like=none", 0);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().text().find("like: none: no such personality"), std::string::npos);
}

// Found by the fuzzer of configurations.
TEST(Personality, AnErrorIsOneLineWhateverThePath) {
  const auto bad = parse_nic_option("like=no\n\x01/such", 0);
  ASSERT_FALSE(bad);
  for (const char c : bad.error().text()) EXPECT_TRUE(c >= ' ' && c <= '~') << int{c};
}

TEST(Personality, OfAllNicsLeavesThoseThatHaveOne) {
  const Personality mlx5 = must_find("mlx5");
  const auto config = parse_config("[[nic]]\nlike = 'rxe'\n[[nic]]\n", "test.toml", &mlx5);
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->nics[0].name, "rxe0");
  EXPECT_EQ(config->nics[1].name, "mlx5_1");
  EXPECT_EQ(default_config(2, &mlx5).nics[1].name, "mlx5_1");
  EXPECT_EQ(parse_nic_option("ip=127.77.0.9/24", 8, &mlx5)->gids, Gids::kMlx5);
  const auto clash = parse_config("[[nic]]\nname = 'mlx5_1'\n[[nic]]\n", "test.toml", &mlx5);
  ASSERT_FALSE(clash);
  EXPECT_NE(clash.error().text().find("two NICs are named mlx5_1"), std::string::npos);
}

}  // namespace
}  // namespace hostnic::config
