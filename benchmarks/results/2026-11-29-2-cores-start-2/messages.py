"""Messages that the ranks and the hosts send in a trace of smpirun (Paje); files in a log of strace.

python messages.py TRACE RANKS_A_HOST [STRACE_LOG]
"""

import re
import sys
from collections import Counter
from pathlib import Path

CREATE, SEND = "6", "15"


def messages(trace: Path, ranks_a_host: int) -> None:
    rank_of: dict[str, int] = {}
    sent: Counter[int] = Counter()
    with trace.open() as lines:
        for line in lines:
            words = line.split()
            if words[0] == CREATE and (name := re.search(r"rank-(\d+)", line)):
                rank_of[words[2]] = int(name[1])
            elif words[0] == SEND:
                sent[rank_of[words[5]]] += 1
    hosts: Counter[int] = Counter()
    for rank, number in sent.items():
        hosts[rank // ranks_a_host] += number
    print(
        f"{len(rank_of)} ranks: {sum(sent.values())} messages, {min(sent.values())} to {max(sent.values())} sent by one"
    )
    print(f"at most {max(hosts.values())} by a host, {max(hosts.values()) / len(rank_of):.1f} for each rank of the job")


def files(log: Path) -> None:
    opened: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        if (found := re.search(r'"([^"]*rank-\d+[^"]*)"', line)) and "ENOENT" not in line and "O_DIRECTORY" not in line:
            opened[found[1]] += 1
    by_rank = Counter(path.split("rank-")[1][:4] for path in opened)
    print(f"{len(opened)} files of the data, of a rank {min(by_rank.values())} to {max(by_rank.values())}")


if __name__ == "__main__":
    messages(Path(sys.argv[1]), int(sys.argv[2]))
    if len(sys.argv) > 3:
        files(Path(sys.argv[3]))
