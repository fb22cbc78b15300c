# SPDX-License-Identifier: BSD-3-Clause

"""results.json -> table.md.  Each line names the rows that it comes from."""

import os

from targets import US, our_row, times_as_fast


def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def span(least, most):
    return f"{number(least)} to {number(most)}"


def line(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def head(*cells):
    return line(*cells) + "|" + "---|" * len(cells) + "\n"


def environment_lines(document):
    env, settings = document["environment"], document["settings"]
    text = f"Measured {env['date']} on {env['cpu']}, " \
        f"{env['cpus']} processors, Linux {env['kernel']}.\n\n"
    names = ("fatbatch", "commit", "nbdkit", "qemu-nbd", "nbd-server",
             "libnbd", "fio")
    text += head("program", "version")
    text += "".join(line(name, env[name]) for name in names if env[name])
    rounds = settings["rounds"]
    return text + f"""
Medians of {rounds} rounds, in which the servers took turns, and the least and
largest values. "{US} is ... times as fast": above 1, it is the faster one;
from the medians, then the least and largest ratio of a round. Latencies are
those of single requests, in microseconds. "row" is the row's id in
results.json, which has every value, and the commands to repeat it.
"""


def row_line(document, row):
    if row["status"] != "ok":
        return line(row["id"], row["server"],
                    f"{row['status']}: {row['reason']}", "", "", "", "")
    us = our_row(document["rows"], row["disk"], row["workload"])
    ratio = ""
    if us is not None and us["status"] == "ok" and us is not row:
        value, least, most = times_as_fast(us, row)
        ratio = f"{value:.2f} ({least:.2f} to {most:.2f})"
    latency = row["latency_us"]
    return line(row["id"], row["server"], number(row["median"]),
                span(row["min"], row["max"]), ratio,
                number(latency.get("p50")), number(latency.get("p99.9")))


def disk_section(document, name):
    disk = document["disks"][name]
    if disk["missing"]:
        return f"\n## {name}\n\nNot measured: {disk['missing']}\n"
    text = f"\n## {name}\n\n{disk['title']}. " \
        f"A sync takes {number(disk['sync_us'])} us.\n"
    workloads = []
    for row in document["rows"]:
        if row["disk"] == name and row["workload"] not in workloads:
            workloads.append(row["workload"])
    for workload in workloads:
        rows = [row for row in document["rows"]
                if (row["disk"], row["workload"]) == (name, workload) and
                row["status"] != "skipped"]
        if not rows:
            continue
        better = "less" if rows[0]["lower_is_better"] else "more"
        text += f"\n### {name}, {workload}: {rows[0]['title']}\n\n"
        text += head("row", "server", f"{rows[0]['unit']} ({better} is better)",
                     "least to largest", f"{US} is ... times as fast",
                     "p50", "p99.9")
        text += "".join(row_line(document, row) for row in rows)
    return text


def skipped_section(document):
    """Each reason once."""
    skipped = {}
    for row in document["rows"]:
        if row["status"] == "skipped":
            key = (row["server"], row["reason"])
            skipped.setdefault(key, []).append(row["id"])
    if not skipped:
        return ""
    return "\n## Left out\n\n" + head("rows", "server", "why") + \
        "".join(line(", ".join(ids), server, why)
                for (server, why), ids in skipped.items())


def measured_cells(judged):
    """Its rows, and what came out."""
    if judged["measured"] is None:
        return "", judged["reason"]
    return ", ".join(judged["rows"]), f"{judged['measured']:.3f} " \
        f"({judged['min']:.2f} to {judged['max']:.2f})"


def target_line(target):
    what = "" if target["what"] == "value" else f", {target['what']}"
    rows, measured = measured_cells(target)
    reason = ""
    if target["measured"] is not None and target["reason"]:
        reason = f": {target['reason']}"
    against = target["against"]
    if target.get("other", against) not in ("", against):
        against += f": {target['other']}"
    return line(rows, target["disk"], target["workload"] + what, against,
                f"{target['bound']} {target['required']:g}", measured,
                target["verdict"] + reason, target["step"])


def targets_section(document):
    text = f"""
## Targets

How many times as fast as others {US} has to be, and is; and a few bounds on
its own. "short": not reached, or this plugin does not have it yet.

"""
    text += head("rows", "disk", "workload", "against", "required",
                 "measured", "verdict", "belongs to")
    return text + "".join(target_line(t) for t in document["targets"])


def published_line(one):
    rows, measured = measured_cells(one)
    return line(rows, one["change"], one["load"], one["published"],
                one["what"], one["disk"], measured)


def published_section(document):
    text = """
## Published kernel results beside ours, as ratios

The kernel changes were measured on other machines, in the time of a whole
load. Here it is the time for a FAT sector (of the first so many, with the
large files), or requests per second.

"""
    text += head("rows", "kernel change", "load", "published", "compared here",
                 "disk", "measured")
    return text + "".join(published_line(one)
                          for one in document["published"])


def write(document, directory):
    text = "# Benchmark\n\n" + environment_lines(document)
    for name in document["disks"]:
        text += disk_section(document, name)
    text += targets_section(document) + published_section(document)
    text += skipped_section(document)
    path = os.path.join(directory, "table.md")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
