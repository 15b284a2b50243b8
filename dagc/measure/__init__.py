"""Runs programs and times them: ranks, runners, isolation of crashes and hangs, profiles."""
