"""Launch configurations: which are legal, what was measured of them, which is chosen, and how good the choice is."""
