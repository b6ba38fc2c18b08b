"""The account of a SuperLink's Control API, and the secrets of its tasks."""

import hashlib
import logging
import stat
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
from flwr.cli.auth_plugin.oidc_cli_plugin import OidcCliPlugin
from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_FLWR_AID
from flwr.supercore.credential_store import file_credential_store
from flwr.supercore.superexec.executor import subprocess_executor

from simulation.operations.guard import superlink as own_superlink
from simulation.operations.guard import supernode as own_supernode
from simulation.operations.guard.control_account import ControlAccount, keep_token
from simulation.operations.guard.superexec import STARTER_HOOK, main, start_hiding
from simulation.operations.guard.superlink import close_to_strangers


def test_a_command_line_with_the_token_is_let_in_and_nobody_else(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setattr(file_credential_store, "CREDENTIAL_FILE_PATH", home / "credentials.yaml")
    keep_token(home, "127.0.0.1:9093", "secret")
    account = ControlAccount(hashlib.sha256(b"secret").hexdigest())
    command_line = OidcCliPlugin("127.0.0.1:9093")
    command_line.load_tokens()
    known, info = account.validate_tokens_in_metadata(command_line.write_tokens_to_metadata([]))
    assert known
    assert info is not None
    assert info.flwr_aid == NOOP_FLWR_AID
    for said in ([], [(ACCESS_TOKEN_KEY, "")], [(ACCESS_TOKEN_KEY, "secretx")], [(ACCESS_TOKEN_KEY, "secret")] * 2):
        assert account.validate_tokens_in_metadata(said) == (False, None)
        assert account.refresh_tokens(said) == (None, None)
    assert (account.get_login_details(), account.get_auth_tokens("")) == (None, None)
    assert stat.S_IMODE((home / "credentials.yaml").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_flower_still_has_the_places_that_are_closed():
    superlink = import_module("flwr.superlink.cli.flower_superlink")
    supernode = import_module("flwr.supernode.cli.flower_supernode")
    assert callable(getattr(superlink, own_superlink.CONFIG_HOOK))
    assert callable(getattr(superlink, own_superlink.SUPEREXEC_HOOK))
    assert callable(getattr(supernode, own_supernode.CONFIG_HOOK))
    assert callable(getattr(subprocess_executor, STARTER_HOOK).Popen)


def test_a_superlink_gets_the_account_and_its_superexec_the_secret(tmp_path):
    parsed = SimpleNamespace(authn_plugin=None, superexec_auth_secret=None)
    program = SimpleNamespace(
        _parse_superlink_lifespan_config=lambda: parsed, _get_superexec_command=lambda **_: ["flower-superexec", "--x"]
    )
    account = ControlAccount("hash")
    close_to_strangers(program, tmp_path, account)
    config = program._parse_superlink_lifespan_config()
    *command, file, rest = program._get_superexec_command()
    assert config.authn_plugin is account
    assert command[-2:] == ["-m", "simulation.operations.guard.superexec"]
    assert rest == "--x"
    secret = tmp_path / "superexec-secret"
    assert (file, stat.S_IMODE(secret.stat().st_mode)) == (str(secret), 0o600)
    assert config.superexec_auth_secret == secret.read_bytes()


def test_a_tasks_token_stands_in_no_command_line(tmp_path):
    started = start_hiding(lambda words, **options: (words, options), tmp_path, ["app", "--token", "secret", "-x"], n=1)
    words, options = started
    assert (words[0], words[1], words[3:], options) == ("app", "--token-file", ["-x"], {"n": 1})
    [file] = tmp_path.iterdir()
    assert words[2] == str(file)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("secret", 0o600)


WAITING = """
import signal, sys, threading
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
print("ready", flush=True)
threading.Event().wait()
"""


def test_a_superexec_that_ends_interrupts_its_apps(tmp_path, monkeypatch):
    """Their main threads wait, so that a signal that one of their threads sends to itself would not wake them."""
    started = []

    def superexec():
        for _ in range(2):
            command = [sys.executable, "-c", WAITING, "--token", "secret"]
            app = subprocess_executor.subprocess.Popen(command, stdout=subprocess.PIPE)
            assert app.stdout.readline() == b"ready\n"
            started.append(app)
        raise SystemExit(0)

    monkeypatch.setattr("flwr.supercore.cli.flower_superexec", superexec)
    monkeypatch.setattr(subprocess_executor, STARTER_HOOK, None)
    monkeypatch.setattr(sys, "argv", ["superexec", str(tmp_path / "secret")])
    level = logging.getLogger("flwr").level
    with pytest.raises(SystemExit):
        main()
    logging.getLogger("flwr").setLevel(level)
    assert [app.wait(10) for app in started] == [7, 7]
