// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/page_tables.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <string>
#include <utility>

#include "protocol/expected.h"

namespace hostnic {
namespace {

constexpr uint64_t kSpan = PageTables::kSpanBytes, kGiB = uint64_t{1} << 30, kPage = 4096;

const std::byte* address(uint64_t at) { return reinterpret_cast<const std::byte*>(at); }

class PageTablesTest : public testing::Test {
 protected:
  std::shared_ptr<PageTableBudget> budget_ = std::make_shared<PageTableBudget>(1000);
};

TEST_F(PageTablesTest, ALonePageTakesOneAndThatOfItsGigabyte) {
  PageTables tables(address(kGiB), kGiB, budget_);
  EXPECT_EQ(tables.count(), 0u);
  EXPECT_TRUE(tables.use(address(kGiB), kPage));
  EXPECT_EQ(tables.count(), 2u);
  EXPECT_TRUE(tables.use(address(kGiB + 7 * kSpan), 1));
  EXPECT_EQ(tables.count(), 3u);
  EXPECT_TRUE(tables.use(address(kGiB + kSpan - kPage), kPage)) << "has one already";
  EXPECT_EQ(tables.count(), 3u);
  EXPECT_TRUE(tables.use(address(kGiB + 9 * kSpan - 1), 2)) << "on both sides of a boundary";
  EXPECT_EQ(tables.count(), 5u);
  EXPECT_EQ(budget_->taken(), 5u);
}

TEST_F(PageTablesTest, AWholeGigabyteTakesOneForEachSpan) {
  PageTables tables(address(kGiB), kGiB, budget_);
  EXPECT_TRUE(tables.use(address(kGiB), kGiB));
  EXPECT_EQ(tables.count(), 513u);
  EXPECT_TRUE(tables.use(address(kGiB), kGiB));
  EXPECT_EQ(tables.count(), 513u);
}

// Mappings begin at any 2 MiB, and those of segments at any page.
TEST_F(PageTablesTest, AMappingThatBeginsInsideAGigabyte) {
  const uint64_t start = 5 * kGiB + 511 * kSpan + kPage;
  PageTables tables(address(start), kGiB, budget_);
  EXPECT_TRUE(tables.use(address(start), kSpan));
  EXPECT_EQ(tables.count(), 4u) << "in two gigabytes";
  EXPECT_TRUE(tables.use(address(start + kGiB - 1), 1));
  EXPECT_EQ(tables.count(), 5u);
}

TEST_F(PageTablesTest, WhatIsRefusedTakesNothing) {
  PageTables first(address(kGiB), kGiB, budget_), second(address(8 * kGiB), kGiB, budget_);
  EXPECT_TRUE(first.use(address(kGiB), kGiB));
  EXPECT_FALSE(second.use(address(8 * kGiB), kGiB));
  EXPECT_EQ(second.count(), 0u);
  EXPECT_EQ(budget_->taken(), 513u);
  EXPECT_TRUE(second.use(address(8 * kGiB), 486 * kSpan));
  EXPECT_EQ(budget_->taken(), 1000u);
  EXPECT_FALSE(second.use(address(8 * kGiB + 486 * kSpan), 1));
  EXPECT_TRUE(second.use(address(8 * kGiB), 486 * kSpan)) << "what it has it keeps";
}

TEST_F(PageTablesTest, TheyAreGivenBackOnce) {
  PageTables tables(address(kGiB), kGiB, budget_);
  EXPECT_TRUE(tables.use(address(kGiB), kGiB));
  PageTables moved(std::move(tables));
  EXPECT_EQ(budget_->taken(), 513u);
  moved = PageTables(address(kGiB), kGiB, budget_);
  EXPECT_EQ(budget_->taken(), 0u);
}

TEST_F(PageTablesTest, WithoutABudgetNothingIsCounted) {
  PageTables tables(address(kGiB), kGiB, nullptr);
  EXPECT_TRUE(tables.use(address(kGiB), kGiB));
  EXPECT_EQ(tables.count(), 0u);
}

TEST(PageTableBudgets, AUsersAreOneForAllHisDevices) {
  PageTableBudgets budgets(100);
  const auto first = budgets.of(1000), second = budgets.of(1000), other = budgets.of(1001);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_TRUE(first->take(60));
  EXPECT_FALSE(second->take(41));
  EXPECT_TRUE(second->take(40));
  EXPECT_EQ(first->taken(), 100u);
}

TEST(PageTableBudgets, AllUsersTogetherHaveTwiceOnes) {
  PageTableBudgets budgets(100);
  const auto first = budgets.of(1), second = budgets.of(2), third = budgets.of(3);
  EXPECT_TRUE(first->take(100) && second->take(90));
  EXPECT_FALSE(third->take(11));
  EXPECT_EQ(third->taken(), 0u);
  EXPECT_TRUE(third->take(10));
  EXPECT_EQ(budgets.all().taken(), 200u);
  first->give_back(100);
  EXPECT_TRUE(third->take(90));
}

TEST(PageTableBudgets, TheyGoWithTheLastDevice) {
  PageTableBudgets budgets(100);
  {
    PageTables tables(address(kGiB), kGiB, budgets.of(1000));
    EXPECT_TRUE(tables.use(address(kGiB), kPage));
    EXPECT_EQ(budgets.of(1000)->taken(), 2u);
  }
  EXPECT_EQ(budgets.of(1000)->taken(), 0u);
  EXPECT_EQ(budgets.all().taken(), 0u);
}

uint64_t page_table_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (uint64_t kb = 0; word == "VmPTE:" && status >> kb) return kb;
  return 0;
}

// The kernel's own count of what is counted here.
TEST_F(PageTablesTest, TheKernelMakesAsMany) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's shadow has page tables, too";
#endif
  constexpr uint64_t kLength = 32 * kGiB, kPages = 400;
  void* const at = mmap(nullptr, kLength, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  madvise(at, kLength, MADV_NOHUGEPAGE);
  auto* const start = static_cast<std::byte*>(at);
  PageTables tables(start, kLength, budget_);
  const uint64_t before = page_table_kb();
  for (uint64_t i = 0; i < kPages; ++i) {
    std::byte* const page = start + i * (kLength / kPages) / kPage * kPage;
    *page = std::byte{1};
    ASSERT_TRUE(tables.use(page, kPage));
  }
  const uint64_t made = (page_table_kb() - before) * 1024 / PageTables::kTableBytes;
  EXPECT_LE(made, tables.count());
  EXPECT_GE(made, kPages - 10);
  munmap(at, kLength);
}

}  // namespace
}  // namespace hostnic
