"""A job that its test controls: each file `<control>/<sortable name>.do` holds a verb and an argument.

Verbs: checkpoint ID or ID@LABEL, savepoint ID, exit CODE, print N (lines), fork (a child that stays), escape (a child in
its own session), vanish (the same with an empty environment). On SIGUSR1 the job makes a savepoint with an id above the
newest. On SIGTERM it does what `on TERM` defined.
"""

import os
import signal
import sys
import time

CONTROL = sys.argv[1]
CHECKPOINTS = os.environ["LEDGER_CHECKPOINT_DIR"]
newest = 0


def write(name: str) -> None:
    path = os.path.join(CHECKPOINTS, ".part")
    with open(path, "w") as file:
        file.write(f"state of {name}")
    os.rename(path, os.path.join(CHECKPOINTS, name))


def checkpoint(kind: str, number: int, label: str = "") -> None:
    global newest
    newest = max(newest, number)
    write(f"{kind}-{number}{label}")


def stay(leave: str) -> None:
    """Makes a child that sleeps for ever. Its pid is reported before the job continues."""
    if (pid := os.fork()) == 0:
        if leave != "fork":
            os.setsid()
            if os.fork() == 0:
                report(f"{leave}", os.getpid())
                if leave == "vanish":
                    os.execve("/bin/sleep", ["sleep", "1000"], {})
                while True:
                    time.sleep(1000)
            os._exit(0)
        report("fork", os.getpid())
        while True:
            time.sleep(1000)
    if leave != "fork":
        os.waitpid(pid, 0)


def report(name: str, value: object) -> None:
    path = os.path.join(CONTROL, f"{name}.said")
    with open(path + ".part", "w") as file:
        file.write(str(value))
    os.rename(path + ".part", path)


def on_term(what: str) -> None:
    if what == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(int(what)))


def obey(verb: str, argument: str) -> None:
    match verb:
        case "checkpoint":
            number, at, label = argument.partition("@")
            checkpoint("chk", int(number), at + label)
        case "savepoint":
            checkpoint("sav", int(argument))
        case "exit":
            sys.stderr.write("last words\n")
            sys.exit(int(argument))
        case "print":
            for i in range(int(argument)):
                print(f"line {i:06d} " + "x" * 80, flush=True)
        case "fork" | "escape" | "vanish":
            stay(verb)
        case "on":
            on_term(argument)


signal.signal(signal.SIGUSR1, lambda *_: checkpoint("sav", newest + 1))
report("environment", dict(os.environ))
report("ready", os.getpid())
while True:
    for name in sorted(n for n in os.listdir(CONTROL) if n.endswith(".do")):
        path = os.path.join(CONTROL, name)
        with open(path) as file:
            verb, _, argument = file.read().partition(" ")
        os.rename(path, path[:-3] + ".done")
        obey(verb, argument)
    time.sleep(0.01)
