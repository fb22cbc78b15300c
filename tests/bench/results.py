# SPDX-License-Identifier: BSD-3-Clause

"""What was measured: rows, and what they were measured with.

results.json:

    environment   versions, machine, date: of all rows
    settings      rounds, seconds, ...
    disks         name -> {title, sync_us (measured), missing}
    rows          one for each disk, workload and server; "id" is what
                  table.md and the plots cite
    targets       see targets.py
    published     see published.py
"""

import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess

import published
import targets
from servers import NBD_SERVER_CONF


class Row:
    def __init__(self, number, disk, workload, server):
        self.id = f"r{number}"
        self.disk, self.workload, self.server = disk, workload.name, server
        self.title = workload.title
        self.metric, self.unit = workload.metric, workload.unit
        self.lower_is_better = workload.lower_is_better
        self.status, self.reason = "ok", ""
        self.server_command = self.client_command = ""
        self.runs = []
        self.histogram = {}

    def skip(self, reason):
        self.status, self.reason = "skipped", reason

    def fail(self, reason):
        self.status, self.reason = "failed", reason

    def commands(self, server, client):
        # The first ones: later runs differ in names of sockets only.
        if not self.server_command:
            self.server_command = shlex.join(server)
            self.client_command = shlex.join(client)

    def add(self, result):
        """A run: result of the client, see workloads.run_client."""
        for us, count in result.pop("histogram", []):
            self.histogram[us] = self.histogram.get(us, 0) + count
        result.pop("metadata_histogram", None)
        self.runs.append(result)

    def summary(self):
        if self.status != "ok":
            return f"{self.status}: {self.reason}"
        values = [run[self.metric] for run in self.runs]
        return (f"{statistics.median(values):12.1f} {self.unit} "
                f"({min(values):.1f} to {max(values):.1f})")

    def document(self):
        values = [run[self.metric] for run in self.runs] \
            if self.status == "ok" else []
        return {
            "id": self.id, "disk": self.disk, "workload": self.workload,
            "title": self.title, "server": self.server,
            "status": self.status, "reason": self.reason,
            "metric": self.metric, "unit": self.unit,
            "lower_is_better": self.lower_is_better, "values": values,
            "median": statistics.median(values) if values else None,
            "min": min(values, default=None),
            "max": max(values, default=None),
            "latency_us": latency_medians(self.runs),
            "server_command": self.server_command,
            "client_command": self.client_command,
            "runs": self.runs, "histogram": sorted(self.histogram.items()),
        }


def latency_medians(runs):
    """Each percentile's median over the runs."""
    runs = [run["latency_us"] for run in runs if run.get("latency_us")]
    return {name: statistics.median(run[name] for run in runs)
            for name in (runs[0] if runs else [])
            if all(name in run for run in runs)}


class Results:
    def __init__(self, arguments, env):
        self.environment = env
        self.settings = {"rounds": arguments.rounds,
                         "seconds": arguments.seconds,
                         "quick": arguments.quick,
                         "own disk": arguments.dir}
        self.disks = {}
        self.rows = []

    def add_disk(self, name, title, sync_us, missing=""):
        self.disks[name] = {"title": title, "sync_us": sync_us,
                            "missing": missing}

    def add_row(self, disk, workload, server):
        row = Row(len(self.rows) + 1, disk.name, workload, server)
        self.rows.append(row)
        return row

    def failed(self):
        return [row for row in self.rows if row.status == "failed"]

    def document(self):
        rows = [row.document() for row in self.rows]
        return {"environment": self.environment, "settings": self.settings,
                "disks": self.disks, "rows": rows,
                "targets": targets.judge(rows),
                "published": published.compare(rows)}

    def write(self, directory):
        path = os.path.join(directory, "results.json")
        with open(path + ".new", "w", encoding="utf-8") as out:
            out.write(to_json(self.document()) + "\n")
        os.replace(path + ".new", path)


def to_json(document):
    """A line for each row, or it would be mostly line feeds."""
    parts = [f'"{key}": ' + ("[\n" + ",\n".join(map(json.dumps, value)) + "]"
                             if isinstance(value, list)
                             else json.dumps(value, indent=1))
             for key, value in document.items()]
    return "{" + ",\n".join(parts) + "}"


def first_line(*command):
    """What a program says about its version; "" if there is none."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT)
    except OSError:
        return ""
    return done.stdout.splitlines()[0].strip() \
        if done.returncode == 0 and done.stdout else ""


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        match = re.search(r"^model name\s*: (.*)$", cpuinfo.read(), re.M)
    return match.group(1) if match else platform.machine()


def environment(programs, srcdir):
    git = ["git", "--no-optional-locks", "-C", srcdir]
    commit = first_line(*git, "rev-parse", "HEAD")
    if commit and first_line(*git, "status", "--porcelain",
                             "--untracked-files=no"):
        commit += " and changes"
    return {
        "date": datetime.datetime.now(datetime.timezone.utc)
        .strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cpu": cpu_model(), "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "fatbatch": programs.dump_plugin().get("fatbatch_version", ""),
        "commit": commit,
        "nbdkit": first_line(programs.nbdkit, "--version"),
        "qemu-nbd": first_line("qemu-nbd", "--version"),
        "nbd-server": first_line("nbd-server", "-V"),
        "libnbd": first_line("nbdinfo", "--version"),
        "fio": first_line("fio", "--version"),
        "nbd-server.conf": NBD_SERVER_CONF,
    }
