// SPDX-License-Identifier: BSD-3-Clause
// The receiver's window against a reference that keeps one flag per PSN.
#include "protocol/transport/receive_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace hostnic {
namespace {

using Place = ReceiveWindow::Place;

// Counts PSNs in 64 bits, so that nothing wraps; window() maps them to 24 bits.
class Reference {
 public:
  Reference(uint64_t expected, uint32_t window) : expected_(expected), window_(window) {}

  uint64_t expected() const { return expected_; }
  bool received(uint64_t psn) const { return received_.contains(psn); }
  size_t ahead() const { return received_.size(); }
  Place classify(uint64_t psn) const {
    if (psn < expected_) return Place::kOld;
    if (psn >= expected_ + window_) return Place::kBeyond;
    if (received(psn)) return Place::kReceived;
    return psn == expected_ ? Place::kExpected : Place::kAhead;
  }
  void set(uint64_t psn) { received_.insert(psn); }
  void advance() { received_.erase(expected_++); }
  void forget_from(uint64_t psn) { received_.erase(received_.lower_bound(psn), received_.end()); }
  // One past the highest received PSN.
  uint64_t end() const { return received_.empty() ? expected_ : *received_.rbegin() + 1; }

 private:
  uint64_t expected_;
  uint32_t window_;
  std::set<uint64_t> received_;
};

Psn wrapped(uint64_t psn) { return Psn(static_cast<uint32_t>(psn & Psn::kMask)); }

void expect_same_sack(const ReceiveWindow& window, const Reference& reference) {
  std::array<uint64_t, kBitmapWords> words;
  words.fill(0xdeadbeefdeadbeef);
  const uint32_t count = window.sack_words(words);
  const auto span = static_cast<uint32_t>(reference.end() - reference.expected());
  ASSERT_EQ(count, (span + 63) / 64);
  for (uint32_t i = 0; i < count * 64; ++i) {
    ASSERT_EQ(words[i / 64] >> (i % 64) & 1, reference.received(reference.expected() + i) ? 1u : 0u)
        << "bit " << i << " of " << count << " words, expected " << reference.expected();
  }
  for (uint32_t i = count; i < kBitmapWords; ++i) {
    ASSERT_EQ(words[i], 0xdeadbeefdeadbeef) << "word " << i << " is not the ACK's";
  }
}

TEST(ReceiveWindow, ClassifiesEveryDistanceOfAnEmptyWindow) {
  for (const uint32_t size : {1u, 32u, 128u, 4095u, 4096u}) {
    ReceiveWindow window;
    window.reset(Psn(0xfffff0), size);
    for (int32_t d = -8192; d <= 8192; ++d) {
      const Place expected = d < 0                            ? Place::kOld
                             : d == 0                         ? Place::kExpected
                             : d < static_cast<int32_t>(size) ? Place::kAhead
                                                              : Place::kBeyond;
      ASSERT_EQ(window.classify(window.expected() + static_cast<uint32_t>(d)), expected)
          << "window " << size << ", distance " << d;
    }
    EXPECT_EQ(window.classify(window.expected() + 0x7fffff), Place::kBeyond) << "farthest ahead";
    EXPECT_EQ(window.classify(window.expected() + 0x800000), Place::kOld) << "farthest behind";
    EXPECT_EQ(window.highest_acceptable(), window.expected() + (size - 1));
  }
}

// In a window as large as the bitmap ring, the bit of expected + 4096 is the bit of expected.
TEST(ReceiveWindow, RingAliasesAreNotDuplicates) {
  ReceiveWindow window;
  window.reset(Psn(100), kWindowLimit);
  window.set(Psn(100));
  window.set(Psn(101));
  EXPECT_EQ(window.classify(Psn(100)), Place::kReceived);
  EXPECT_EQ(window.classify(Psn(100) + kWindowLimit), Place::kBeyond);
  window.advance();
  EXPECT_EQ(window.classify(Psn(100)), Place::kOld);
  EXPECT_EQ(window.classify(Psn(100) + kWindowLimit), Place::kAhead);
}

TEST(ReceiveWindow, WrapsAtEveryAlignment) {
  // The wrap passes every position inside a bitmap word while 0..150 PSNs lie on each side of it.
  for (uint32_t before_wrap = 0; before_wrap <= 150; ++before_wrap) {
    const uint64_t start = uint64_t{Psn::kMask} + 1 - before_wrap;
    ReceiveWindow window;
    window.reset(wrapped(start), 256);
    Reference reference(start, 256);
    for (uint64_t psn = start + 1; psn < start + 256; psn += 1 + before_wrap % 3) {
      ASSERT_EQ(window.classify(wrapped(psn)), Place::kAhead);
      window.set(wrapped(psn));
      reference.set(psn);
      ASSERT_EQ(window.classify(wrapped(psn)), Place::kReceived);
    }
    expect_same_sack(window, reference);
    window.set(wrapped(start));
    reference.set(start);
    while (window.expected_received()) {
      ASSERT_TRUE(reference.received(reference.expected()));
      window.advance();
      reference.advance();
      expect_same_sack(window, reference);
    }
    ASSERT_FALSE(reference.received(reference.expected()));
    ASSERT_EQ(window.expected(), wrapped(reference.expected()));
  }
}

class RandomWindow : public testing::TestWithParam<uint32_t> {};

TEST_P(RandomWindow, BehavesAsTheReference) {
  const uint32_t size = GetParam();
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t n) { return random() % n; };
    const uint64_t start = uint64_t{Psn::kMask} + 1 - below(3 * size);
    ReceiveWindow window;
    window.reset(wrapped(start), size);
    Reference reference(start, size);
    uint64_t forgotten_from = 0;  // until something is received there, only a bound is known
    const uint32_t loss_in_8 = below(4);
    for (uint32_t step = 0; step < 8 * size + 2000; ++step) {
      // Next packets with gaps, the missing front, or anything around the window.
      const uint32_t kind = below(8);
      const uint64_t psn = kind == 0  ? reference.expected() + below(size + size / 2) - size / 4
                           : kind < 4 ? reference.expected()
                                      : reference.end() + below(8) / (8 - loss_in_8);
      const auto exact_end = [&] {
        return forgotten_from <= std::max(reference.expected(), reference.end());
      };
      const Place place = window.classify(wrapped(psn));
      ASSERT_EQ(place, reference.classify(psn)) << "step " << step << " PSN " << psn;
      if (place == Place::kExpected && !window.has_hole()) {
        window.accept_in_order();
        reference.advance();
      } else if (place == Place::kExpected || place == Place::kAhead) {
        const bool last = psn >= reference.end();
        if (exact_end()) {
          ASSERT_EQ(window.beyond_all(wrapped(psn)), last);
        } else if (!last) {
          ASSERT_FALSE(window.beyond_all(wrapped(psn)));
        }
        window.set(wrapped(psn));
        reference.set(psn);
      }
      // Several fronts may wait: the caller passes as many as its budget allows.
      for (uint32_t budget = below(70); budget > 0 && window.expected_received(); --budget) {
        const uint32_t run = below(2) == 0 ? 1 : std::min(budget, window.expected_run());
        for (uint32_t i = 0; i < run; ++i) {
          ASSERT_TRUE(reference.received(reference.expected()));
          reference.advance();
        }
        if (run == 1) {
          window.advance();
        } else {
          window.advance_over(run);
        }
        budget -= run - 1;
      }
      if (below(500) == 0) {
        const uint64_t from = reference.expected() + below(size + 20) - 10;
        window.forget_from(wrapped(from));
        if (!exact_end()) {
          forgotten_from = std::min(forgotten_from, from);
        } else if (from < reference.end()) {
          forgotten_from = from;
        }
        reference.forget_from(from);
      }
      ASSERT_EQ(window.expected(), wrapped(reference.expected()));
      ASSERT_EQ(window.received_ahead(), reference.ahead());
      ASSERT_EQ(window.has_hole(), reference.ahead() != 0);
      ASSERT_EQ(window.expected_received(), reference.received(reference.expected()));
      ASSERT_EQ(window.expected_run() != 0, window.expected_received());
      if (exact_end() && below(8 + size / 8) == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_same_sack(window, reference));
      }
    }
    EXPECT_GT(reference.expected(), start + size) << "the test did not get past one window";
  }
}

INSTANTIATE_TEST_SUITE_P(ReceiveWindow, RandomWindow,
                         testing::Values(32u, 64u, 100u, 128u, 1024u, 4096u));

TEST(ReceiveWindow, ForgetsFromAPsnOn) {
  ReceiveWindow window;
  window.reset(Psn(0xfffffe), 4096);
  Reference reference(0xfffffe, 4096);
  for (const uint64_t psn : {0x1000001ull, 0x1000002ull, 0x1000050ull, 0x1000ffdull}) {
    window.set(wrapped(psn));
    reference.set(psn);
  }
  window.forget_from(Psn(0xffe));
  EXPECT_EQ(window.received_ahead(), 4u) << "nothing lies there";
  window.forget_from(Psn(0x50));
  EXPECT_EQ(window.received_ahead(), 2u);
  EXPECT_EQ(window.classify(Psn(0x50)), Place::kAhead);
  EXPECT_EQ(window.classify(Psn(0xffd)), Place::kAhead);
  EXPECT_EQ(window.classify(Psn(2)), Place::kReceived);
  window.forget_from(Psn(0xfffff0));
  EXPECT_FALSE(window.has_hole()) << "a PSN before the expected one means everything";
  EXPECT_EQ(window.expected(), Psn(0xfffffe)) << "it never goes back";
  std::array<uint64_t, kBitmapWords> words;
  EXPECT_EQ(window.sack_words(words), 0u);
}

}  // namespace
}  // namespace hostnic
