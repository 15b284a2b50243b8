"""A model of how long an implementation takes: simulated, fitted to measurements, corrected by what is left over."""
