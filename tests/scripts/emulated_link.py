#!/usr/bin/python3
"""A slow and lossy link between two network namespaces, for kernels without netem.

Each namespace gets a TUN device; this process carries packets between the two, holds each one back
for a while and drops some. SIGUSR1 cuts the link: from then on nothing comes through, and nobody is
told. SIGUSR2 mends it. The devices go with the process.

usage: emulated_link.py NAMESPACE ADDRESS/LENGTH NAMESPACE ADDRESS/LENGTH
           [--delay MS] [--loss PERCENT] [--seed N] [--mtu BYTES]
Prints "up" when packets are carried.
"""
import argparse
import collections
import ctypes
import fcntl
import os
import random
import select
import signal
import struct
import subprocess
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
DEVICE = "nxdlink"
LARGEST_PACKET = 65536
# A queue without end would turn a fast sender's loss into delay.
LONGEST_QUEUE = 4000

libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace_fd):
    if libc.setns(namespace_fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def open_tun(namespace):
    """A TUN device belongs to the namespace it is made in, wherever its descriptor is used."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        enter(there)
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    finally:
        enter(own)
        os.close(own)
        os.close(there)
    return fd


def configure(namespace, address, mtu):
    for words in (["addr", "add", address, "dev", DEVICE],
                  ["link", "set", DEVICE, "mtu", str(mtu), "up"],
                  ["link", "set", "lo", "up"]):
        subprocess.run(["ip", "-n", namespace, *words], check=True)


class Relay:
    def __init__(self, left, right, delay_s, loss, seed):
        self.peer = {left: right, right: left}
        self.delay_s, self.loss = delay_s, loss
        self.random = random.Random(seed)
        self.cut = False
        # All packets wait equally long, so they leave in the order they came.
        self.queue = collections.deque()

    def take(self, source):
        while True:
            try:
                packet = os.read(source, LARGEST_PACKET)
            except BlockingIOError:
                return
            if self.cut or len(self.queue) >= LONGEST_QUEUE or self.random.random() < self.loss:
                continue
            self.queue.append((time.monotonic() + self.delay_s, self.peer[source], packet))

    def deliver(self):
        """Passes on what is due. Seconds until the next packet is; None without one."""
        if self.cut:
            self.queue.clear()
        while self.queue:
            wait = self.queue[0][0] - time.monotonic()
            if wait > 0:
                return wait
            _, target, packet = self.queue.popleft()
            try:
                os.write(target, packet)
            except BlockingIOError:
                pass  # a full device drops packets too

    def run(self):
        while True:
            for source in select.select(list(self.peer), [], [], self.deliver())[0]:
                self.take(source)


def main():
    parser = argparse.ArgumentParser()
    for side in ("left", "right"):
        parser.add_argument(f"{side}_namespace")
        parser.add_argument(f"{side}_address")
    parser.add_argument("--delay", type=float, default=0, metavar="MS")
    parser.add_argument("--loss", type=float, default=0, metavar="PERCENT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mtu", type=int, default=1500, metavar="BYTES")
    given = parser.parse_args()
    relay = Relay(open_tun(given.left_namespace), open_tun(given.right_namespace),
                  given.delay / 1e3, given.loss / 100, given.seed)
    configure(given.left_namespace, given.left_address, given.mtu)
    configure(given.right_namespace, given.right_address, given.mtu)
    signal.signal(signal.SIGUSR1, lambda *_: setattr(relay, "cut", True))
    signal.signal(signal.SIGUSR2, lambda *_: setattr(relay, "cut", False))
    print("up", flush=True)
    relay.run()


if __name__ == "__main__":
    main()
