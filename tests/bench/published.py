# SPDX-License-Identifier: BSD-3-Clause

"""Published results of changes to guests' kernels, as ratios, beside ours.

The kernel changes make a guest faster; we make the guests without them
faster.  So there are two kinds of comparison: what the guest's change brings
on one server (the streams with and without it), and what we bring to the same
guest in place of `nbdkit file`.
"""

from targets import NotComparable, US, good_row, times_as_fast

FILE = "nbdkit file"
DISK = "slow-1ms"

# change, load, by what factor, kind of comparison.
PUBLISHED = [
    ("batching FAT mirror writes", "256M-512", "4.06x", "batch"),
    ("batching FAT mirror writes", "256M-4K", "4.31x", "batch"),
    ("batching FAT mirror writes", "1M-512", "3.50x", "batch"),
    ("batching FAT mirror writes", "1M-4K", "2.60x", "batch"),
    ("plugging the batch", "256M-512", "1.10x", "plug"),
    ("plugging the batch", "256M-4K", "1.13x", "plug"),
    ("unlocked writes in front of EOF", "8 jobs x 32, 4 KiB", "1.376x",
     "parallel"),
]


def batch(load):
    """What, the faster row (workload, server), the slower one."""
    serial, batched = (fallocate(guest, load) for guest in
                       ("serial", "batched"))
    return [
        (f"batched guest over serial guest, {FILE}",
         (batched, FILE), (serial, FILE)),
        (f"batched guest over serial guest, {US}",
         (batched, US), (serial, US)),
        (f"{US} over {FILE}, serial guest", (serial, US), (serial, FILE)),
    ]


def plug(load):
    batched = fallocate("batched", load)
    return [(f"{US} over {FILE}, batched guest",
             (batched, US), (batched, FILE))]


def parallel(_):
    name = "randwrite-metadata"
    return [(f"{US} over {US} parallel=off", (name, US),
             (name, f"{US} parallel=off")),
            (f"{US} over {FILE}", (name, US), (name, FILE))]


KINDS = {"batch": batch, "plug": plug, "parallel": parallel}


def fallocate(guest, load):
    return f"fallocate-{guest}" + ("" if load == "256M-512" else f"-{load}")


def compare_one(rows, change, load, factor, comparison):
    what, faster, slower = comparison
    result = {"change": change, "load": load, "published": factor,
              "what": what, "disk": DISK, "measured": None, "reason": ""}
    try:
        us, other = (good_row(rows, DISK, *name) for name in (faster, slower))
    except NotComparable as error:
        result["reason"] = error.args[1]
        return result
    value, least, most = times_as_fast(us, other)
    result.update(measured=value, min=least, max=most,
                  rows=[us["id"], other["id"]])
    return result


def compare(rows):
    return [compare_one(rows, change, load, factor, comparison)
            for change, load, factor, kind in PUBLISHED
            for comparison in KINDS[kind](load)]
