// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/json_writer.h"

#include <gtest/gtest.h>

#include <limits>

namespace hostnic {
namespace {

TEST(JsonWriter, SeparatesMembersAndElements) {
  JsonWriter json;
  json.begin_array();
  json.begin_object().member("a", 1).member("b", true).end_object();
  json.begin_object().key("list").begin_array().value(1).value(2).end_array().end_object();
  json.begin_object().end_object();
  json.end_array().line();
  EXPECT_EQ(json.take(), "[{\"a\":1,\"b\":true},{\"list\":[1,2]},{}]\n");
}

TEST(JsonWriter, EscapesWhatProgramsMayCallThemselves) {
  JsonWriter json;
  json.value("a\"b\\c\n\x01</script>\xff");
  EXPECT_EQ(json.text(), "\"a\\\"b\\\\c\\u000a\\u0001\\u003c/script>\\u00ff\"");
}

TEST(JsonWriter, WritesWholeNumbersToTheLastDigit) {
  JsonWriter json;
  json.begin_array()
      .value(std::numeric_limits<uint64_t>::max())
      .value(std::numeric_limits<int64_t>::min())
      .end_array();
  EXPECT_EQ(json.text(), "[18446744073709551615,-9223372036854775808]");
}

TEST(JsonWriter, HasNoNumberForWhatIsNotFinite) {
  JsonWriter json;
  json.begin_array()
      .value(std::numeric_limits<double>::quiet_NaN())
      .value(-std::numeric_limits<double>::infinity())
      .value(0.25)
      .end_array();
  EXPECT_EQ(json.text(), "[null,null,0.25]");
}

}  // namespace
}  // namespace hostnic
