"""Bundles that somebody has altered."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Objects = dict[str, bytes]


def objects_of(file: Path) -> Objects:
    with zipfile.ZipFile(file) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def made_of(objects: Mapping[str, bytes], to: Path) -> Path:
    with zipfile.ZipFile(to, "w") as zipped:
        for name, data in objects.items():
            zipped.writestr(name, data)
    return to


def altered(file: Path, to: Path, change: Callable[[Objects], object]) -> Path:
    """Writes a copy of the bundle to `to`, with its objects changed by `change`."""
    objects = objects_of(file)
    change(objects)
    return made_of(objects, to)


def about(change: Callable[[dict[str, Any]], Any]) -> Callable[[Objects], object]:
    """A change of the contents of `bundle.json`."""

    def changed(objects: Objects) -> None:
        objects["bundle.json"] = json.dumps(change(json.loads(objects["bundle.json"]))).encode()

    return changed


def unsealed(objects: Objects) -> None:
    """Removes the seal from every chain, as in bundles of older versions."""
    for name in [name for name in objects if name.startswith("manifests/")]:
        manifest = json.loads(objects[name])
        if manifest["format"] == 2 and json.loads(objects[manifest["records"]])["kind"] == "sealed":
            del objects[name], objects[manifest["records"]]


def both(*changes: Callable[[Objects], object]) -> Callable[[Objects], object]:
    def changed(objects: Objects) -> None:
        for change in changes:
            change(objects)

    return changed
