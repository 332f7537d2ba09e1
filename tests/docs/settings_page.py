"""docs/SETTINGS.md, made from the settings themselves: `python -m tests.docs.settings_page` writes it anew."""

from __future__ import annotations

from ledger.cli.settings_reference import sections
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "SETTINGS.md"
HEAD = """# Settings

All settings, with their defaults. `key` under `[section]` in `DIR/ledger.toml`, or the variable in the environment; a flag
wins over the environment, the environment over the file. `jobledger config show --sources` prints those in force,
`jobledger config check` says whether they can be used, `jobledger config describe SECTION` prints a part of this page.

This page is made from the code: `python -m tests.docs.settings_page`.
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
