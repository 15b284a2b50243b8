"""The choice of settings, variants and plans: legal settings, models, selectors, and their C code."""
