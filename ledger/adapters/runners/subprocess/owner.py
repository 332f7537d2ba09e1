"""Records and checks which ledger the jobs in an agent's folder belong to.

An agent sends its events to one ledger, deletes checkpoints when that ledger orders it, and stops jobs that this ledger
does not know. So a folder with jobs must never be used with another Kafka: `DIR/agent/ledger.json` names the topic of
its ledger."""

from __future__ import annotations

import json
from pathlib import Path

from ledger.adapters.runners.subprocess.supervisor.files import to_json, write_durably
from ledger.errors import ConfigError

NAME = "ledger.json"


def require_own(folder: Path, topic: str, topic_id: str) -> None:
    """Checks that the agent's folder belongs to this ledger. topic, topic_id: the ledger's topic of events and its id;
    "" = the broker has no topic ids.

    Raises: ConfigError if the folder holds jobs of another ledger."""
    recorded = _recorded(folder)
    if topic_id and recorded and recorded != topic_id and _has_jobs(folder):
        raise ConfigError(
            f"The jobs in {folder} belong to another ledger. Its topic {topic} has id {recorded}, but the topic of these "
            f"settings has id {topic_id}. The jobs would be stopped as unknown, and their checkpoints deleted.",
            hint="Use another folder (--dir), or the Kafka of that ledger. If its topics were restored, delete "
            f"{folder / NAME}.",
        )


def record(folder: Path, topic: str, topic_id: str) -> None:
    """Records that the folder's jobs belong to this ledger. Raises: OSError."""
    if topic_id and _recorded(folder) != topic_id:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(str(folder / NAME), to_json({"topic": topic, "topic_id": topic_id}))


def _recorded(folder: Path) -> str:
    """The recorded topic id; "" if it is unknown: the folder is of an older release, or the file is damaged."""
    try:
        return str(json.loads((folder / NAME).read_bytes())["topic_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _has_jobs(folder: Path) -> bool:
    try:
        return any((folder / "jobs").iterdir())
    except OSError:
        return False
