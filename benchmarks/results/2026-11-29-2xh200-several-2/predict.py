"""What the placement solver expects of the placements in README.md, by what was measured here. Prints a line a size."""

from __future__ import annotations

from dagc.choice.placement import HOST, DeviceLink, Problem, Transfer, Transfers, Value, place

MEASURED = {4096: (23192.39, 2974.71, 4505.74), 1024: (641.33, 217.66, 452.56)}  # us: one GPU, hops, hops over the link
SPEED = {4096: 4.5e12, 1024: 7.9e12}  # of an op of hops, bytes per second of memory and of the L2 cache
PLACEMENTS = {"one": (1, 1, 1), "two": (1, 2, 1), "second": (2, 2, 2), "third": (1, 1, 2)}

for n, (one, near, far) in MEASURED.items():
    size = 4 * n * n
    link = (far - near) / 8e6
    host = (near / 1e6 - 10 * 2 * size / SPEED[n]) / 2
    product = (one / 1e6 - 5 * host) / 3
    times = {(a, b): host if HOST in (a, b) else link for a in range(3) for b in range(3) if a != b}
    links = tuple(DeviceLink(a, b, Transfer(0.0, size / seconds)) for (a, b), seconds in times.items())
    moves = Transfers(Transfer(0.0, size / host), Transfer(0.0, size / host), links).moves(size, 3)
    values = [Value(None, (op,), moves) for op in (0, 0, 1, 1)]  # A, B, C, D; then E, F, G
    values += [Value(0, (2,), moves), Value(1, (2,), moves), Value(2, (), moves, ends=(HOST,))]
    problem = Problem(((1.0, product, product),) * 3, tuple(values))  # never on the host
    expected = {
        name: sum(problem.seconds[op][device] for op, device in enumerate(at))
        + sum(value.seconds(*value.places(at)) for value in values)
        for name, at in PLACEMENTS.items()
    }
    microseconds = {name: round(1e6 * seconds) for name, seconds in expected.items()}
    print(
        f"{n}: product {1e6 * product:.0f} us, copy to the host {1e6 * host:.0f} us, over the link {1e6 * link:.0f} us;"
        f" solver: {place(problem).placement}; expected, us: {microseconds}"
    )
