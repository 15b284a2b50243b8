"""Design rules: what the fast implementations of a program have in common (Tenzing, section IV)."""

from dagc.learn.rules.across import across, claim_of
from dagc.learn.rules.tree import learn

__all__ = ["across", "claim_of", "learn"]
