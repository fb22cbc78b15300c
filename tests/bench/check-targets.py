# SPDX-License-Identifier: BSD-3-Clause

"""Are targets judged, and published results compared, as they should be?
With rows that were never measured.  Run by test-bench-driver.sh."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import published
import report
import targets
import workloads


def row(number, disk, workload, server, values, lower=True, **more):
    return {"id": f"r{number}", "disk": disk, "workload": workload,
            "server": server, "values": values, "lower_is_better": lower,
            "status": "ok", "reason": "",
            "runs": [{"latency_us": {"mean": v, "p99.9": 10 * v}, **more}
                     for v in values]}


def skipped(disk, workload, server):
    return dict(row(0, disk, workload, server, []), status="skipped",
                reason="this plugin has none")


def check(name, judged, **want):
    got = {key: judged[key] for key in want}
    assert got == want, f"{name}: {got}, not {want}"


def check_line(got, *cells):
    want = "| " + " | ".join(cells) + " |\n"
    assert got == want, f"{got!r}, not {want!r}"


def judge(rows, workload, disk, against, required=None, what="value"):
    """The one target that fits."""
    fitting = [t for t in targets.judge(rows)
               if (t["workload"], t["disk"], t["against"], t["what"]) ==
               (workload, disk, against, what) and
               required in (None, t["required"])]
    assert len(fitting) == 1, (workload, disk, against, len(fitting))
    return fitting[0]


def check_speed():
    rows = [row(1, "slow-1ms", "fallocate-serial", "fatbatch", [10, 20, 12]),
            row(2, "slow-1ms", "fallocate-serial", "nbdkit file",
                [70, 72, 90])]
    name = ("fallocate-serial", "slow-1ms", "nbdkit file")
    check("six times as fast is five", judge(rows, *name, 5), verdict="pass",
          measured=6, min=3.6, max=7.5, rows=["r1", "r2"], reason="")
    check("six times as fast is not eight", judge(rows, *name, 8),
          verdict="short", measured=6, reason="not reached")
    check_line(report.target_line(judge(rows, *name, 8)),
               "r1, r2", "slow-1ms", "fallocate-serial", "nbdkit file",
               "at least 8", "6.000 (3.60 to 7.50)", "short: not reached",
               targets.COMMIT)
    check("no peer was there",
          judge(rows, "fallocate-serial", "slow-1ms", "best qemu-nbd", 4),
          verdict="not measured", measured=None)
    check("no such disk",
          judge(rows, "fallocate-serial", "slow-5ms", "nbdkit file", 5),
          verdict="not measured", measured=None)


def check_best_peer():
    rows = [row(1, "own", "fua-16", "fatbatch", [100], False),
            row(2, "own", "fua-16", "nbdkit file", [80], False),
            row(3, "own", "fua-16", "qemu-nbd writeback", [95], False),
            row(4, "own", "fua-16", "fatbatch cache=none", [500], False)]
    check("more is better, and the best of them counts",
          judge(rows, "fua-16", "own", "best peer"), verdict="short",
          measured=100 / 95, other="qemu-nbd writeback")


def check_parallel():
    name = ("randwrite-metadata", "slow-1ms", "parallel=off")
    rows = [row(1, *name[1::-1], "fatbatch", [100], False),
            skipped("slow-1ms", name[0], "fatbatch parallel=off")]
    check("what we do not have", judge(rows, *name), verdict="short",
          measured=None, reason="this plugin has none")
    rows[1] = row(2, *name[1::-1], "fatbatch parallel=off", [50], False)
    check("twice as many", judge(rows, *name), verdict="pass", measured=2)
    check("of latency less is better", judge(rows, *name, what="p99.9"),
          verdict="short", measured=0.5)


def check_bounds():
    rows = [row(1, "own", "fua-1", "fatbatch", [100], False),
            row(2, "own", "fua-dirty", "fatbatch", [500]),
            row(3, "own", "append-1G", "fatbatch", [1], False,
                first_tenth_us=10, last_tenth_us=13),
            row(4, "slow-1ms", "fua-16-syncs", "fatbatch", [6.5], False)]
    dirty = ("fua-dirty", "own", "fua-1, nothing dirty", 5, "mean")
    flat = ("append-1G", "own", "last tenth over first")
    check("five times as slow", judge(rows, *dirty), verdict="pass",
          measured=5, bound="at most", rows=["r2", "r1"])
    check("slower as it grows", judge(rows, *flat), verdict="short",
          measured=1.3)
    check("writes to a sync",
          judge(rows, "fua-16-syncs", "slow-1ms", "writes to a sync"),
          verdict="pass", measured=6.5, bound="at least")
    rows[1]["runs"][0]["latency_us"]["mean"] = 501
    rows[2]["runs"][0]["last_tenth_us"] = 12
    check("more than five times", judge(rows, *dirty), verdict="short")
    check("flat", judge(rows, *flat), verdict="pass", measured=1.2)


def check_published():
    def compared(what, factor):
        return next(one for one in published.compare(rows) if
                    (one["what"], one["published"]) == (what, factor))
    rows = [row(1, "slow-1ms", "fallocate-serial", "fatbatch", [20]),
            row(2, "slow-1ms", "fallocate-batched", "fatbatch", [5]),
            row(3, "slow-1ms", "fallocate-serial", "nbdkit file", [60]),
            row(4, "slow-1ms", "fallocate-batched-1M-4K", "fatbatch", [1])]
    check("the guest's change", compared(
        "batched guest over serial guest, fatbatch", "4.06x"),
        measured=4, rows=["r2", "r1"])
    check_line(report.published_line(compared(
        "batched guest over serial guest, fatbatch", "4.06x")),
        "r2, r1", "batching FAT mirror writes", "256M-512", "4.06x",
        "batched guest over serial guest, fatbatch", "slow-1ms",
        "4.000 (4.00 to 4.00)")
    check("we instead", compared(
        "fatbatch over nbdkit file, serial guest", "4.06x"), measured=3)
    check("one row only", compared(
        "batched guest over serial guest, fatbatch", "2.60x"), measured=None)


def check_names():
    """A target of a workload, or against a server, that is none would be
    "not measured" for ever."""
    known = {w.name: w for w in workloads.WORKLOADS}
    for target in targets.TARGETS:
        assert target.against in targets.OURSELVES or \
            target.against in targets.PEER_GROUPS, target
        if target.workload.startswith("vm-"):
            continue
        for disk in target.disks:
            assert workloads.belongs_on(known[target.workload], disk, False), \
                target
    dirty = known["fua-dirty"]
    assert not workloads.belongs_on(dirty, "slow-1ms", False)
    assert workloads.belongs_on(dirty, "slow-1ms", True)
    for _, load, _, kind in published.PUBLISHED:
        for _, faster, slower in published.KINDS[kind](load):
            assert faster[0] in known and slower[0] in known, (faster, slower)


check_speed()
check_best_peer()
check_parallel()
check_bounds()
check_published()
check_names()
