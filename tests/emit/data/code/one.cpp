namespace heat {
// Arrays that may change are null pointers here.
void one(double* t, const double* s, double* factor) { factor[0] = t == nullptr && s == nullptr ? 1 : 3; }
}  // namespace heat
