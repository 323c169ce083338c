# SPDX-License-Identifier: BSD-3-Clause
"""The machine on which something is measured: what it is, how much of it was used meanwhile, and by whom."""

import os
import platform
import time

TICKS = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x00200000  # of the flags in /proc/PID/stat
QUIET_SHARE = 0.1           # of all cores: so busy is a machine on which nothing runs, at most
QUIET_LOOK = 0.1            # seconds
QUIET_DEADLINE = 10
FOREIGN_LIMIT = 0.05        # of the CPU time used in a run: what other processes may have had
UNNAMED_LIMIT = 0.2         # … and what may be neither theirs nor ours. Interrupts are up to half of it


def describe():
    """What a reader must know about where the figures come from."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, load average before: {os.getloadavg()[0]:.2f}"


def hugepages_free():
    """Of the default size, 2 MiB each on x86; 0 where there are none, or pages of another size."""
    found = {}
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            name, _, value = line.partition(":")
            found[name] = value.split()[0]
    return int(found.get("HugePages_Free", 0)) if found.get("Hugepagesize") == "2048" else 0


def _ticks():
    with open("/proc/stat", encoding="ascii") as f:
        return [int(v) for v in f.readline().split()[1:]]


def busy_seconds():
    """CPU time of the whole machine so far, whoever used it: what was neither idle nor taken by the hypervisor. Idle
    time is what the kernel measures most exactly; it counts the rest by samples, as it does interrupts."""
    ticks = _ticks()
    return time.monotonic() * os.cpu_count() - (ticks[3] + ticks[4] + ticks[7]) / TICKS


def stolen_seconds():
    """CPU time that the hypervisor gave to others while somebody here wanted it."""
    return _ticks()[7] / TICKS


def processes():
    """pid -> (parent, its own CPU seconds, those of children it has waited for), without kernel threads."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if not int(fields[6]) & KERNEL_THREAD:
            own, children = (sum(int(v) for v in fields[i:i + 2]) / TICKS for i in (11, 13))
            found[int(entry)] = (int(fields[1]), own, children)
    return found


def foreign(table, me):
    """pid -> the same, of processes that are neither `me` nor its descendants."""
    out = {}
    for pid, row in table.items():
        parent = row[0]
        while parent in table and me not in (pid, parent):
            parent = table[parent][0]
        if me not in (pid, parent):
            out[pid] = row
    return out


def foreign_seconds(before, after):
    """CPU time that others had between two looks at them. Of one that ended it is in its parent's, if that has waited for it; so
    the sum over all is right, unless some were not waited for: then those that are still there say the least it was."""
    total = sum(own + children for _, own, children in after.values()) - \
        sum(own + children for _, own, children in before.values())
    alive = sum(own - (before[pid][1] if pid in before else 0) for pid, (_, own, _) in after.items())
    return max(total, alive, 0.0)


def thread_waits(pid, name):
    """(CPU seconds, seconds in which it could have run but others did) of the thread of that name; None: it is not there."""
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8", errors="replace") as f:
                if f.read().strip() != name:
                    continue
            with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as f:
                ran, waited, _ = f.read().split()
                return int(ran) / 1e9, int(waited) / 1e9
    except OSError:
        pass
    return None


def thread_name(pid):
    """Of the first thread of a process."""
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:
        return f.read().strip()


class Span:
    """From its making to stop(): how much of the machine was used, and by whom. The attributes come with stop()."""

    def __init__(self):
        self.others = foreign(processes(), os.getpid())
        self.stolen, self.busy, self.seconds = stolen_seconds(), busy_seconds(), time.monotonic()

    def stop(self):
        self.seconds = time.monotonic() - self.seconds
        self.busy, self.stolen = busy_seconds() - self.busy, stolen_seconds() - self.stolen
        self.foreign = foreign_seconds(self.others, foreign(processes(), os.getpid()))
        return self

    def shares(self):
        """For a row of results. Processes are charged for time in which the hypervisor had their core."""
        return {"foreign_share": self.foreign / max(self.busy + self.stolen, 1e-9),
                "stolen_share": self.stolen / (self.seconds * os.cpu_count())}


def wait_until_quiet():
    """Until others leave the machine alone, but not for ever: then the run itself will show how much they disturb."""
    deadline = time.monotonic() + QUIET_DEADLINE
    while time.monotonic() < deadline:
        begun, busy = time.monotonic(), busy_seconds()
        time.sleep(QUIET_LOOK)
        if busy_seconds() - busy < QUIET_SHARE * os.cpu_count() * (time.monotonic() - begun):
            return
