# SPDX-License-Identifier: BSD-3-Clause
"""Acts as another user of the machine. Must be started as root, and drops root's rights.

other_user.py hold NAME            binds the abstract Unix socket NAME until it is killed
other_user.py attack MARK          attacks the processes whose environment contains the line MARK,
                                   until they have exited; prints what it tried, and everything it
                                   gained
"""

import array
import glob
import os
import re
import socket
import sys
import time

NOBODY = 65534
HOLD_SECONDS = 120
GREETING = 256  # bytes that any user may receive: no data, no secret


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def hold(name):
    become_nobody()
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.bind("\0" + name)
    line.listen(64)
    print("held", flush=True)
    time.sleep(HOLD_SECONDS)


def processes(mark):
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if mark.encode() in file.read().split(b"\0"):
                    found.append(int(path.split("/")[2]))
        except OSError:
            pass
    return [pid for pid in found if pid != os.getpid()]


def sockets(pids):
    """Returns the names of Unix sockets and the addresses of TCP sockets on which these processes listen."""
    inodes, names, addresses = set(), set(), set()
    for pid in pids:
        for path in glob.glob("/proc/%d/fd/*" % pid):
            try:
                inodes.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(path)))
            except OSError:
                pass
    with open("/proc/net/unix", "rb") as table:
        for line in table:
            word = line.split(None, 7)
            if len(word) == 8 and word[6].decode() in inodes:
                names.add(word[7].rstrip(b"\n"))
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            word = line.split()
            if word[3] == "0A" and word[9] in inodes:
                host, port = word[1].split(":")
                host = socket.inet_ntoa(bytes.fromhex(host)[::-1])
                addresses.add((host, int(port, 16)))
    return names, addresses


class Attack:
    def __init__(self):
        self.gained = set()
        self.tried = {"files of processes": 0, "Unix sockets": 0, "TCP sockets": 0, "signals": 0}

    def open(self, pid):
        for what in ("environ", "mem", "maps", "auxv"):
            self.open_one("/proc/%d/%s" % (pid, what), pid, self.has_memory)
        # Its descriptors, by number, since another user cannot list the folder.
        for fd in range(64):
            self.open_one("/proc/%d/fd/%d" % (pid, fd), pid)

    def open_one(self, path, pid, is_gain=lambda fd: True):
        self.tried["files of processes"] += 1
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return
        if is_gain(fd):
            self.gained.add("%s of process %d can be opened" % (path, pid))
        os.close(fd)

    @staticmethod
    def has_memory(fd):
        """False for a zombie: any user may open these files of it, but they are empty."""
        try:
            return os.read(fd, 1) != b""
        except ProcessLookupError:
            return False
        except OSError:
            return True

    def signal(self, pid):
        self.tried["signals"] += 1
        try:
            os.kill(pid, 0)
            self.gained.add("process %d can be ended" % pid)
        except OSError:
            pass

    def call(self, family, kind, address, where):
        self.tried[where] += 1
        try:
            with socket.socket(family, kind) as line:
                line.settimeout(0.05)
                line.connect(address)
                line.send(os.urandom(64))
                self.listen(line, "%s %s" % (where, address))
        except OSError:
            pass

    def listen(self, line, name):
        room = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        heard = 0
        while True:
            data, descriptors, _, _ = line.recvmsg(4096, room)
            heard += len(data)
            if descriptors:
                self.gained.add("a descriptor from " + name)
            if heard > GREETING:
                self.gained.add("%d bytes from %s" % (heard, name))
            if not data:
                return

    def all(self, pids, names, addresses):
        for pid in pids:
            self.open(pid)
            self.signal(pid)
        for name in names:
            # Abstract names begin with @ in the table.
            address = b"\0" + name[1:] if name.startswith(b"@") else name
            for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                self.call(socket.AF_UNIX, kind, address, "Unix sockets")
        for address in addresses:
            self.call(socket.AF_INET, socket.SOCK_STREAM, address, "TCP sockets")


def attack(mark):
    """Lists targets as root; in each round a child attacks them as user nobody."""
    until, seen = time.monotonic() + HOLD_SECONDS, False
    while time.monotonic() < until:
        pids = processes(mark)
        if seen and not pids:
            return
        if pids:
            seen = True
            attack_once(pids, *sockets(pids))
        time.sleep(0.05)


def attack_once(pids, names, addresses):
    child = os.fork()
    if child != 0:
        os.waitpid(child, 0)
        return
    become_nobody()
    one = Attack()
    one.all(pids, names, addresses)
    print("tried: " + ", ".join("%d %s" % (n, what) for what, n in one.tried.items()))
    for thing in sorted(one.gained):
        print("gained: " + thing)
    sys.stdout.flush()
    os._exit(0)


if sys.argv[1] == "hold":
    hold(sys.argv[2])
else:
    attack(sys.argv[2])
