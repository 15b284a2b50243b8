// Arrays as arguments of the functions of files, which may want the rows as structs (an array `f64[n, 4]` is one of
// `double4[n]`, too), may have another name for an integer (`long long` for `long`, `char`) and may lack a `const`.
#pragma once

#include <cstddef>
#include <type_traits>

namespace dagc {

// A pointer to an array. It converts to `T*`, to an integer of that size, and to any type with the
// size of a row. The header of the kernel declares what the function writes; an audit (audit.hpp)
// detects other writes. `Elements` are the elements of a row by each number of last dimensions: 3,
// 6 for `[n, 2, 3]`.
template <class T, std::size_t... Elements>
struct Argument {
  T* data;

  operator T*() const { return data; }

  template <class Row, class = std::enable_if_t<!std::is_same_v<Row, T> && !std::is_same_v<Row, const T> &&
                                                !std::is_void_v<Row> && !std::is_function_v<Row>>>
  operator Row*() const {
    constexpr bool same = std::is_same_v<std::remove_cv_t<Row>, Element>;
    constexpr bool renamed = std::is_integral_v<Row> && std::is_integral_v<T> && sizeof(Row) == sizeof(T);
    static_assert(((sizeof(Row) == Elements * sizeof(T)) || ... || (same || renamed)),
                  "the parameter points to a type that has another size than the rows of the array");
    static_assert(std::is_trivially_copyable_v<Row>, "the type of the parameter cannot be copied as bytes");
    return static_cast<Row*>(static_cast<void*>(const_cast<Element*>(data)));
  }

 private:
  using Element = std::remove_const_t<T>;
};

}  // namespace dagc
