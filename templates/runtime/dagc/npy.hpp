// Reading and writing NumPy's .npy files: format 1.0 and 2.0, little endian, C order, the language's element types.
//
//   dagc::NpyArray a = dagc::load_npy(path);      // any type; a.shape(), a.as<float>()
//   n = dagc::load_scalar<std::int32_t>(path);    // a 0-d array
//   dagc::load_npy_into(path, p, count);          // checks type and number of elements
//   dagc::save_npy(path, p, {rows, columns});
//
// A file that is missing, broken or of another type or size ends the run with `exit_run_failed` and a line
// "PATH: what is wrong".
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dagc/check.hpp"

namespace dagc {

// The header of a file. `type` is as in the file, without the byte order: f4, i8, b1, ...
struct NpyHeader {
  std::string type;
  std::vector<std::int64_t> shape;
  long offset = 0;  // of the data, in bytes

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
  std::size_t element_size() const { return static_cast<std::size_t>(type[1] - '0'); }
  std::string shape_text() const {
    std::string out = "(";
    for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
    return out + (shape.size() == 1 ? ",)" : ")");
  }
};

// NumPy's name of an element type.
template <class T>
std::string npy_type() {
  static_assert(std::is_arithmetic_v<T>, "only plain numbers are stored");
  const char kind = std::is_same_v<T, bool> ? 'b' : std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
  return kind + std::to_string(sizeof(T));
}

namespace detail {

[[noreturn]] inline void npy_error(const std::string& path, const std::string& what) {
  fail(exit_bad_input, path + ": " + what + "; write it again with `dagc setup`");
}

[[noreturn]] inline void not_written(const std::string& path) { fail(exit_run_failed, path + ": " + std::strerror(errno)); }

// A FILE that closes itself.
class File {
 public:
  File(const std::string& path, const char* mode) : path_(path), file_(nullptr) {
    struct stat found;  // opening a pipe without a writer would block
    if (mode[0] == 'r' && ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) npy_error(path, "not a regular file");
    file_ = std::fopen(path.c_str(), mode);
    if (!file_ && mode[0] != 'r') not_written(path);
    if (!file_) npy_error(path, std::string("cannot open: ") + std::strerror(errno));
  }
  ~File() {
    if (file_) std::fclose(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void read(void* data, std::size_t bytes, const char* what) {
    if (bytes && std::fread(data, 1, bytes, file_) != bytes) npy_error(path_, std::string("file ends inside the ") + what);
  }
  void write(const void* data, std::size_t bytes) {
    if (bytes && std::fwrite(data, 1, bytes, file_) != bytes) not_written(path_);
  }
  void close() {
    std::FILE* file = file_;
    file_ = nullptr;
    if (std::fclose(file) != 0) not_written(path_);  // a full disk may be reported only here
  }
  std::FILE* get() { return file_; }

 private:
  std::string path_;
  std::FILE* file_;
};

// Text after `'key':` in the header's dict, without leading spaces.
inline std::string npy_value(const std::string& path, const std::string& header, const std::string& key) {
  const std::size_t at = header.find("'" + key + "'");
  const std::size_t colon = at == std::string::npos ? at : header.find(':', at);
  if (colon == std::string::npos) npy_error(path, "no '" + key + "' in the header");
  const std::size_t start = header.find_first_not_of(' ', colon + 1);
  return start == std::string::npos ? "" : header.substr(start);
}

inline std::vector<std::int64_t> npy_shape(const std::string& path, const std::string& text) {
  const std::size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string::npos) npy_error(path, "the header's shape is broken");
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < end;) {
    if (text[i] == ' ' || text[i] == ',') {
      ++i;
      continue;
    }
    std::int64_t value = 0;
    if (text[i] < '0' || text[i] > '9') npy_error(path, "the header's shape is broken");
    for (; i < end && text[i] >= '0' && text[i] <= '9'; ++i) {
      if (value > (INT64_MAX - 9) / 10) npy_error(path, "the header's shape is too large");
      value = value * 10 + (text[i] - '0');
    }
    if (value && elements > INT64_MAX / 16 / value) npy_error(path, "the header's shape is too large");
    if (value) elements *= value;
    shape.push_back(value);
  }
  return shape;
}

inline NpyHeader npy_parse(const std::string& path, const std::string& text) {
  NpyHeader header;
  const std::string descr = npy_value(path, text, "descr");
  const std::size_t end = descr.empty() || descr[0] != '\'' ? std::string::npos : descr.find('\'', 1);
  if (end == std::string::npos) npy_error(path, "structured arrays are not supported");
  const std::string type = descr.substr(1, end - 1);
  static const char* const known[] = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "b1"};
  for (const char* k : known)
    if (type.size() == 3 && type.substr(1) == k && (type[0] == '<' || (type[0] == '|' && type[2] == '1'))) header.type = k;
  if (header.type.empty()) npy_error(path, "type '" + type + "' is not supported (little-endian numbers and bool are)");
  header.shape = npy_shape(path, npy_value(path, text, "shape"));
  if (npy_value(path, text, "fortran_order").compare(0, 5, "False") != 0 && header.shape.size() > 1)
    npy_error(path, "Fortran order is not supported; store the array in C order");
  return header;
}

inline NpyHeader npy_read_header(const std::string& path, File& file) {
  unsigned char start[8];
  file.read(start, 8, "header");
  if (std::memcmp(start, "\x93NUMPY", 6) != 0) npy_error(path, "not a .npy file");
  if (start[6] != 1 && start[6] != 2) npy_error(path, "format " + std::to_string(start[6]) + " is not supported (1 and 2 are)");
  unsigned char size[4] = {0, 0, 0, 0};
  const std::size_t size_bytes = start[6] == 1 ? 2 : 4;
  file.read(size, size_bytes, "header");
  const std::size_t length = size[0] | size[1] << 8 | size[2] << 16 | static_cast<std::size_t>(size[3]) << 24;
  if (length > 1u << 20) npy_error(path, "the header is too long");
  std::string text(length, '\0');
  file.read(&text[0], length, "header");
  NpyHeader header = npy_parse(path, text);
  header.offset = static_cast<long>(8 + size_bytes + length);
  return header;
}

inline void npy_read_data(const NpyHeader& header, File& file, const std::string& path, void* data) {
  file.read(data, static_cast<std::size_t>(header.elements()) * header.element_size(), "data");
  if (std::fgetc(file.get()) != EOF) npy_error(path, "there is more data than its shape says");
}

}  // namespace detail

// An array in memory.
class NpyArray {
 public:
  NpyArray(std::string path, NpyHeader header, std::vector<char> bytes)
      : path_(std::move(path)), header_(std::move(header)), bytes_(std::move(bytes)) {}

  const NpyHeader& header() const { return header_; }
  const std::vector<std::int64_t>& shape() const { return header_.shape; }
  std::int64_t elements() const { return header_.elements(); }
  std::size_t bytes() const { return bytes_.size(); }
  const void* data() const { return bytes_.data(); }

  // The elements; fails if the file has another type.
  template <class T>
  const T* as() const {
    if (header_.type != npy_type<T>())
      detail::npy_error(path_, "has type " + header_.type + ", expected " + npy_type<T>());
    return reinterpret_cast<const T*>(bytes_.data());
  }

 private:
  std::string path_;
  NpyHeader header_;
  std::vector<char> bytes_;
};

// Only type and shape.
inline NpyHeader npy_header(const std::string& path) {
  detail::File file(path, "rb");
  return detail::npy_read_header(path, file);
}

inline NpyArray load_npy(const std::string& path) {
  detail::File file(path, "rb");
  NpyHeader header = detail::npy_read_header(path, file);
  // The length is checked before memory is allocated, so that a broken header cannot request too much.
  const std::size_t bytes = static_cast<std::size_t>(header.elements()) * header.element_size();
  std::fseek(file.get(), 0, SEEK_END);
  if (static_cast<std::size_t>(std::ftell(file.get()) - header.offset) < bytes)
    detail::npy_error(path, "file ends inside the data");
  std::fseek(file.get(), header.offset, SEEK_SET);
  std::vector<char> data(bytes);
  detail::npy_read_data(header, file, path, data.data());
  return NpyArray(path, std::move(header), std::move(data));
}

// Into memory of the caller: `count` elements of T, of any shape.
template <class T>
void load_npy_into(const std::string& path, T* destination, std::int64_t count) {
  detail::File file(path, "rb");
  const NpyHeader header = detail::npy_read_header(path, file);
  if (header.type != npy_type<T>())
    detail::npy_error(path, "has type " + header.type + ", expected " + npy_type<T>());
  if (header.elements() != count)
    detail::npy_error(path, "has shape " + header.shape_text() + ", expected " + std::to_string(count) + " elements");
  detail::npy_read_data(header, file, path, destination);
}

// A 0-d array.
template <class T>
T load_scalar(const std::string& path) {
  const NpyHeader header = npy_header(path);
  if (!header.shape.empty()) detail::npy_error(path, "has shape " + header.shape_text() + ", expected a scalar");
  T value{};
  load_npy_into(path, &value, 1);
  return value;
}

template <class T>
void save_npy(const std::string& path, const T* data, const std::vector<std::int64_t>& shape) {
  NpyHeader header;
  header.type = npy_type<T>();
  header.shape = shape;
  std::string text = "{'descr': '" + std::string(sizeof(T) == 1 ? "|" : "<") + header.type +
                     "', 'fortran_order': False, 'shape': " + header.shape_text() + ", }";
  text.append(63 - (10 + text.size()) % 64, ' ');  // the data starts at a multiple of 64
  text += '\n';
  const unsigned char size[2] = {static_cast<unsigned char>(text.size() & 0xff), static_cast<unsigned char>(text.size() >> 8)};
  detail::File file(path, "wb");
  file.write("\x93NUMPY\x01\x00", 8);
  file.write(size, 2);
  file.write(text.data(), text.size());
  file.write(data, static_cast<std::size_t>(header.elements()) * sizeof(T));
  file.close();
}

}  // namespace dagc
