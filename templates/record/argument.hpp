// Arguments of calls whose types are known when the program is compiled, as the log has them.
#pragma once

#include <cxxabi.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <typeinfo>

#include "log.hpp"

namespace dagc::record {

template <class T>
std::string type_name() {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, &status);
  const std::string out = status == 0 ? name : typeid(T).name();
  std::free(name);
  return out;
}

// The element type as the language has it; `struct` with its size for any other.
template <class T>
std::string element() {
  if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_enum_v<T>)
    return element<std::underlying_type_t<T>>();
  else if constexpr (std::is_integral_v<T>)
    return (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T));
  else if constexpr (std::is_floating_point_v<T>)
    return "f" + std::to_string(8 * sizeof(T));
  else if constexpr (std::is_pointer_v<T>)
    return "pointer";
  else
    return "struct";
}

template <class T>
std::string argument(const T& value) {
  if constexpr (std::is_pointer_v<T>) {
    using Element = std::remove_cv_t<std::remove_pointer_t<T>>;
    std::size_t bytes = 1;
    std::string of = "void";
    if constexpr (!std::is_void_v<Element> && !std::is_function_v<Element>) {
      bytes = sizeof(Element);
      of = element<Element>();
    }
    return "{\"p\": " + std::to_string(reinterpret_cast<std::uintptr_t>(value)) + ", \"of\": " + quoted(of) +
           ", \"bytes\": " + std::to_string(bytes) +
           ", \"const\": " + (std::is_const_v<std::remove_pointer_t<T>> ? "1" : "0") +
           ", \"type\": " + quoted(type_name<Element>()) + "}";
  } else {
    bool points = false;  // a struct with a pointer, which has no place in a program
    if constexpr (std::is_class_v<T>)
      for (std::size_t at = 0; at + sizeof(void*) <= sizeof(T); at += sizeof(void*)) {
        const void* word;
        std::memcpy(&word, reinterpret_cast<const char*>(&value) + at, sizeof word);
        points = points || on_device(word);
      }
    return "{\"of\": " + quoted(element<T>()) + ", \"bytes\": " + std::to_string(sizeof(T)) +
           ", \"points\": " + (points ? "1" : "0") + ", \"hex\": " + quoted(hex(&value, sizeof value)) + ", \"type\": " + quoted(type_name<T>()) + "}";
  }
}

}  // namespace dagc::record
