# SPDX-License-Identifier: BSD-3-Clause

"""The disks that servers are compared on, and the image on each.

The image is sparse, but what a workload writes has real blocks behind it, as
after mkfs.fat on a disk: a first write into a hole costs the file system
under it more than the sync that is to be measured.  They are written once;
the client writes the whole volume's metadata before each run, zeros too, so
that no server makes holes there again.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile

from sync_cost import measure_sync

MIB = 1 << 20
IMAGE_SIZE = 4608 * MIB         # room for 16 files of 256 MiB, and FATs
SLOW_DISK_SIZE = "8G"

# name, delay of a flush in us (0: no slow disk), what it is.
DISKS = [
    ("tmpfs", 0, "tmpfs: a sync costs nothing"),
    ("own", 0, "the machine's own disk"),
    ("slow-1ms", 1000, "ext4 on a loop device whose flush takes 1 ms"),
    ("slow-5ms", 5000, "ext4 on a loop device whose flush takes 5 ms"),
]


class DiskMissing(Exception):
    """This machine cannot have such a disk."""


class Disk:
    """Until the block ends.  .path is a directory on it, .image the image,
    .sync_us the measured cost of a sync."""

    def __init__(self, name, own, tmpfs, srcdir):
        self.name = name
        _, self.delay_us, self.title = next(d for d in DISKS if d[0] == name)
        self.tmpfs = tmpfs
        self.parent = tmpfs if name == "tmpfs" else own
        self.srcdir = srcdir
        self.stack = contextlib.ExitStack()
        self.path = self.image = self.sync_us = None
        self.written = 0

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            if self.delay_us:
                self.path = self.start_slow_disk(stack)
            else:
                self.path = tempfile.mkdtemp(prefix="fatbatch-bench.",
                                             dir=self.parent)
                stack.callback(shutil.rmtree, self.path, True)
            self.image = os.path.join(self.path, "image")
            with open(self.image, "wb") as image:
                image.truncate(IMAGE_SIZE)
            self.sync_us = measure_sync(self.path)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *args):
        self.stack.close()

    def start_slow_disk(self, stack):
        # In a session of its own: Ctrl-C is for us, who end what still uses
        # the disk before the disk.
        process = subprocess.Popen(
            [os.path.join(self.srcdir, "slow-disk.sh"), self.tmpfs,
             str(self.delay_us), SLOW_DISK_SIZE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True)
        stack.callback(self.stop_slow_disk, process)
        words = process.stdout.readline().split()
        if len(words) != 2:
            raise DiskMissing(f"{self.name}: no slow disk on this machine")
        return words[0]

    @staticmethod
    def stop_slow_disk(process):
        process.stdin.close()
        process.stdout.close()
        process.wait()

    def reset_image(self, blocks):
        """There is no volume on it yet, its first BLOCKS bytes are not holes,
        and nothing of it is dirty.  Behind the first MiB it may hold
        anything."""
        with open(self.image, "r+b") as image:
            write_zeros(image, 0, MIB)
            write_zeros(image, max(MIB, self.written), blocks)
            self.written = max(self.written, blocks, MIB)
            image.flush()
            os.fsync(image.fileno())


def write_zeros(image, start, end):
    image.seek(start)
    while start < end:
        start += image.write(bytes(min(MIB, end - start)))
