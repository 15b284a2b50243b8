"""Which setting, variant or plan is taken: legal settings, models, selectors, and their C."""
