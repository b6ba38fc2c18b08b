"""Signatures of the app, verified by Flower's SuperNode."""

import hashlib
import stat
from types import SimpleNamespace

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.fab import Fab
from flwr.supernode.cli.flower_supernode import _validate_public_keys_ed25519
from flwr.supernode.start_client_internal import _verify_fab

from fedsel_app.config import ConfigError
from simulation.operations.guard.app_signature import SIGNATURES, TRUSTED, newest_alone, sign_app, signatures_of
from simulation.operations.guard.superlink import attach_signatures
from simulation.operations.machines.keys import KEY, signing_key
from tests.support.logs import logged
from tests.support.tiny_app import write_app


@pytest.fixture
def app(tmp_path):
    return write_app(tmp_path / "app")


def trusts(folder, fab):
    """True if a SuperNode with the file of trusted entities in `folder` would import the bundle."""
    trusted = yaml.safe_load((folder / TRUSTED).read_text())
    _validate_public_keys_ed25519(trusted)
    return _verify_fab(fab, trusted)


def handed_out(folder, content):
    """Bundle from a SuperLink with the signatures in `folder`."""
    bundle = hashlib.sha256(content).hexdigest()
    state = SimpleNamespace(get_fab=lambda fab_hash: Fab(fab_hash, content, {}))
    attach_signatures(state, folder)
    return state.get_fab(bundle)


def test_a_supernode_imports_what_was_signed_and_nothing_else(tmp_path, app):
    signed = sign_app(app, tmp_path / "signing", signing_key(tmp_path / "signing"))
    content = build_fab_from_disk(app)
    fab = handed_out(tmp_path / "signing", content)
    assert (fab.hash_str, fab.verifications["valid_license"]) == (signed, "Valid")
    assert trusts(tmp_path / "signing", fab)
    fab.content += b"\0"
    assert not trusts(tmp_path / "signing", fab)
    (app / "tinyapp" / "client_app.py").write_text("app = 1\n")
    assert handed_out(tmp_path / "signing", build_fab_from_disk(app)).verifications == {}
    sign_app(app, tmp_path / "other", signing_key(tmp_path / "other"))
    assert not trusts(tmp_path / "signing", handed_out(tmp_path / "other", build_fab_from_disk(app)))


def test_a_supernode_refuses_an_app_that_is_older_than_the_one_that_it_ran(tmp_path, app, monkeypatch):
    """U8: whoever hands out apps could choose an old one with known holes, for ever."""
    folder, code, fabs = tmp_path / "signing", app / "tinyapp" / "client_app.py", []
    for number in range(2):
        code.write_text(f"app = {number}\n")
        monkeypatch.setattr("time.time", lambda number=number: 1e9 + number)
        sign_app(app, folder, signing_key(folder))
        fabs.append(handed_out(folder, build_fab_from_disk(app)))
    trusted, old, new = yaml.safe_load((folder / TRUSTED).read_text()), *fabs
    verify = newest_alone(_verify_fab, tmp_path / "newest.json")
    with logged("flwr") as log:
        assert [verify(fab, trusted) for fab in (old, old, new, old, new)] == [True, True, True, False, True]
    assert "tinyapp again: it was signed at 2001-09-09 01:46:40+00:00" in log()
    assert not verify(new, {"fpk_other": "key"})


def test_several_may_sign_one_app_and_one_may_sign_several(tmp_path, app):
    keys = [signing_key(tmp_path / name) for name in ("first", "second")]
    bundles = []
    for text in ("app = 1\n", "app = 2\n"):
        (app / "tinyapp" / "client_app.py").write_text(text)
        bundles += [sign_app(app, tmp_path / "first", key) for key in keys]
    assert bundles[::2] == bundles[1::2]
    assert [len(signatures_of(tmp_path / "first", bundle)) for bundle in bundles[::2]] == [3, 3]


def test_a_key_is_made_once_for_its_owner_alone(tmp_path):
    folder = tmp_path / "signing"
    first, again = (signing_key(folder).private_bytes_raw() for _ in range(2))
    assert first == again
    assert stat.S_IMODE((folder / KEY).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"


def test_what_is_no_key_or_no_signature_is_named(tmp_path, app):
    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    for content, said in ((b"x", "cannot be used"), (other, "not an Ed25519 key")):
        (tmp_path / KEY).write_bytes(content)
        (tmp_path / KEY).chmod(0o600)
        with pytest.raises(ConfigError, match=said):
            signing_key(tmp_path)
    for text, said in (("{", "cannot be read"), ("[]", "has no signatures"), ('{"a": 1}', "has no signatures")):
        (tmp_path / SIGNATURES).write_text(text)
        with pytest.raises(ConfigError, match=said):
            sign_app(app, tmp_path, Ed25519PrivateKey.generate())
