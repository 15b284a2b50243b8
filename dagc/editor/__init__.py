"""What editors ask of a text while it is written: diagnostics, hover, definitions, names. `server` speaks to them."""
