"""Times of single launches of each op of a program under all settings and forms, once or more; a line each."""

import argparse, json, os, random, sys, time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, os.getcwd())
from benchmarks.gpu.joint import SUBJECTS, ROOT
from dagc.measure.service import WorkerLink
from dagc.report.display import SILENT
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study.domain import ready, checked
from dagc.study.files import SearchFile
from dagc.study import launch as L

ap = argparse.ArgumentParser()
ap.add_argument("--out", type=Path)
ap.add_argument("--target", default="cuda")
ap.add_argument("--limit", type=float, default=40)
ap.add_argument("names", nargs="+")
a = ap.parse_args()
a.out.mkdir(parents=True, exist_ok=True)
os.environ.setdefault("OMP_NUM_THREADS", "1")
for name in a.names:
    began = time.monotonic()
    subject = SUBJECTS[name]
    with ExitStack() as stack:
        options = ExploreOptions(
            ranks=1,
            budget=10,
            transport="all",
            seconds=0.005,
            target=a.target,
            launch="search",
            strategy="model",
            quiet=True,
            trace=False,
        )
        link = stack.enter_context(WorkerLink(1))
        text = read(ROOT / "samples" / subject.path, subject.small if a.target == "host" else subject.defines, True)
        file = SearchFile(stack)
        made = ready(text, Path("/tmp") / f"alone-{name}.db", options, SILENT, stack, link, file)
        chosen = made.request.chosen
        file.hosts(lambda: made.machine.hosts(chosen.target.value, chosen.arch))
        records, _ = file.open(text.path, made.program, made.request.options, made.fixed, made.domain.folded)
        domain = checked(made, records).domain
        machine = made.machine
        print(
            name, "compiled", round(time.monotonic() - began, 1), "s;", len(machine.domain.spaces), "spaces", flush=True
        )
        timing = L.Timing(seconds=0.002, flush=L.DEFAULT_FLUSH if a.target == "cuda" else 0, watchdog=options.watchdog)
        seen = {}
        for index, space in enumerate(machine.domain.spaces):
            for site in space.sites:
                key, op = L._timed_as(space, site)
                seen.setdefault(key, (index, space, site, op))
        end = time.monotonic() + a.limit
        with (a.out / f"{name}.jsonl").open("w") as out:
            work = []
            for index, space, site, op in seen.values():
                repeats = L.repeats_of(space.graph.program, L.read_scalars(space.graph.program, made.arrays.data, 1))
                measure = machine.alone(index, site, repeats, timing, L.tolerance_between(space.graph.program, op))
                prior = dict(zip(site.choices, getattr(site, "prior", None) or [None] * len(site.choices)))
                order = list(site.choices)
                random.Random(1).shuffle(order)
                work.append((site, space, measure, order, prior))
            n = 0
            for round_ in range(2):
                for place in range(max(len(w[3]) for w in work)):
                    for site, space, measure, order, prior in work:
                        if place < len(order) and time.monotonic() < end:
                            c = order[place]
                            s = measure(c)
                            n += 1
                            out.write(
                                json.dumps(
                                    {
                                        "op": site.name,
                                        "variant": str(space.configuration.get(f"{site.name}.variant")),
                                        "choice": str(c.text if hasattr(c, "text") else c),
                                        "us": None if s.failure else 1e6 * s.value,
                                        "failure": str(s.failure or ""),
                                        "prior": prior.get(c),
                                        "round": round_,
                                    }
                                )
                                + "\n"
                            )
        print(
            name,
            n,
            "timed of",
            sum(len(w[3]) for w in work),
            [(w[0].name, len(w[3])) for w in work],
            round(time.monotonic() - began, 1),
            "s",
            flush=True,
        )
