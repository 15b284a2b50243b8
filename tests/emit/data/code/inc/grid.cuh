#pragma once
__host__ __device__ inline long idx(long i, long j, long n) { return i * n + j; }
