#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause

"""Compare fatbatch with other NBD servers, on disks with slow and quick
syncs.

    bench.py [--quick] [--out=DIR] ...         (make bench, make bench-quick)

The servers take turns: each round runs a workload once on every server, and
the next round begins with another server, so that whatever else happens on
the machine meets all of them.  A row's value is the median of its rounds.

Into DIR: results.json (everything, with the commands), table.md and *.svg
(nothing but what is in results.json).

From the environment, if not as `make` built them: FATBATCH (the client),
FATBATCH_SO, NBDKIT, FAULTFS, DSYNC_SO, abs_top_builddir.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import plots
import report
import results
import vm
from disks import DISKS, Disk, DiskMissing
from servers import (Programs, Running, ServerFailed, all_servers,
                     with_stats)
from workloads import (WORKLOADS, ClientFailed, add_stats, belongs_on,
                       client_command, is_wanted, run_client, skip_reason)

SRCDIR = os.path.dirname(os.path.abspath(__file__))

QUICK = {
    "rounds": 3, "seconds": 0.3, "vm": False,
    "servers": ["fatbatch", "nbdkit file", "qemu-nbd none+io_uring",
                "qemu-nbd writeback", "dsync plugin"],
    "workloads": ["fallocate-6.1", "fallocate-serial", "fallocate-batched",
                  "fua-16", "fua-16-syncs", "randwrite"],
}
# Where a quick run does not do everything on every disk.
QUICK_ONLY = {"tmpfs": ["fallocate-6.1"],
              "own": ["fallocate-6.1", "fallocate-serial", "fua-16",
                      "randwrite"],
              "slow-1ms": ["fallocate-6.1", "fallocate-serial",
                           "fallocate-batched", "fua-16", "fua-16-syncs"],
              "slow-5ms": ["fallocate-6.1", "fallocate-serial"]}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Compare fatbatch with other NBD servers.")
    add = parser.add_argument
    add("--quick", action="store_true", help="less of everything: minutes")
    add("--out", default="bench-results", metavar="DIR")
    add("--dir", default="/var/tmp", help="on the machine's own disk")
    add("--tmpfs", default="/dev/shm", metavar="DIR", help="in memory")
    add("--rounds", type=int, metavar="N")
    add("--seconds", type=float, metavar="S", help="of a run, about")
    names = {"disks": [d[0] for d in DISKS], "workloads":
             [w.name for w in WORKLOADS], "servers": None}
    for option, known in names.items():
        add(f"--{option}", metavar="A,B", type=lambda text: text.split(","),
            help=", ".join(known or ["as in the tables"]))
    add("--vm", action=argparse.BooleanOptionalAction, default=None,
        help="loads in a real guest, too")
    arguments = parser.parse_args()
    defaults = QUICK if arguments.quick else \
        {"rounds": 5, "seconds": 1.5, "vm": True}
    arguments.only = QUICK_ONLY if arguments.quick and \
        not arguments.workloads else {}
    arguments.by_name = arguments.workloads or []
    for key, value in defaults.items():
        if getattr(arguments, key) is None:
            setattr(arguments, key, value)
    for option, known in names.items():
        chosen = getattr(arguments, option) or known
        setattr(arguments, option, chosen)
        for name in chosen if known else []:
            if name not in known:
                parser.error(f"--{option}: there is no {name}")
    return arguments


def say(text):
    print(text, flush=True)


def check_programs(programs):
    """What nothing can be done without.  Absent servers are left out."""
    for program, where in ((programs.nbdkit, "nbdkit"),
                           (programs.plugin, "make"),
                           (programs.fatbatch, "make, with libnbd-dev"),
                           ("mkfs.fat", "dosfstools"),
                           ("gnuplot", "gnuplot-nox"),
                           ("setpriv", "util-linux")):
        if not shutil.which(program) and not os.path.exists(program):
            sys.exit(f"bench: {program} is missing: it comes with {where}")


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.programs = Programs(SRCDIR)
        check_programs(self.programs)
        self.servers = all_servers(self.programs)
        wanted = arguments.servers or [s.name for s in self.servers]
        known = {s.name for s in self.servers}
        for name in wanted:
            if name not in known:
                sys.exit(f"bench: there is no server '{name}': "
                         + ", ".join(sorted(known)))
        self.servers = [s for s in self.servers if s.name in wanted]
        self.results = results.Results(
            arguments, results.environment(self.programs, SRCDIR))

    def run(self):
        for name in self.arguments.disks:
            try:
                with Disk(name, self.arguments.dir, self.arguments.tmpfs,
                          SRCDIR) as disk:
                    self.run_disk(disk)
            except DiskMissing as error:
                say(str(error))
                self.results.add_disk(name, str(error), None, str(error))

    def run_disk(self, disk):
        say(f"== {disk.name}: {disk.title}; a sync takes "
            f"{disk.sync_us:.0f} us")
        self.results.add_disk(disk.name, disk.title, disk.sync_us)
        only = self.arguments.only.get(disk.name, self.arguments.workloads)
        for workload in WORKLOADS:
            if workload.name in only and \
               workload.name in self.arguments.workloads and \
               belongs_on(workload, disk.name,
                          workload.name in self.arguments.by_name):
                self.run_workload(disk, workload)
                self.write()
        if self.arguments.vm and disk.name in vm.DISKS:
            vm.run(self, disk, say)
            self.write()

    def run_workload(self, disk, workload):
        rows = []
        wanted = [s for s in self.servers if is_wanted(workload, s)]
        for server in wanted:
            row = self.results.add_row(disk, workload, server.name)
            why = server.missing or skip_reason(workload, server, disk)
            if why:
                row.skip(why)
            else:
                rows.append((server, row))
        rounds = self.arguments.rounds
        for i in range(min(rounds, workload.rounds or rounds)):
            turn = i % max(1, len(rows))
            for server, row in rows[turn:] + rows[:turn]:
                if row.status == "ok":
                    self.run_once(disk, workload, server, row, verify=i == 0)
        for server, row in rows:
            say(f"  {workload.name:26} {server.name:28} {row.summary()}")

    def run_once(self, disk, workload, server, row, verify):
        disk.reset_image(workload.blocks)
        server_command = with_stats(server) if workload.stats else None
        with tempfile.TemporaryDirectory(prefix="fb-bench.") as directory:
            try:
                with Running(self.programs, server, disk.image, directory,
                             server_command) as running:
                    command = client_command(
                        self.programs, workload, disk, running.uri,
                        self.arguments.seconds, verify)
                    row.commands(running.command, command)
                    result = run_client(workload, command,
                                        self.arguments.seconds)
                if workload.stats:
                    add_stats(result, running.log_text())
                row.add(result)
            except (ServerFailed, ClientFailed) as error:
                row.fail(str(error))

    def write(self):
        directory = self.arguments.out
        self.results.write(directory)
        report.write(self.results.document(), directory)


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    began = time.monotonic()
    arguments = parse_arguments()
    os.makedirs(arguments.out, exist_ok=True)
    bench = Bench(arguments)
    bench.run()
    bench.write()
    try:
        plots.draw(bench.results.document(), arguments.out)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"bench: no plots: {error}")
    say(f"{time.monotonic() - began:.0f} s; results: {arguments.out}/table.md")
    failed = bench.results.failed()
    for row in failed:
        say(f"FAILED: {row.disk} {row.workload} {row.server} ({row.id})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
