"""What must hold together for anything to be held back: somebody decides, and what is written can be taken back."""

from __future__ import annotations

from policies.types import Commit, FilesMode, NetworkDefault, Policy
from supervisor.errors import PolicyError


def check_release(policy: Policy) -> None:
    """Refuse a validator that could keep nothing back, and traffic that nobody could release or follow.

    Raises:
        PolicyError: with the key.
    """
    if policy.validate.command is None:
        if policy.network.default is NetworkDefault.HOLD:
            message = "expected validate.command with default = hold, got none: nothing would ever be released"
            raise PolicyError(message, place="network.default")
        return
    if not policy.validate.command.strip():
        message = "expected a shell command, got nothing"
        raise PolicyError(message, place="validate.command")
    if policy.validate.timeout_s <= 0:
        message = "expected a duration above zero, got 0"
        raise PolicyError(message, place="validate.timeout")
    if policy.files.mode is FilesMode.DIRECT:
        message = "expected staged files, got mode = direct: what is written in place cannot be taken back"
        raise PolicyError(message, place="validate.command")
    if policy.files.commit is Commit.NEVER:
        message = "expected another files.commit, got never: there is nothing to accept"
        raise PolicyError(message, place="validate.command")
    if policy.network.default is NetworkDefault.HOLD:
        for index, service in enumerate(policy.services):
            if service.settle is not None and service.socket is None:
                message = "expected no default = hold with a service that is asked: it is asked before anything is sent"
                raise PolicyError(message, place=f"services[{index}].settle")
