"""Rational programs: arithmetic on data, hardware and program parameters that gives a performance metric (seed 002).

`program` is the language, `lower` its three-address code, which `evaluate` (NumPy) and `cprint` (C) share. `geometry`
has what the models `volume`, `mwp_cwp` and `counted` need of a launch.
"""
