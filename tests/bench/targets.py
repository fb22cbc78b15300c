# SPDX-License-Identifier: BSD-3-Clause

"""What the project has set out to reach, beside what was measured.

Most targets say how many times as fast as others we must be: as one server,
the best of a group, or the best of all peers.  The others compare runs of our
own with each other, and give a bound.
"""

import dataclasses
import statistics

PEER_GROUPS = {
    "nbdkit file": ["nbdkit file"],
    "best qemu-nbd": ["qemu-nbd writeback", "qemu-nbd none+io_uring",
                      "qemu-nbd directsync"],
    "parallel=off": ["fatbatch parallel=off"],
}
PEER_GROUPS["best peer"] = PEER_GROUPS["nbdkit file"] + \
    PEER_GROUPS["best qemu-nbd"] + ["nbd-server", "dsync plugin"]

US = "fatbatch"
SLOW = ["slow-1ms", "slow-5ms"]
OWN = ["own"]

# What the plugin must be able to do for a target.
MIRRORS = "mirrors: writing the second FAT behind the first"
COMMIT = "commit: one sync for many FUA writes"
PARALLEL = "parallel writes in front of the end of a file"
SERVING = "plain serving"


@dataclasses.dataclass(frozen=True)
class Target:
    step: str
    workload: str
    disks: list
    against: str                # of PEER_GROUPS or OURSELVES
    required: float
    what: str = "value"         # or which of a run's "latency_us"
    at_most: bool = False       # required is a bound from above


TARGETS = [
    Target(MIRRORS, "fallocate-serial", SLOW, "nbdkit file", 5),
    Target(MIRRORS, "fallocate-serial", SLOW, "best qemu-nbd", 4),
    Target(COMMIT, "fallocate-serial", SLOW, "nbdkit file", 8),
    Target(COMMIT, "fallocate-serial", SLOW, "best qemu-nbd", 6),
    Target(COMMIT, "fallocate-serial", OWN, "nbdkit file", 2.5),
    Target(MIRRORS, "fallocate-6.1", SLOW, "nbdkit file", 1.8),
    Target(COMMIT, "fallocate-6.1", SLOW, "nbdkit file", 3.4),
    Target(COMMIT, "fallocate-6.1", SLOW, "best peer", 3),
    Target(COMMIT, "fallocate-batched", SLOW, "best peer", 2),
    Target(COMMIT, "vm-virtio-fallocate", ["slow-1ms"], "nbdkit file", 2.5),
    Target(COMMIT, "fua-16", SLOW + OWN, "best peer", 1.1),
    Target(COMMIT, "fua-16-syncs", SLOW, "writes to a sync", 6),
    Target(SERVING, "fua-1", SLOW + OWN, "best peer", 0.97),
    Target(COMMIT, "fua-dirty", OWN, "fua-1, nothing dirty", 5, "mean", True),
    Target(PARALLEL, "randwrite-metadata", SLOW, "parallel=off", 1.376),
    Target(PARALLEL, "randwrite-metadata", SLOW, "parallel=off", 5, "p99.9"),
    Target(PARALLEL, "randwrite-metadata", SLOW, "nbdkit file", 1),
    Target(SERVING, "randwrite", OWN + SLOW, "nbdkit file", 0.97),
    Target(SERVING, "randwrite", OWN + SLOW, "best qemu-nbd", 2.5),
    Target(SERVING, "fio-1", OWN, "nbdkit file", 0.97),
    Target(SERVING, "fio-8", OWN, "nbdkit file", 0.97),
    Target(SERVING, "append-1G", OWN, "last tenth over first", 1.2,
           at_most=True),
]


class NotComparable(Exception):
    """(verdict, reason)"""


def find_row(rows, disk, workload, server):
    return next((row for row in rows if (row["disk"], row["workload"],
                                         row["server"]) ==
                 (disk, workload, server)), None)


def our_row(rows, disk, workload):
    """The one that the others are compared with: the first of ours."""
    return next((row for row in rows if row["disk"] == disk and
                 row["workload"] == workload and
                 row["server"].startswith(US)), None)


def good_row(rows, disk, workload, server):
    """The row, if it can be compared with."""
    row = find_row(rows, disk, workload, server)
    if row is None:
        raise NotComparable("not measured",
                            f"{workload} of {server} is not part of this run")
    if row["status"] != "ok":
        # What we cannot do yet, we have not reached.
        ours = server.startswith(US)
        raise NotComparable("short" if ours else "not measured",
                            row["reason"])
    if not row["values"]:
        raise NotComparable("not measured", "not yet")
    return row


def values_of(row, what="value"):
    """One for each round."""
    if what == "value":
        return row["values"]
    return [run["latency_us"][what] for run in row["runs"]]


def spread(values):
    return statistics.median(values), min(values), max(values)


def times_as_fast(us, other, what="value"):
    """How many times as fast US is as OTHER: of the medians, and the least
    and the largest of the rounds, which were run side by side."""
    lower = us["lower_is_better"] or what != "value"

    def ratio(ours, theirs):
        return theirs / ours if lower else ours / theirs
    ours, theirs = values_of(us, what), values_of(other, what)
    _, least, most = spread([ratio(a, b) for a, b in zip(ours, theirs)])
    return (ratio(statistics.median(ours), statistics.median(theirs)),
            least, most)


def best_of(rows, what):
    lower = rows[0]["lower_is_better"] or what != "value"
    return (min if lower else max)(
        rows, key=lambda row: statistics.median(values_of(row, what)))


# Each returns (median, least, largest), the rows, and what else there was.

def against_peers(rows, target, disk, us):
    reasons, good = [], []
    for name in PEER_GROUPS[target.against]:
        try:
            good.append(good_row(rows, disk, target.workload, name))
        except NotComparable as error:
            reasons.append(error)
    if not good:
        raise reasons[0]
    other = best_of(good, target.what)
    return times_as_fast(us, other, target.what), [us, other], other["server"]


def against_idle(rows, target, disk, us):
    idle = good_row(rows, disk, "fua-1", US)
    return times_as_fast(idle, us, target.what), [us, idle], ""


def last_over_first(rows, target, disk, us):
    return spread([run["last_tenth_us"] / run["first_tenth_us"]
                   for run in us["runs"]]), [us], ""


def own_value(rows, target, disk, us):
    return spread(us["values"]), [us], ""


OURSELVES = {"fua-1, nothing dirty": against_idle,
             "last tenth over first": last_over_first,
             "writes to a sync": own_value}


def judge_one(rows, target, disk):
    judged = {"step": target.step, "workload": target.workload, "disk": disk,
              "against": target.against, "what": target.what,
              "bound": "at most" if target.at_most else "at least",
              "required": target.required, "measured": None,
              "verdict": "not measured", "reason": ""}
    try:
        us = good_row(rows, disk, target.workload, US)
        compare = OURSELVES.get(target.against, against_peers)
        (value, least, most), used, other = compare(rows, target, disk, us)
    except NotComparable as error:
        judged["verdict"], judged["reason"] = error.args
        return judged
    reached = value <= target.required if target.at_most \
        else value >= target.required
    judged.update(measured=value, min=least, max=most, other=other,
                  rows=[row["id"] for row in used],
                  verdict="pass" if reached else "short",
                  reason="" if reached else "not reached")
    return judged


def judge(rows):
    return [judge_one(rows, target, disk)
            for target in TARGETS for disk in target.disks]
