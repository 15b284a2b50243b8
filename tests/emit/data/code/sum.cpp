#include <cmath>
static double plain(double x) { return std::fabs(x); }
void norm(double* out, const double* a, long n) {
  out[0] = 0;
  for (long i = 0; i < n; ++i) out[0] += plain(a[i]);
}
