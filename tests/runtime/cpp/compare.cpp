// difference() of two .npy files of the same type: compare RTOL ATOL NAN_EQUAL [GOT WANT]...; a line for each pair.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "dagc/compare.hpp"
#include "dagc/npy.hpp"

namespace {

template <class T>
std::string compared(const dagc::NpyArray& got, const dagc::NpyArray& want, const dagc::Tolerance& tolerance) {
  return dagc::difference(got.as<T>(), want.as<T>(), want.elements(), tolerance, want.shape());
}

}  // namespace

int main(int argc, char** argv) {
  const dagc::Tolerance tolerance{std::atof(argv[1]), std::atoi(argv[3]) != 0, std::atof(argv[2])};
  for (int i = 4; i + 1 < argc; i += 2) {
    const dagc::NpyArray got = dagc::load_npy(argv[i]), want = dagc::load_npy(argv[i + 1]);
    const std::string type = want.header().type;
    std::string said = "?";
    if (type == "f4") said = compared<float>(got, want, tolerance);
    if (type == "f8") said = compared<double>(got, want, tolerance);
    if (type == "i1") said = compared<std::int8_t>(got, want, tolerance);
    if (type == "u1") said = compared<std::uint8_t>(got, want, tolerance);
    if (type == "i4") said = compared<std::int32_t>(got, want, tolerance);
    if (type == "i8") said = compared<std::int64_t>(got, want, tolerance);
    if (type == "u8") said = compared<std::uint64_t>(got, want, tolerance);
    std::printf("%s\n", said.c_str());
  }
  return 0;
}
