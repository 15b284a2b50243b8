// Elements of an array that the host reads: the right ones in any order, each copied once, and few of them if few are read.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "dagc/array.hpp"

namespace {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("%s\n", what);
  std::exit(1);
}

constexpr int kStart = 3, kSize = 1'000'003;

int sum(const int* all, int count) {
  unsigned total = 0;
  for (int i = 0; i < count; ++i) total += static_cast<unsigned>(all[i]);
  return static_cast<int>(total);
}

}  // namespace

int main() {
  std::vector<int> memory(kStart + kSize);
  for (int i = 0; i < kSize; ++i) memory[static_cast<std::size_t>(kStart + i)] = 7 * i;
  dagc::Array<int> a{memory.data(), nullptr, kStart + kSize};

  dagc::Elements few(a, kStart, kSize);
  expect(few[0] == 0 && few[std::int64_t{500'000}] == 3'500'000 && few[kSize - 1u] == 7 * (kSize - 1), "scattered");
  const std::vector<int> before = memory;
  for (int& value : memory) value = -1;
  expect(few[1] == 7 && few[kSize - 2] == 7 * (kSize - 2), "what was copied is kept");
  expect(few[250'000] == -1, "what was not read is not copied");
  memory = before;
  for (int i = 0; i < kSize; ++i) expect(few[i] == 7 * i || (i / 4096 == 250'000 / 4096 && few[i] == -1), "in order");

  dagc::Elements backwards(a, kStart, kSize);
  for (int i = kSize - 1; i >= 0; i -= 5) expect(backwards[i] == 7 * i, "backwards");
  dagc::Elements random(a, kStart, kSize);
  for (std::int64_t i = 1; i < 3000; ++i) expect(random[i * i * i % kSize] == 7 * (i * i * i % kSize), "random");
  dagc::Elements whole(a, kStart, kSize);
  expect(whole[9] == 63 && sum(whole, kSize) == sum(memory.data() + kStart, kSize), "as a pointer");
  const std::vector<int> some = whole.sample(8, 1250);
  const int part = kSize / 8;
  expect(some.size() == 10'000 && some[0] == 0 && some[1249] == 7 * 1249 && some[1250] == 7 * part, "sample");
  expect(some[9'999] == 7 * (7 * part + 1249), "end of the sample");
  dagc::Elements short_one(a, kStart + 2, 19);
  const std::vector<int> pairs = short_one.sample(8, 1250);
  expect(pairs.size() == 16 && pairs[0] == 14 && pairs[15] == 7 * (2 + 15), "sample of all but the rest");
  const std::vector<int> parts = whole.parts({{5, 2}, {900'000, 0}, {kSize - 1, 1}, {0, 1}});
  expect(parts == std::vector<int>{35, 42, 7 * (kSize - 1), 0} && whole.parts({}).empty(), "parts");
  const auto value = [=](const int* elements, std::int64_t i) { return elements[i]; };
  expect(whole.sum(1000, value) == 7 * 999 * 500, "sum");
  expect(whole.most(1000, value) == 7 * 999 && whole.most(3, [=](const int*, std::int64_t i) { return -5 - i; }) == -5, "most");
  expect(whole.sum(0, value) == 0 && whole.most(0, value) == 0, "of none");
  const dagc::Feature features[] = {whole.sum(3, value), 2, whole.most(3, value) / 4};
  expect(features[0].value() == 21 && features[1].value() == 2 && features[2].value() == 3.5, "what features return");
  const auto unknown = [=](const int*, std::int64_t i) { return i == 1 ? 0 / (i - 1.0) : i; };
  expect(std::isnan(whole.most(3, unknown)) && std::isnan(whole.sum(3, unknown)), "NaN if any is");
  dagc::Elements none(a, kStart, 0);
  expect(none.sample(8, 10).empty(), "sample of none");
  expect(sum(none, 0) == 0, "none");
  std::printf("good\n");
}
