"""Examples of every verb, printed below its `--help`. tests/cli/test_examples.py runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

#: Verb -> what one types after `jobledger`. A job `etl` stands for any job.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "up": ("up --detach", "up --dir /srv/ledger --projectors 2"),
    "down": ("down", "down --dir /srv/ledger --jobs"),
    "demo": ("demo", "demo --dir /tmp/demo"),
    "submit": (
        "submit --name etl -- python etl.py",
        "submit --name etl --restart fixed-delay:3:10s --graph etl.py -- python etl.py",
    ),
    "wait": ("wait etl",),
    "cancel": ("cancel etl --reason 'no longer needed'", "cancel -l team=data --reason 'team moved' --yes"),
    "suspend": ("suspend etl --reason maintenance",),
    "resume": ("resume etl --reason 'maintenance is over'",),
    "retry": ("retry etl --reason 'fixed the input'", "retry etl --from scratch --reason 'state was wrong'"),
    "apply": ("apply -f jobs/", "apply -f jobs/ --replace --reason 'new version'"),
    "replace": ("replace etl --reason 'new version' -- python etl2.py",),
    "savepoint ask": ("savepoint ask etl --reason 'before the upgrade'",),
    "savepoint list": ("savepoint list etl",),
    "savepoint dispose": ("savepoint dispose etl 1/2 --reason 'disk space'",),
    "list": ("list", "list --state quarantined -o wide", "list -n prod -l team=data --as-of 15m"),
    "show": ("show etl", "show etl -o json"),
    "history": ("history etl", "history etl --timeline etl.svg"),
    "explain": ("explain etl", "explain etl --as-of 2h"),
    "rejects": ("rejects", "rejects -o json"),
    "replay": ("replay", "replay --from 1h --job etl"),
    "diff": ("diff --from 1h", "diff --from 2h --to 1h --job etl"),
    "plan": ("plan", "plan -o json"),
    "logs": ("logs etl", "logs etl --attempt 1"),
    "gc": ("gc", "gc --apply --grace 2h"),
    "leader": ("leader", "leader projector --all"),
    "serve projector": ("serve projector -b kafka:9092",),
    "serve reconciler": ("serve reconciler -b kafka:9092",),
    "serve agent": ("serve agent -b kafka:9092",),
    "serve archiver": ("serve archiver -b kafka:9092",),
    "topics create": ("topics create -b kafka:9092",),
    "topics check": ("topics check -b kafka:9092",),
    "config show": ("config show", "config show --sources"),
    "config describe": ("config describe", "config describe log.level"),
    "config check": ("config check",),
    "archive status": ("archive status",),
    "archive snapshot": ("archive snapshot",),
    "archive compact": ("archive compact",),
    "archive restore": ("archive restore -b kafka:9092",),
    "archive query": ("archive query 'SELECT fact, count(*) FROM events GROUP BY fact'",),
    "archive expire": ("archive expire --dry-run",),
    "archive redact": ("archive redact EVENT_ID --reason 'personal data' --force",),
    "audit verify": ("audit verify", "audit verify --anchors anchors.json --no-topic"),
    "audit prove": ("audit prove 'events[0]@0'",),
    "audit anchor": ("audit anchor --to anchors.json",),
    "audit key": ("audit key --new anchors.pem",),
    "audit bundle": ("audit bundle --to incident.zip --reason 'incident 17'",),
    "audit pin": ("audit pin --job etl --reason 'under investigation'",),
    "audit pins": ("audit pins",),
    "audit unpin": ("audit unpin PIN --reason 'case closed'",),
}


def attach(app: typer.Typer) -> None:
    """Prints the examples of each verb at the end of its help. Raises: KeyError for a verb without examples."""
    for verb, info in verbs(app):
        info.epilog = "\n\n".join(["Examples:", *(f"jobledger {line}" for line in EXAMPLES[verb])])


def verbs(app: typer.Typer, above: str = "") -> Iterator[tuple[str, Any]]:
    """Each verb: its full name ("archive status"), and typer's description of it."""
    for info in app.registered_commands:
        assert info.callback is not None
        yield above + (info.name or info.callback.__name__.replace("_", "-")), info
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from verbs(group.typer_instance, f"{above}{group.name} ")
