# SPDX-License-Identifier: BSD-3-Clause

"""The workloads: what is run against a server, and which number counts.

A new one is a line in WORKLOADS.
"""

import dataclasses
import json
import re
import shutil
import subprocess

from disks import MIB


class ClientFailed(Exception):
    """The client, or its check of what is on the export."""


@dataclasses.dataclass
class Workload:
    name: str
    title: str
    metric: str                 # key of the client's result
    unit: str
    lower_is_better: bool
    arguments: object           # (disk, seconds) -> list of words
    blocks: int = 16 * MIB      # of the image, not holes
    client: str = "fatbatch"
    syncs: bool = True          # whether each write asks for durability
    # Where it runs, on which servers, and in how many rounds at most.  On
    # other disks, too, if it is asked for by its name.
    disks: tuple = ()           # all
    servers: tuple = ()         # all
    rounds: int = 0             # no limit
    stats: bool = False         # with the server's own counters


# One FAT sector costs about one sync, or the way through the server.
def fat_sectors(disk, seconds, share):
    count = int(seconds * 1e6 / (max(disk.sync_us, 40) * 1.3) * share)
    return max(32, count // 16 * 16)


# Less than the stream of a 6.1 guest has in any preset with 256 MiB; the
# whole of the others' (256M-512: 149824).
LIMIT_MAX = 500000


def fallocate(guest, share, preset="256M-512"):
    def arguments(disk, seconds):
        limit = min(LIMIT_MAX, fat_sectors(disk, seconds, share))
        return ["fallocate", f"--preset={preset}", f"--guest={guest}",
                "--durable=fua"] + \
            ([f"--limit={limit}"] if preset.startswith("256M") else [])
    return arguments


def append(disk, seconds):
    # Some twelve waits for 4 KiB: data, FATs, directory entry.
    clusters = max(4, fat_sectors(disk, seconds, 1) // 12)
    return ["append", f"--size={min(clusters, 4096) * 4096}", "--bs=4096",
            "--cluster=4096", "--durable=fua"]


def append_large(disk, seconds):
    return ["append", "--size=1G", "--bs=64K", "--cluster=16K",
            "--durable=fua"]


def fua(clients):
    return lambda disk, seconds: ["fua", f"--clients={clients}", "--bs=512",
                                  f"--runtime={seconds}"]


def fua_dirty(disk, seconds):
    return ["fua", "--clients=1", "--bs=512", "--count=4", "--dirty=1G"]


def randwrite(*more):
    return lambda disk, seconds: [
        "randwrite", "--preset=published", f"--runtime={seconds}",
        "--size=128M", *more]


def fio(jobs):
    return lambda disk, seconds: [
        "--name=randwrite", "--ioengine=nbd", "--rw=randwrite", "--bs=4k",
        "--iodepth=32", f"--numjobs={jobs}", "--size=128m", "--time_based",
        f"--runtime={int(seconds * 1000)}ms", "--group_reporting",
        "--randseed=1", "--output-format=json"]


LOWER, HIGHER = True, False
FAT_512 = 68 * MIB              # both FATs of the preset's volume
US_AND_FILE = ("fatbatch", "nbdkit file")
# The published loads other than 256M-512, which is measured everywhere.
PRESETS = {"256M-4K": "16 files of 256 MiB, clusters of 4 KiB",
           "1M-512": "16 files of 1 MiB, clusters of 512 bytes",
           "1M-4K": "16 files of 1 MiB, clusters of 4 KiB"}


def preset_workload(guest, preset):
    mirrors = "at once" if guest == "batched" else "one by one"
    return Workload(f"fallocate-{guest}-{preset}",
                    f"fallocate, {PRESETS[preset]}, FAT 2 {mirrors}, FUA",
                    "us_per_fat_sector", "us/FAT sector", LOWER,
                    fallocate(guest, 4 if guest == "batched" else 1, preset),
                    disks=("slow-1ms",), servers=US_AND_FILE)


WORKLOADS = [
    Workload("fallocate-6.1", "fallocate, stream of a 6.1 guest, FUA",
             "us_per_fat_sector", "us/FAT sector", LOWER,
             fallocate("6.1", 1), FAT_512),
    Workload("fallocate-serial",
             "fallocate, 8 sectors of FAT 1 at once, FAT 2 one by one, FUA",
             "us_per_fat_sector", "us/FAT sector", LOWER,
             fallocate("serial", 1), FAT_512),
    Workload("fallocate-batched",
             "fallocate, 8 sectors of FAT 1, then of FAT 2, at once, FUA",
             "us_per_fat_sector", "us/FAT sector", LOWER,
             fallocate("batched", 4), FAT_512),
    Workload("append", "one file growing on a sync mount, FUA",
             "iops", "requests/s", HIGHER, append, 40 * MIB),
    Workload("fua-1", "512-byte FUA overwrites, one client",
             "iops", "IOPS", HIGHER, fua(1)),
    Workload("fua-16", "512-byte FUA overwrites, 16 clients",
             "iops", "IOPS", HIGHER, fua(16)),
    Workload("randwrite", "4 KiB in front of EOF, 8 jobs x 32",
             "iops", "IOPS", HIGHER, randwrite(), 192 * MIB,
             syncs=False),
    Workload("randwrite-metadata",
             "the same, beside a synchronous FAT stream",
             "iops", "IOPS", HIGHER, randwrite("--metadata"), 192 * MIB,
             syncs=False),
    Workload("fio-1", "fio: 4 KiB random writes, 1 job x 32",
             "iops", "IOPS", HIGHER, fio(1), 192 * MIB, "fio", False),
    Workload("fio-8", "fio: 4 KiB random writes, 8 jobs x 32",
             "iops", "IOPS", HIGHER, fio(8), 192 * MIB, "fio", False),
    Workload("fua-16-syncs",
             "FUA writes of 16 clients to a sync, by the server's counters",
             "writes_per_sync", "writes/sync", HIGHER, fua(16),
             disks=("slow-1ms", "slow-5ms"), servers=("fatbatch",),
             stats=True),
    *[preset_workload(guest, preset) for preset in PRESETS
      for guest in ("serial", "batched")],
    # These have more blocks than all before them.
    Workload("fua-dirty",
             "4 FUA overwrites of 512 bytes beside 1 GiB of dirty bytes",
             "mean_us", "us, mean", LOWER, fua_dirty, 1088 * MIB,
             disks=("own",), rounds=3,
             servers=US_AND_FILE + ("qemu-nbd writeback", "dsync plugin")),
    Workload("append-1G",
             "one file growing to 1 GiB in writes of 64 KiB, clusters of "
             "16 KiB, FUA", "iops", "requests/s", HIGHER, append_large,
             1088 * MIB, disks=("own",), rounds=2, servers=US_AND_FILE),
]


# What each cache mode but the default is measured with: in the others it
# differs little from the default, and an hour is long enough.
CACHE_WORKLOADS = ("fallocate-6.1", "append", "fua-1", "fua-16", "randwrite",
                   "fio-8")


def is_wanted(workload, server):
    if workload.servers:
        return server.name in workload.servers
    return "cache=" not in server.name or workload.name in CACHE_WORKLOADS


def belongs_on(workload, disk_name, by_name):
    """BY_NAME: whether somebody has asked for just this workload."""
    return by_name or not workload.disks or disk_name in workload.disks


def skip_reason(workload, server, disk):
    if workload.client == "fio" and not shutil.which("fio"):
        return "fio is not installed"
    if disk.delay_us and server.syncs_each and not workload.syncs:
        return "each write waits for a sync of its own: see fua-1"
    return ""


def client_command(programs, workload, disk, uri, seconds, verify):
    words = workload.arguments(disk, seconds)
    if workload.client == "fio":
        # The engine's own options come after the engine.
        return ["fio"] + words[:2] + [f"--uri={uri}"] + words[2:]
    command = [programs.fatbatch, "bench", words[0], uri] + words[1:]
    return command + ["--json", "--quiet"] + \
        ([] if verify else ["--no-verify"])


def run_client(workload, command, seconds):
    """What the client measured: a dictionary with "iops" or the like,
    "mean_us", "latency_us", "histogram", "verify"."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=180 + 20 * seconds)
    except subprocess.TimeoutExpired as error:
        raise ClientFailed(f"not done after {error.timeout:.0f} s") from error
    if done.returncode != 0:
        raise ClientFailed(f"exit status {done.returncode}: "
                           + " / ".join(done.stderr.splitlines()[-3:]))
    # fio says what it has to say in front of the JSON.
    answer = json.loads(done.stdout[done.stdout.index("{"):])
    if workload.client == "fio":
        return fio_result(answer)
    result = dict(answer["result"], verify=answer["verify"])
    result["mean_us"] = result["latency_us"]["mean"]
    if not workload.stats and \
       not isinstance(result.get(workload.metric), (int, float)):
        raise ClientFailed(f"no {workload.metric} in its answer")
    return result


def add_stats(result, log):
    """The counters that our server tells at its end, as in
    "stats: syncs=17 (...)", into the client's result.  Making the volume
    takes a few syncs, too: they count against us."""
    stats = {name: int(value) for name, value in
             re.findall(r"stats: (\w+)=(\d+) ", log)}
    if not stats.get("syncs"):
        raise ClientFailed("the server's log has no count of syncs")
    result["stats"] = stats
    result["writes_per_sync"] = result["fua"] / stats["syncs"]


def fio_result(answer):
    write = answer["jobs"][0]["write"]
    clat = write["clat_ns"]
    percentile = {float(k): v / 1e3
                  for k, v in clat.get("percentile", {}).items()}
    latency = {name: percentile[float(name[1:])]
               for name in ("p50", "p90", "p99", "p99.9", "p99.99")
               if float(name[1:]) in percentile}
    latency.update({"mean": clat["mean"] / 1e3, "min": clat["min"] / 1e3,
                    "max": clat["max"] / 1e3})
    return {"iops": write["iops"], "ops": write["total_ios"],
            "seconds": write["runtime"] / 1e3, "latency_us": latency,
            "histogram": [], "verify": {"data": "skipped", "fsck": "skipped"}}
