"""A runner in this process, bound to one of its instances."""

from __future__ import annotations

from typing import Any

from ledger.errors import Unreachable
from ledger.ports import Runner


class OneInstance:
    """A runner that passes calls on only while `runner` is the given instance. Implements `ports.Runner`.

    Raises: Unreachable if `runner` is another instance."""

    def __init__(self, runner: Runner, instance: str) -> None:
        self._runner, self._instance = runner, instance

    def __getattr__(self, name: str) -> Any:
        require_instance(self._runner.instance(), self._instance)
        return getattr(self._runner, name)


def require_instance(own: str, expected: str) -> None:
    """Checks that a call is for the instance that received it. Raises: Unreachable if `expected` names another
    instance, which then did not answer."""
    if own != expected:
        raise Unreachable(
            f"the call was for {expected}, but {own or 'a runner without instances'} received it",
            hint="An agent with another folder has replaced it. Nothing was done; the call is repeated automatically.",
        )
