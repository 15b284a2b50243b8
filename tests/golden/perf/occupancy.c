#ifndef DAGC_RATIONAL_H
#define DAGC_RATIONAL_H
#include <stdint.h>

/* Results are those of NumPy to the last bit where products and sums stay apart: -ffp-contract=off.
   Integers wrap around at 64 bits, as NumPy's: unsigned arithmetic, since a compiler may take it that signed integers
   never overflow, and then drop a test for zero. */
static inline int64_t dagc_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t dagc_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t dagc_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
/* INT64_MIN / -1 does not fit: it wraps around, where the processor's division would trap. */
static inline int64_t dagc_floordiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return dagc_sub(0, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t dagc_ceildiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return dagc_sub(0, a);
  return a / b + (a % b != 0 && (a < 0) == (b < 0));
}
static inline double dagc_div(double a, double b) { return b != 0 ? a / b : 0; }
#endif
/* occupancy, in blocks. CUDA C++ Programming Guide, occupancy; compared with cudaOccupancyMaxActiveBlocksPerMultiprocessor */
static inline int64_t active_blocks(int64_t T, int64_t R, int64_t Z, int64_t Rmax, int64_t Zmax, int64_t Tmax, int64_t Bmax, int64_t Wmax, int64_t Runit, int64_t Wunit, int64_t Zunit, int64_t Zreserved) {
  const int64_t v1 = dagc_ceildiv(T, 32);
  const int64_t W = v1;
  const int64_t v2 = dagc_mul(32, R);
  const int64_t v3 = dagc_ceildiv(v2, Runit);
  const int64_t v4 = dagc_mul(Runit, v3);
  const int64_t Rwarp = v4;
  const int64_t v5 = dagc_add(Z, Zreserved);
  const int64_t v6 = dagc_ceildiv(v5, Zunit);
  const int64_t v7 = dagc_mul(Zunit, v6);
  const int64_t Zblock = v7;
  const int64_t v8 = dagc_floordiv(Wmax, W);
  const int64_t by_warps = v8;
  const int64_t v9 = dagc_floordiv(Rmax, Rwarp);
  const int64_t v10 = dagc_floordiv(v9, Wunit);
  const int64_t v11 = dagc_mul(Wunit, v10);
  const int64_t v12 = dagc_floordiv(v11, W);
  const int64_t by_registers = v12;
  const int64_t v13 = 1 > Zblock ? 1 : Zblock;
  const int64_t v14 = dagc_floordiv(Zmax, v13);
  const int64_t by_shared = v14;
  const int v15 = T >= 1;
  const int v16 = by_registers >= 1;
  const int v17 = by_shared >= 1;
  const int v18 = T <= Tmax;
  const int v19 = v15 && v16;
  const int v20 = v19 && v17;
  const int v21 = v20 && v18;
  const int v22 = !v21;
  const int v23 = Bmax <= by_registers;
  const int v24 = Bmax <= by_shared;
  const int v25 = Bmax <= by_warps;
  const int v26 = v23 && v24;
  const int v27 = v26 && v25;
  const int v28 = by_warps <= by_registers;
  const int v29 = by_warps <= by_shared;
  const int v30 = v28 && v29;
  const int v31 = by_registers <= by_shared;
  const int64_t v32 = v31 ? by_registers : by_shared;
  const int64_t v33 = v30 ? by_warps : v32;
  const int64_t v34 = v27 ? Bmax : v33;
  const int64_t v35 = v22 ? 0 : v34;
  return v35;
}
