"""Control account: a SuperLink's Control API answers only who has the token of its federation.

A user who may submit a run executes code on the SuperLink and, where their owners allow it, on the clients. Flower's
SuperLink requires no account, and every user of the machine can reach its loopback port. Here it knows the hash of a
token. `flwr` finds the token in its FLWR_HOME (mode 0600), by the address of the connection.

It uses `ControlAuthnPlugin`, whose only implementation in Flower admits everybody, and `OidcCliPlugin`, with which the
command line sends the token. Accounts without an identity provider would replace this file.
"""

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

from flwr.cli.auth_plugin import OidcCliPlugin
from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.supercore.credential_store.file_credential_store import FileCredentialStore
from flwr.supercore.utils import get_metadata_str
from flwr.superlink.auth_plugin import ControlAuthnPlugin

Metadata = Sequence[tuple[str, str | bytes]]


class ControlAccount(ControlAuthnPlugin):
    """Account of a caller whose token has this SHA-256 hash (hex).

    It is the account that Flower uses without accounts, so federation and nodes stay the same.
    """

    def __init__(self, accepted: str) -> None:
        self._accepted = accepted

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        """Validate the token of a call."""
        token = get_metadata_str(metadata, ACCESS_TOKEN_KEY) or ""
        hashed = hashlib.sha256(token.encode()).hexdigest()
        if not hmac.compare_digest(hashed, self._accepted):
            return False, None
        return True, AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME)

    def refresh_tokens(self, metadata: Metadata) -> tuple[Metadata | None, AccountInfo | None]:
        """Return nothing: the token is valid as long as the SuperLink runs."""
        return None, None

    def get_login_details(self) -> AccountAuthLoginDetails | None:
        """Return nothing: there is no login."""
        return None

    def get_auth_tokens(self, device_code: str) -> AccountAuthCredentials | None:
        """Return nothing: there is no login."""
        return None


def keep_token(flwr_home: Path, control_address: str, token: str) -> None:
    """Store the token for the command line with this FLWR_HOME. Raises OSError if that folder cannot be made."""
    flwr_home.mkdir(mode=0o700, parents=True, exist_ok=True)
    command_line = OidcCliPlugin(control_address)
    command_line.store = FileCredentialStore(flwr_home / "credentials.yaml")
    command_line.store_tokens(AccountAuthCredentials(access_token=token, refresh_token=token))
