"""A set-up that is forked while other threads start children holds none of them up."""

from __future__ import annotations

import time

from dagc.base.children import Workers, run
from dagc.setup.isolated import isolated

FORKS = 40


def test_children_that_start_at_a_fork_end_before_the_forked_process() -> None:
    ended = []

    def start() -> None:
        while len(ended) < FORKS:
            run(["true"])

    with Workers(2) as pool:
        futures = [pool.submit(start) for _ in range(2)]
        for _ in range(FORKS):
            with isolated(lambda: time.sleep(60)):
                assert run(["true"], seconds=30).returncode == 0  # takes the lock after those that are starting
            ended.append(True)
        for future in futures:
            future.result(30)
