# SPDX-License-Identifier: BSD-3-Clause

"""results.json -> SVG, by gnuplot.  The data of a plot is kept beside it as
NAME.dat, with the ids of the rows."""

import os
import subprocess

STYLE = """set terminal svg size 1000,500 dynamic noenhanced \
background rgb "white" font "sans-serif,13"
set key outside right top
set grid
set logscale xy
set format x "%.0s%c"
set format y "%g"
"""

FAT_WORKLOADS = ("fallocate-6.1", "fallocate-serial", "fallocate-batched")
LATENCY_WORKLOADS = ("randwrite", "randwrite-metadata", "fua-1", "fua-16")


def good_rows(document, **wanted):
    return [row for row in document["rows"] if row["status"] == "ok" and
            all(row[key] == value for key, value in wanted.items())]


def servers_of(rows):
    return list(dict.fromkeys(row["server"] for row in rows))


def gnuplot(directory, name, blocks, settings, using, style):
    """BLOCKS: (title, [line]), a curve each."""
    data = os.path.join(directory, name + ".dat")
    with open(data, "w", encoding="utf-8") as out:
        for title, lines in blocks:
            out.write(f"# {title}\n" + "\n".join(lines) + "\n\n\n")
    curves = ", ".join(
        f"'{data}' index {i} using {using} with {style} title '{title}'"
        for i, (title, _) in enumerate(blocks))
    script = STYLE + settings + \
        f"set output '{os.path.join(directory, name + '.svg')}'\n" \
        f"plot {curves}\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def draw_sync_cost(document, directory, workload):
    """Time for a FAT sector against the cost of a sync: a curve a server, a
    point a disk."""
    rows = good_rows(document, workload=workload)
    blocks = []
    syncs = [document["disks"][row["disk"]]["sync_us"] for row in rows]
    for server in servers_of(rows):
        points = sorted((document["disks"][row["disk"]]["sync_us"],
                         row["median"], row["min"], row["max"], row["id"])
                        for row in rows if row["server"] == server)
        blocks.append((server, ["%.1f %.4f %.4f %.4f %s" % p
                                for p in points]))
    if blocks:
        gnuplot(directory, f"sync-{workload}", blocks,
                f"set title '{rows[0]['title']}'\n"
                f"set xrange [{min(syncs) / 1.5}:{max(syncs) * 1.5}]\n"
                "set xlabel 'a sync of the disk, us'\n"
                "set ylabel 'time for a FAT sector, us'\n",
                "1:2:3:4", "yerrorlines")


def tail_of(row):
    """Lines "us share id": the share of requests that took longer."""
    left = total = sum(count for _, count in row["histogram"])
    lines = []
    for us, count in row["histogram"]:
        lines.append("%.3f %.8f %s" % (us, left / total, row["id"]))
        left -= count
    return lines


def draw_latency(document, directory, disk, workload):
    rows = [row for row in good_rows(document, disk=disk, workload=workload)
            if row["histogram"]]
    if rows:
        gnuplot(directory, f"latency-{workload}-{disk}",
                [(row["server"], tail_of(row)) for row in rows],
                f"set title '{rows[0]['title']}; {disk}'\n"
                "set xlabel 'latency, us'\n"
                "set ylabel 'share of requests that took as long'\n",
                "1:2", "lines")


def draw(document, directory):
    for workload in FAT_WORKLOADS:
        draw_sync_cost(document, directory, workload)
    for disk in document["disks"]:
        for workload in LATENCY_WORKLOADS:
            draw_latency(document, directory, disk, workload)
