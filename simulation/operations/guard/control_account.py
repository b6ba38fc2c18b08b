"""Control account: a SuperLink's Control API answers only the user who started it.

A user who may submit a run executes code on the SuperLink and, where their owners allow it, on the clients. Flower's
SuperLink requires no account, and every user of the machine can reach its loopback port. Here each start draws a token
and stores it in FLWR_HOME (mode 0600), where `flwr` with the same FLWR_HOME finds it by the address of the connection.
A provisioned SuperLink also accepts the token of its federation, of which it stores only the hash.

It uses `ControlAuthnPlugin`, whose only implementation in Flower admits everybody, and `OidcCliPlugin`, with which the
command line sends the token. Accounts without an identity provider would replace this file.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path

from flwr.cli.auth_plugin import OidcCliPlugin
from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.supercore.credential_store.file_credential_store import FileCredentialStore
from flwr.supercore.utils import get_flwr_home, get_metadata_str
from flwr.superlink.auth_plugin import ControlAuthnPlugin

from fedsel_app.records.fedsel_folder import PRIVATE

Metadata = Sequence[tuple[str, str | bytes]]
ANY_ADDRESS = ("0.0.0.0", "[::]")


class ControlAccount(ControlAuthnPlugin):
    """Account of a caller whose token has one of these SHA-256 hashes (hex).

    It is the account that Flower uses without accounts, so federation and nodes stay the same.
    """

    def __init__(self, *hashes: str) -> None:
        self._hashes = hashes

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        """Validate the token of a call."""
        token = get_metadata_str(metadata, ACCESS_TOKEN_KEY) or ""
        hashed = hashlib.sha256(token.encode()).hexdigest()
        if not any(hmac.compare_digest(hashed, accepted) for accepted in self._hashes):
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


def open_account(control_address: str, lasting: str = "") -> ControlAccount:
    """Draw the token of a SuperLink with its Control API at this address, and store it for the command line.

    The account also accepts the token with the SHA-256 `lasting`, if given. Raises OSError if FLWR_HOME cannot be made.
    """
    token = secrets.token_urlsafe(32)
    host, _, port = control_address.rpartition(":")
    keep_token(get_flwr_home(), f"127.0.0.1:{port}" if host in ANY_ADDRESS else control_address, token)
    drawn = hashlib.sha256(token.encode()).hexdigest()
    return ControlAccount(drawn, lasting) if lasting else ControlAccount(drawn)


def keep_token(flwr_home: Path, control_address: str, token: str) -> None:
    """Store the token for the command line with this FLWR_HOME. Raises OSError if that folder cannot be made."""
    flwr_home.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    command_line = OidcCliPlugin(control_address)
    command_line.store = FileCredentialStore(flwr_home / "credentials.yaml")
    command_line.store_tokens(AccountAuthCredentials(access_token=token, refresh_token=token))
