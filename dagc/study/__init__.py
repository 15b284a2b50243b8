"""Studies: measure a program over cases and choices, learn what to choose, judge it, move it to another machine."""
