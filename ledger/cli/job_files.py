"""Job files: one job each, in TOML. The keys are the flags of `submit`, with `_` for `-`. Errors name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.cli.specs import JobOptions, spec_of
from ledger.errors import UsageError

if TYPE_CHECKING:
    from ledger.core.model.facts import JobSubmitted

SUFFIX = ".toml"
_INT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class JobFile:
    path: Path
    options: JobOptions
    spec: JobSubmitted


def read(paths: Iterable[Path]) -> list[JobFile]:
    """The jobs in these files, and in the files *.toml of these folders, sorted within a folder. Raises: UsageError
    with every error of every file."""
    found, wrong = list[JobFile](), list[str]()
    for path in _paths(paths):
        try:
            found.append(_job(path))
        except UsageError as error:
            wrong += str(error).splitlines()
    named: dict[tuple[str, str], Path] = {}
    for job in found:
        first = named.setdefault((job.spec.namespace, job.spec.name), job.path)
        if first != job.path:
            wrong.append(f"{job.path}: {job.spec.namespace}/{job.spec.name} is the job of {first} already.")
    if wrong:
        raise UsageError("\n".join(wrong), hint="Nothing was submitted. The keys of a job file: docs/JOBS.md")
    return found


def _paths(given: Iterable[Path]) -> list[Path]:
    paths: list[Path] = []
    for path in given:
        inside = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"{path} holds no *{SUFFIX}.")
        paths += inside
    return list(dict.fromkeys(paths))


def _job(path: Path) -> JobFile:
    """Raises: UsageError with a line for each error."""
    try:
        text = path.read_bytes().decode()
        keys = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is not UTF-8.") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        raise UsageError(f"{path}:{f'{line[1]}:' if line else ''} this is no TOML: {error}") from error
    values: dict[str, Any] = {}
    wrong = [f"{path}: {key} is missing." for key in ("name", "command") if key not in keys]
    for key, value in keys.items():
        if key not in _READ:
            near = get_close_matches(key, _READ, 1)
            wrong.append(f"{_at(path, text, key)} there is no key {key}.{f' Did you mean {near[0]}?' if near else ''}")
            continue
        try:
            values["from_" if key == "from" else key] = _READ[key](value)
        except ValueError as error:
            wrong.append(f"{_at(path, text, key)} {key} {error}.")
    if not wrong:
        try:
            options = _placed(JobOptions(**values), path.parent)
            return JobFile(path, options, spec_of(options))
        except UsageError as error:
            message = str(error)
            flag = re.search(r"--([a-z-]+)", message)
            shown = re.sub(r"--([a-z-]+)", lambda found: found[1].replace("-", "_"), message)
            wrong.append(f"{_at(path, text, flag[1].replace('-', '_') if flag else 'command')} {shown}")
    raise UsageError("\n".join(wrong))


def _at(path: Path, text: str, key: str) -> str:
    """`path:line:` of a key, as a key of the file or the name of a table."""
    pattern = re.compile(rf"\s*\[?\s*[\"']?{re.escape(key)}[\"']?\s*[\].=]")
    line = next((n for n, line in enumerate(text.splitlines(), start=1) if pattern.match(line)), None)
    return f"{path}:{'' if line is None else f'{line}:'}"


def _placed(options: JobOptions, folder: Path) -> JobOptions:
    """Relative paths count from the folder of the file, wherever the command is run."""
    from dataclasses import replace

    from_ = options.from_
    if from_ is not None and "://" not in from_:
        from_ = str(folder / Path(from_).expanduser())
    return replace(options, graph=[folder / Path(name).expanduser() for name in options.graph], from_=from_)


# -- values: each raises ValueError ------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("takes a text, in quotes")
    return value


def _quantity(value: Any) -> str:
    """A duration or a size: a number counts as seconds or bytes."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError('takes a text such as "10s" or "512M", or a number')
    return value if isinstance(value, str) else f"{value:.3f}".rstrip("0").rstrip(".") if value % 1 else f"{int(value)}"


def _number(least: int, most: int = _INT_MAX) -> Callable[[Any], int]:
    def read_number(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"takes a whole number from {least} to {most}")
        return value

    return read_number


def _list(one: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError("takes a list: [ … ]")
        return [one(item) for item in value]

    return read_list


def _pairs(numbers: bool = False) -> Callable[[Any], list[str]]:
    """NAME=VALUE of each line of a table."""

    def read_pairs(value: Any) -> list[str]:
        if not isinstance(value, Mapping):
            raise ValueError('takes a table: { NAME = "value" }')
        for name, inner in value.items():
            number = numbers and isinstance(inner, int) and not isinstance(inner, bool)
            if "=" in name or not (isinstance(inner, str) or number):
                raise ValueError(f"takes {'texts or exit codes' if numbers else 'texts, in quotes'}: {name} is none")
        return [f"{name}={inner}" for name, inner in value.items()]

    return read_pairs


#: Key -> the function that reads its value: the fields of `JobOptions`.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "name": _text, "namespace": _text, "command": _list(_text), "graph": _list(_text), "env": _pairs(), "label": _pairs(),
    "runner": _text, "restart": _text, "priority": _number(-_INT_MAX), "slots": _number(0, 1_000_000), "region": _text,
    "memory": _quantity, "stop_grace": _quantity, "from": _text, "permanent_exit_code": _list(_number(1, 255)),
    "permanent_pattern": _list(_text), "failure_label": _pairs(numbers=True), "permanent_label": _list(_text),
    "checkpoint_interval": _quantity, "stalled_after": _number(1), "on_stall": _text, "savepoint_interval": _quantity,
    "savepoint_keep": _number(1), "checkpoint_retention": _text,
    "restore": _text,
}  # fmt: skip
