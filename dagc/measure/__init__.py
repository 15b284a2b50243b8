"""Runs programs and times them: ranks, runners, isolation of what crashes or hangs, profiles."""
