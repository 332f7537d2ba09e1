"""Run a program while holding a lock file: `python hold.py LOCK PROGRAM ARGUMENT...`. Standard library only; run by path.

Two combined Kafka nodes on one folder both write the metadata log before the second one notices that its port is taken.
The lock is the process's own, through a descriptor that the program inherits: its id stays, and kill -9 frees the lock.
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
        sys.stderr.write(f"{lock} is held by another process: what it guards is running already.\n")
        sys.exit(HELD)
    os.set_inheritable(descriptor, True)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
