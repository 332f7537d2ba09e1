"""What a scenario leaves, kept as a bundle: `BUNDLES=DIR pytest tests/scenarios` makes those of docs/incidents anew."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from ledger import wiring, wiring_archive
from ledger.adapters.local.zipped import ZipObjects
from ledger.config import Config
from ledger.core.moment import Moment

VARIABLE = "BUNDLES"
EVERYTHING = Moment(time_s=9e9)


def keep(number: str, reason: str, config: Config) -> None:
    """number: of the incident. Does nothing unless it is asked to."""
    if not (folder := os.environ.get(VARIABLE)):
        return
    file = Path(folder) / f"{number}.zip"
    file.unlink(missing_ok=True)
    then, cut = wiring_archive.past(config, wiring.source(config), EVERYTHING)
    with closing(ZipObjects(file, new=True)) as store:
        wiring_archive.make_bundle(config, store, then, cut, (), reason)
