"""Synthetic machines on which the truth is exact: how good search strategies are where nobody tuned them."""
