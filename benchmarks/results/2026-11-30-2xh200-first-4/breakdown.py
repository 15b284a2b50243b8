"""As ../2026-11-30-2xh200-first/breakdown.py; with READ set, a thread reads the compilers from the disk meanwhile."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
if os.environ.get("READ"):
    from threading import Thread

    import files

    Thread(target=files.read, daemon=True).start()

import dagc.study.ahead as ahead
import dagc.study.domain as domain
import dagc.study.runners as runners
from dagc.cli.main import main
from dagc.measure.service import Service
from dagc.study.beside import Beside

STAGES = {
    ahead: ["first_plan", "write_runner", "runner_at", "as_written", "first_sample"],
    runners: ["runner_at", "first_sample"],
    domain: ["_requested", "configured", "_under_way", "launch_sites"],
    Service: ["_ask", "open"],
}


def mark(what: str) -> None:
    since = time.time() - float(os.environ["BEGAN"])
    print(f"@ {since:.2f} s, {time.process_time():.2f} s of CPU: {what}", file=sys.stderr, flush=True)


def timed(module: object, name: str) -> None:
    real = getattr(module, name)

    def call(*args: object, **more: object) -> object:
        what = f"{args[2].get('do')}" if name == "_ask" else f"{name} {getattr(args[0], 'name', '')}"
        mark(f"> {what}")
        try:
            return real(*args, **more)
        finally:
            mark(f"< {what}")

    setattr(module, name, call)


tell, keep = Beside.tell, domain._keep


def interrupt(what: str) -> None:
    mark(what)
    if not os.environ.get("ON"):
        signal.raise_signal(signal.SIGINT)


def told(self: Beside, index: int, *more: object) -> None:
    tell(self, index, *more)
    if not self.checked[index].failure:
        mark("first measurement made") if not self.kept else interrupt("measurement made")


def kept(*of: object) -> None:
    keep(*of)  # type: ignore[arg-type]
    interrupt("first measurement kept")


if __name__ == "__main__":
    mark("imports")
    for of, names in STAGES.items():
        for name in names:
            timed(of, name)
    Beside.tell, domain._keep = told, kept  # type: ignore[assignment, method-assign]
    sys.exit(main(sys.argv[1:]))
