"""Rational programs (KLARAPTOR): arithmetic on data, hardware and program parameters that gives a performance metric.

`program` is the language, `lower` its three-address code, shared by `evaluate` (NumPy) and `cprint` (C). `geometry`
has the launch geometry that the models `volume`, `mwp_cwp` and `counted` use.
"""
