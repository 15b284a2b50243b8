// Features of bodies.
#pragma once

#include <algorithm>
#include <cmath>

// The standard deviation of up to 1024 of the values, from 4 places.
template <class Values>
double deviation(Values& values) {
  const auto some = values.sample(4, 256);
  double sum = 0, squares = 0;
  for (const double value : some) sum += value;
  const double mean = sum / std::max<double>(1, some.size());
  for (const double value : some) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / std::max<double>(1, some.size()));
}
