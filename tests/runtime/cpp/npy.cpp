// npy read FILE...        prints type and shape, and writes each array again to FILE.copy
// npy typed FILE TYPE N   loads N elements of TYPE (f4 or i4) into memory of its own
// npy scalar FILE         prints an i4 scalar
#include "dagc/npy.hpp"

#include <cstdio>
#include <string>

namespace {

template <class T>
bool copy(const dagc::NpyArray& a, const std::string& path) {
  if (a.header().type != dagc::npy_type<T>()) return false;
  dagc::save_npy(path, a.as<T>(), a.shape());
  return true;
}

void read(const std::string& path) {
  const dagc::NpyArray a = dagc::load_npy(path);
  std::printf("%s %s %lld %zu\n", a.header().type.c_str(), a.header().shape_text().c_str(),
              static_cast<long long>(a.elements()), a.bytes());
  const std::string to = path + ".copy";
  const bool done = copy<std::int8_t>(a, to) || copy<std::int16_t>(a, to) || copy<std::int32_t>(a, to) ||
                    copy<std::int64_t>(a, to) || copy<std::uint8_t>(a, to) || copy<std::uint16_t>(a, to) ||
                    copy<std::uint32_t>(a, to) || copy<std::uint64_t>(a, to) || copy<float>(a, to) ||
                    copy<double>(a, to) || copy<bool>(a, to);
  if (!done) dagc::fail(1, "no C++ type for " + a.header().type);
}

template <class T>
void typed(const std::string& path, long n) {
  std::vector<T> values(static_cast<std::size_t>(n));
  dagc::load_npy_into(path, values.data(), n);
  double sum = 0;
  for (T v : values) sum += static_cast<double>(v);
  std::printf("%g\n", sum);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argv[1], path = argv[2];
  if (mode == "read")
    for (int i = 2; i < argc; ++i) read(argv[i]);
  else if (mode == "scalar")
    std::printf("%d\n", dagc::load_scalar<std::int32_t>(path));
  else if (std::string(argv[3]) == "f4")
    typed<float>(path, std::atol(argv[4]));
  else
    typed<std::int32_t>(path, std::atol(argv[4]));
  return 0;
}
