"""Generates docs/SETTINGS.md from the settings' code: `python -m tests.docs.settings_page`."""

from __future__ import annotations

from ledger.cli.settings_reference import sections
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "SETTINGS.md"
HEAD = """# Settings

This page lists all settings with their defaults. Set one as `key` under `[section]` in `DIR/ledger.toml`, or by its
variable in the environment. A flag overrides the environment, and the environment overrides the file.
`jobledger config show --sources` prints the settings in force, `jobledger config check` checks them, and
`jobledger config describe SECTION` prints a part of this page.

This page is generated from the code: `python -m tests.docs.settings_page`.
"""


def page() -> str:
    parts = [HEAD]
    for section in sections():
        parts.append(f"\n## [{section.name}]\n\n{section.meaning}\n")
        for setting in section.settings:
            default = f" Default: `{setting.default}`." if setting.default else ""
            parts.append(f"\n**`{setting.name}`** (`{setting.variable}`).{default} {setting.meaning}\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
