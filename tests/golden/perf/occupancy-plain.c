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
/* occupancy, in blocks. KLARAPTOR, figure of the occupancy's rational program */
static inline int64_t active_blocks(int64_t T, int64_t R, int64_t Z, int64_t Rmax, int64_t Zmax, int64_t Tmax, int64_t Bmax, int64_t Wmax) {
  const int v1 = T >= 1;
  const int v2 = T <= Tmax;
  const int v3 = Z <= Zmax;
  const int64_t v4 = dagc_mul(Bmax, T);
  const int64_t v5 = dagc_mul(32, Wmax);
  const int v6 = v4 <= v5;
  const int64_t v7 = dagc_mul(Bmax, Z);
  const int v8 = v7 <= Zmax;
  const int64_t v9 = dagc_mul(R, T);
  const int v10 = v9 <= Rmax;
  const int64_t v11 = dagc_mul(Bmax, R);
  const int64_t v12 = dagc_mul(v11, T);
  const int v13 = v12 <= Rmax;
  const int v14 = v1 && v2;
  const int v15 = v14 && v3;
  const int v16 = v15 && v6;
  const int v17 = v16 && v8;
  const int v18 = v17 && v10;
  const int v19 = v18 && v13;
  const int v20 = v5 <= v4;
  const int64_t v21 = dagc_mul(32, R);
  const int64_t v22 = dagc_mul(v21, Wmax);
  const int v23 = v22 <= Rmax;
  const int64_t v24 = dagc_mul(v5, Z);
  const int64_t v25 = dagc_mul(T, Zmax);
  const int v26 = v24 <= v25;
  const int v27 = v14 && v20;
  const int v28 = v27 && v3;
  const int v29 = v28 && v10;
  const int v30 = v29 && v23;
  const int v31 = v30 && v26;
  const int64_t v32 = dagc_floordiv(v5, T);
  const int v33 = Rmax <= v22;
  const int v34 = Rmax <= v12;
  const int64_t v35 = dagc_mul(Rmax, Z);
  const int64_t v36 = dagc_mul(v9, Zmax);
  const int v37 = v35 <= v36;
  const int v38 = v1 && v33;
  const int v39 = v38 && v34;
  const int v40 = v39 && v2;
  const int v41 = v40 && v3;
  const int v42 = v41 && v10;
  const int v43 = v42 && v37;
  const int64_t v44 = dagc_floordiv(Rmax, v9);
  const int v45 = Zmax <= v7;
  const int v46 = v25 <= v24;
  const int v47 = v36 <= v35;
  const int v48 = v15 && v45;
  const int v49 = v48 && v10;
  const int v50 = v49 && v46;
  const int v51 = v50 && v47;
  const int64_t v52 = dagc_floordiv(Zmax, Z);
  const int64_t v53 = v51 ? v52 : 0;
  const int64_t v54 = v43 ? v44 : v53;
  const int64_t v55 = v31 ? v32 : v54;
  const int64_t v56 = v19 ? Bmax : v55;
  return v56;
}
