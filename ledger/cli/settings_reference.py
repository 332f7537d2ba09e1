"""The reference of all settings: variable, default and meaning of each, read from the classes that define them.

`jobledger config describe` prints it, and docs/SETTINGS.md is made from it: `python -m tests.docs.settings_page`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ledger.config import config, settings


class Setting(NamedTuple):
    """The description of one setting. name: `section.key`, as in the TOML file. variable: the environment variable.
    default: as TOML writes it, or a word for a value that TOML lacks. meaning: one paragraph, without line breaks."""

    name: str
    variable: str
    default: str
    meaning: str


class SectionText(NamedTuple):
    """The description of one section of the settings. name: of the TOML table. meaning: the purpose of the section."""

    name: str
    meaning: str
    settings: tuple[Setting, ...]


def sections() -> list[SectionText]:
    """All sections in the order in which the settings define them, inherited settings first."""
    texts = _texts(settings) | _texts(config)
    own = [name for name, field in config.Config.model_fields.items() if not _is_section(field.annotation)]
    found = [
        SectionText(
            name, texts[field.annotation.__name__][""], tuple(_settings_of(name, field.annotation, texts))  # type: ignore[union-attr]
        )
        for name, field in config.Config.model_fields.items()
        if _is_section(field.annotation)
    ]  # fmt: skip
    about = texts["Config"]
    passed_on = "Any of them; in the environment `_` stands for the dot."
    tables = {
        "kafka": [Setting("kafka.NAME", "LEDGER_KAFKA__NAME", "", passed_on)],
        "spark": [Setting("spark.NAME", "LEDGER_SPARK__NAME", "", passed_on)],
        "pools": list(_settings_of("pools.NAME", settings.PoolSection, texts)),
    }
    found += [SectionText(name, about[name], tuple(tables[name])) for name in own if name in tables]
    return sorted(found, key=lambda section: list(config.Config.model_fields).index(section.name))


def matching(wanted: str) -> list[Setting]:
    """The settings of the section `wanted`, or the one setting of that name; all settings if `wanted` is ""."""
    everything = [setting for section in sections() for setting in section.settings]
    return [one for one in everything if not wanted or one.name == wanted or one.name.startswith(wanted + ".")]


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _settings_of(prefix: str, section: Any, texts: Mapping[str, Mapping[str, str]]) -> Iterator[Setting]:
    for key, field in section.model_fields.items():
        meaning = next(texts[base.__name__][key] for base in section.__mro__ if key in texts.get(base.__name__, ()))
        variable = f"LEDGER_{prefix.replace('.', '__')}__{key}".upper()
        yield Setting(f"{prefix}.{key}", variable, _default(field.get_default(call_default_factory=True)), meaning)


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.12g}"
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    return f'"{value}"'


def _texts(module: ModuleType) -> dict[str, dict[str, str]]:
    """Class -> attribute -> the text below it; the class's own under "". pydantic does not keep them."""
    found = dict[str, dict[str, str]]()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            texts = {"": _line(ast.get_docstring(node) or "")}
            for attribute, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name) and _is_text(text):
                    texts[attribute.target.id] = _line(text.value.value)  # type: ignore[attr-defined]
            found[node.name] = texts
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _line(text: str) -> str:
    return " ".join(text.split())
