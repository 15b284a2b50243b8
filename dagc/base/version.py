"""The version of dagc, kept apart so that nothing below the top imports the package as a whole."""

__version__ = "0.2.0"
