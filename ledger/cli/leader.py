"""`jobledger leader`: who leads each role, since when, with which epoch, and who else is a candidate."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli import session
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, age

if TYPE_CHECKING:
    from ledger.ports import Candidate
    from ledger.reader.leaders import Led


class Role(StrEnum):
    projector = "projector"
    reconciler = "reconciler"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else age(seconds)


def _reaches(instances: Mapping[str, str]) -> str:
    return ", ".join(sorted(instances.values())) or "-"


COLUMNS = [
    Column("ROLE", "role"),
    Column("LED", "led", lambda led: "?" if led is None else "yes" if led else "NO"),
    Column("EPOCH", "epoch"),
    Column("WRITER", "writer", whole=True),
    Column("SINCE", "since", time=True),
    Column("FOR", "led_s", _age, spare=2),
    Column("LOCK", "lock", spare=1),
    Column("PID", "pid", wide=True),
    Column("LEASE", "lease_left_s", wide=True),
    Column("REASON", "reason", rest=True),
    Column("REACHES", "reaches", _reaches, wide=True),
]
PAST = [column for column in COLUMNS if column.key in ("role", "epoch", "writer", "since", "led_s", "reason", "reaches")]
CANDIDATES = [
    Column("CANDIDATE OF", "role"),
    Column("WHO", "who", whole=True),
    Column("PID", "pid", spare=1),
    Column("LOCK", "holds", lambda holds: "yes" if holds else "-"),
    Column("EPOCH", "epoch"),
    Column("SINCE", "since", time=True),
    Column("WAITS FOR", "waits_for", rest=True),
]
Which = Annotated[Role | None, typer.Argument(metavar="ROLE", help="projector or reconciler. Default: both.")]
All = Annotated[
    bool, typer.Option("--all", "--timeline", help="List all claims in the log, the newest first.", show_default=False)
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until each role has a leader, then answer.", show_default=False)]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Limit of --wait; exit code 4 after it.")
]
LOOK_S = 1.0


@verb
def leader(world: Context, role: Which = None, all_: All = False, wait: Wait = False, timeout: Timeout = 300.0) -> None:
    """Show who leads each role: by the newest claim in the log, which decides, and by the election, with all
    candidates.

    Exit code 1: a role has no leader; 3: the log can't be read. An election that does not answer is reported on stderr.
    --wait asks again while a role has no leader, or its leader is still taking over, or the log can't be read; exit
    code 4 after --timeout.

    -o json: one object per role, with role, led (null: the election did not answer), epoch, writer, since, reason,
    led_s and reaches (runner: the instance that answered) of the newest claim; others: what its predecessor reached
    instead; lock, pid and lease_left_s of the holder of the lock; why_not if nobody leads; not_asked; candidates: who,
    pid, holds, epoch, since, lease_left_s, waits_for. With --all: role, epoch, writer, since, led_s, reason, reaches
    per claim."""
    from ledger.errors import Unreachable
    from ledger.reader.claims import read_claims
    from ledger.reader.leaders import ROLES, led, timeline
    from ledger.reader.presence import present

    roles = ROLES if role is None else (role.value,)
    if wait:
        _wait_for(world, roles, timeout)
    now, host = world.ledger.clock.time(), socket.gethostname()
    folder = world.config.candidates_folder
    asked = {name: _elected(world, name) for name in roles} if not all_ else {}
    try:
        with world.printer.progress("reading the log") as tell:
            source = world.ledger.source(session.telling(tell))
            claims = {name: [claim for claim in read_claims(source) if claim.role == name] for name in roles}
    except Unreachable:
        _tell([led(name, [], asked[name], present(folder, name, now), host, now) for name in asked], world)
        raise
    if all_:
        past = [claim._asdict() | {"led_s": led_s} for name in roles for claim, led_s in timeline(claims[name], now)]
        world.printer.rows(past, PAST, empty="Nobody has led yet.")
        return
    found = [led(name, claims[name], asked[name], present(folder, name, now), host, now) for name in roles]
    world.printer.rows([asdict(one) for one in found], COLUMNS)
    if world.printer.for_people and (listed := [{"role": one.role} | asdict(c) for one in found for c in one.candidates]):
        world.printer.text("")
        world.printer.rows(listed, CANDIDATES)
    _tell(found, world)
    if any(one.led is False for one in found):
        raise typer.Exit(1)


def _wait_for(world: Context, roles: Sequence[str], timeout_s: float) -> None:
    """Raises: OutcomeUnknown, which names what is missing, at the deadline."""
    from ledger.errors import OutcomeUnknown, Unreachable
    from ledger.reader.claims import read_claims
    from ledger.reader.leaders import led
    from ledger.reader.presence import present

    clock, host, folder = world.ledger.clock, socket.gethostname(), world.config.candidates_folder
    deadline = clock.monotonic() + timeout_s
    while True:
        missing = dict[str, str]()
        try:
            source = world.ledger.source()
            for name in roles:
                claims = [claim for claim in read_claims(source) if claim.role == name]
                now = clock.time()
                found = led(name, claims, _elected(world, name), present(folder, name, now), host, now)
                if not found.led:
                    missing[name] = found.why_not or found.not_asked
                elif doing := next((one.waits_for for one in found.candidates if one.holds), ""):
                    missing[name] = f"{found.writer} has claimed its epoch, and waits for {doing}"
        except Unreachable as error:
            missing = dict.fromkeys(roles, str(error))
        if not missing:
            return
        if clock.monotonic() >= deadline:
            reasons = "; ".join(f"{name}: {why}" for name, why in missing.items())
            raise OutcomeUnknown(f"Nobody leads within {timeout_s:g} s: {reasons}", hint="jobledger leader tells more.")
        clock.sleep(LOOK_S)


def register(app: typer.Typer) -> None:
    app.command("leader", rich_help_panel="Operate the ledger")(leader)


def _elected(world: Context, role: str) -> Sequence[Candidate] | str:
    from ledger.errors import Unreachable

    try:
        return world.ledger.candidates(role)
    except Unreachable as error:
        return str(error)


def _tell(found: Sequence[Led], world: Context) -> None:
    """Prints on stderr: elections that did not answer, roles without a leader, and for what each candidate waits.
    Also names the jobs that wait because the leader reaches another agent than its predecessor."""
    for one in found:
        for runner, instance in one.others.items():
            world.printer.note(
                f"{one.role}: the leader before it reached {instance} ({runner}), and it reaches {one.reaches[runner]}: "
                f"jobs that {instance} holds wait until a {one.role} leads that reaches it"
            )
        if one.not_asked:
            world.printer.note(f"{one.role}: the election could not be asked: {one.not_asked}")
        elif one.led is False:
            world.printer.note(f"{one.role}: nobody leads: {one.why_not}")
