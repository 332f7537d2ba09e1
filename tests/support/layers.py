"""The contract type `imports` of import-linter: what the modules of a package may import, by prefix.

The contract types of import-linter can only forbid existing modules and listed packages. A layer that may import "itself,
these, and the standard library" needs the opposite. pyproject.toml uses this type.
"""

from __future__ import annotations

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class ImportsContract(Contract):
    """`only`: the prefixes that may be imported besides the standard library; None: anything. `never`: prefixes that may
    not be imported in any case."""

    type_name = "imports"

    source: Any = fields.StringField()
    only: Any = fields.SetField(subfield=fields.StringField(), required=False)
    never: Any = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = [
            f"{importer} imports {imported}"
            for importer in sorted({self.source, *graph.find_descendants(self.source)})
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if not self._allowed(imported)
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)

    def _allowed(self, imported: str) -> bool:
        if _under(imported, self.never or ()):
            return False
        if self.only is None or imported.partition(".")[0] in sys.stdlib_module_names:
            return True
        return _under(imported, self.only)


def _under(module: str, packages: Any) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
