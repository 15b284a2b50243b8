// Arrays of which the function of a file wants the rows as structs: an array `f64[n, 4]` is one of `double4[n]`, too.
#pragma once

#include <cstddef>
#include <type_traits>

namespace dagc {

// A pointer to an array, as an argument: it converts to `T*`, and to a pointer to any type with the size of a row.
// `Elements` are the elements of a row by each number of last dimensions: 3, 6 for `[n, 2, 3]`.
template <class T, std::size_t... Elements>
struct Rows {
  T* data;

  operator T*() const { return data; }

  template <class Row, class = std::enable_if_t<!std::is_same_v<std::remove_cv_t<Row>, std::remove_cv_t<T>> &&
                                                !std::is_void_v<Row> && !std::is_function_v<Row>>>
  operator Row*() const {
    static_assert(((sizeof(Row) == Elements * sizeof(T)) || ...),
                  "the parameter points to a type that has another size than the rows of the array");
    static_assert(std::is_trivially_copyable_v<Row>, "the type of the parameter cannot be copied as bytes");
    static_assert(std::is_const_v<std::remove_all_extents_t<Row>> || !std::is_const_v<T>,
                  "the function changes what the header of the kernel calls `in`");
    using Bytes = std::conditional_t<std::is_const_v<std::remove_all_extents_t<Row>>, const void, void>;
    return static_cast<Row*>(static_cast<Bytes*>(data));
  }
};

}  // namespace dagc
