"""A model of the times of implementations: a simulation fitted to measurements, a Gaussian process of its error."""
