"""Runs a program that holds a lock file: `python hold.py LOCK PROGRAM ARGUMENT...`. Standard library only; run by path.

Without the lock, a second Kafka node on the same folder writes to the metadata log before it notices that its port is
taken. The program inherits the descriptor of the lock and keeps the process id, and kill -9 releases the lock.
"""

import fcntl
import os
import sys

HELD = 75
"""The exit code if another process holds the lock (EX_TEMPFAIL of sysexits.h)."""


def main() -> None:
    lock, *command = sys.argv[1:]
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"{lock} is held by another process: the server of this folder runs already.\n")
        sys.exit(HELD)
    os.set_inheritable(descriptor, True)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
