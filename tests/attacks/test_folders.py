"""Folders of a federation: what is wrong with one is one sentence, and nothing starts."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from simulation.operations.deployment.start import close, read_startable
from simulation.operations.guard.app_signature import TRUSTED
from simulation.operations.guard.transport import FLEET_OVER_GRPC
from simulation.operations.machines import folders
from simulation.operations.machines.folders import FederationFolders
from simulation.workbench.cli import main
from tests.support.users_files import tree

ANOTHER = 12345
"""Id of another user."""
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> FederationFolders:
    folder = tmp_path_factory.mktemp("provisioned") / "federation"
    assert main(["provision", "--server", "server.example", "--clients", "2", "--out", str(folder)]) == 0
    return FederationFolders(folder)


@pytest.fixture
def made(provisioned: FederationFolders, tmp_path: Path) -> FederationFolders:
    """A copy, which a test may damage."""
    return FederationFolders(Path(shutil.copytree(provisioned.folder, tmp_path / "federation")))


def sentence(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one sentence with which a command refuses."""
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    assert code in (1, 2), captured.out
    [line] = captured.err.splitlines()
    return line


@pytest.mark.parametrize("content", [None, b"{}", b"a list: [", b"\xff", b"signer: no key"])
def test_a_client_without_a_trusted_signer_does_not_start(made, capsys, content):
    trusted = made.client(0) / TRUSTED
    trusted.unlink()
    if content is not None:
        trusted.write_bytes(content)
    said = sentence(capsys, "start", made.client(0))
    assert str(trusted) in said
    assert "Traceback" not in said


def test_an_owner_who_wants_unsigned_apps_says_so_at_each_start(made, capsys):
    (made.client(0) / TRUSTED).unlink()
    assert read_startable(made.client(0), {}, unsigned_apps=True).name == "client-0"
    assert "--unsigned-apps" in sentence(capsys, "start", made.client(0)), "the folder does not keep it"
    assert "server is no client" in sentence(capsys, "start", made.server, "--unsigned-apps")


NO_PORT = 65535 if FLEET_OVER_GRPC else 65536
"""Lowest number that the port for clients cannot have: in older releases of Flower admins connect to the next one."""
MACHINE = {"role": '"client"', "server": '"server.example"', "port": "9092", "flower": '"1.36"', "clients": "2"}
WRONG = {
    "server": [
        '"a\\nb"', '""', '"http://x"', '"-x"', '"$HOME"', f'"{"a" * 64}"', "3",
    ],
    "flower": ['"1.36\'\\n    privileged: true"', '"1.36.0"', '"1"', '""', '"1.x"', '"1.36; reboot"', '"١.٣"', "1.36"],
    "port": ["0", str(NO_PORT), "true", '"9092"'],
    "clients": ["0", "true", "1000000000000"],
    "client": ["-1", "2", '"0"'],
    "role": ['"clients"', '""', "1"],
    "settings": ["3", "{rounds = 3}", '{threads = "many"}', "{threads = [1]}", '{device = "moon"}', "{data-path = {}}"],
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_a_wrong_value_in_machine_toml_is_named_and_goes_nowhere(made, capsys, key, value):
    folder = made.client(0)
    values = MACHINE | {"client": "0"} | {key: value}
    (folder / "machine.toml").write_text("".join(f"{name} = {text}\n" for name, text in values.items()))
    said = sentence(capsys, "start", folder)
    assert str(folder / "machine.toml") in said
    assert key in said or key == "settings"


@pytest.mark.parametrize("host", ["", "http://x", "../../etc", "a\nb", "-x", "x" * 254])
def test_a_server_that_is_no_host_is_refused(tmp_path, capsys, host):
    for hosts in ((host,), ("server.example", host)):
        words = [f"--server={one}" for one in hosts]
        said = sentence(capsys, "provision", *words, "--clients", 1, "--out", tmp_path / "federation")
        assert "host name or an IP address" in said or "needs --server HOST" in said
    assert not list(tmp_path.iterdir())


DAMAGED = {
    "client-0": ["server.crt", "key"],
    "server": ["server.crt", "server.key", "token.sha256"],
    "admin": ["server.crt", "token"],
}


def damage_file(path: Path, damage: str) -> None:
    path.unlink()
    if damage in ("empty", "garbage"):
        path.touch(mode=0o600)
        path.write_bytes(b"" if damage == "empty" else b"\x00gar bage\n")
    elif damage == "folder":
        path.mkdir()
    elif damage == "pipe":
        os.mkfifo(path)
    elif damage in ("endless", "link"):
        path.symlink_to("/dev/zero" if damage == "endless" else "/nowhere/mine")


@pytest.mark.parametrize(("machine", "file"), [(name, file) for name, files in DAMAGED.items() for file in files])
@pytest.mark.parametrize("damage", ["missing", "garbage", "pipe"])
def test_a_damaged_part_is_one_sentence_that_names_it(made, capsys, machine, file, damage):
    path = made.folder / machine / file
    damage_file(path, damage)
    commands = [["status"], ["stop"], ["submit", "--cohort", 1]] if machine == "admin" else [["start"]]
    for command in commands:
        said = sentence(capsys, command[0], made.folder / machine, *command[1:])
        assert said.startswith(f"fedsel: Copy {path} again from where it was")


def test_a_server_with_the_key_of_another_is_told(made, provisioned, capsys, tmp_path):
    other = tmp_path / "other"
    assert main(["provision", "--server", "server.example", "--clients", "1", "--out", str(other)]) == 0
    (made.server / "server.key").write_bytes((other / "server" / "server.key").read_bytes())
    assert "server.key is not the key of server.crt" in sentence(capsys, "start", made.server)
    (made.client(0) / "key").write_bytes((other / "server" / "server.key").read_bytes())
    assert "it is damaged" in sentence(capsys, "start", made.client(0))
    shutil.rmtree(made.server / "clients")
    shutil.copyfile(provisioned.server / "server.key", made.server / "server.key")
    assert "there is no such folder" in sentence(capsys, "start", made.server)


@pytest.mark.parametrize("mode", [0o640, 0o604])
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("client-0/key", "start client-0"),
        ("server/server.key", "start server"),
        ("admin/token", "status admin"),
        ("admin/signing/key", "sign --out admin/signing"),
    ],
)
def test_a_key_that_others_can_open_is_refused(made, capsys, monkeypatch, file, command, mode):
    monkeypatch.chdir(made.folder)
    (made.folder / file).chmod(mode)
    assert f"Run `chmod 600 {made.folder / file}`" in sentence(capsys, *command.split())


PUBLIC = [
    "client-0",
    "client-0/server.crt",
    "client-0/machine.toml",
    "client-0/trusted.yaml",
    "server/server.crt",
    "server/token.sha256",
    "server/clients",
    "server/clients/client-1.pub",
]
"""Not secret, but what they say decides whom the machine trusts."""


@pytest.mark.parametrize("file", PUBLIC)
@pytest.mark.parametrize("who", ["all", *(pytest.param(who, marks=AS_ROOT) for who in ("group", "owner"))])
def test_what_another_user_may_change_starts_no_machine(made, capsys, file, who):
    """Whoever may change trusted.yaml decides which code the client imports."""
    path = made.folder / file
    if who == "owner":
        os.chown(path, ANOTHER, ANOTHER)
        advice = f"chown {os.geteuid()} {path}"
    else:
        if who == "group":
            os.chown(path, -1, ANOTHER)
        path.chmod(path.stat().st_mode | (stat.S_IWOTH if who == "all" else stat.S_IWGRP))
        advice = f"chmod go-w {path}"
    assert f"Run `{advice}`: " in sentence(capsys, "start", made.folder / file.split("/")[0])


@pytest.mark.parametrize("damage", ["folder", "pipe", "link"])
def test_a_machine_writes_its_own_log_alone(made, capsys, damage):
    """A folder of somebody else had the link log.txt, and the log went to the file of its target, such as .bashrc."""
    log = made.server / "log.txt"
    log.touch()
    damage_file(log, damage)
    assert f"Remove {log}: server writes there" in sentence(capsys, "start", made.server)


@pytest.mark.parametrize("damage", ["missing", "pipe"])
def test_a_damaged_certificate_goes_to_no_other_machine(made, capsys, damage):
    """`--add` gave it to the new client, and waited for ever for a pipe."""
    damage_file(made.certificate, damage)
    before = sorted(made.folder.rglob("*")), tree(made.client(0))
    said = sentence(capsys, "provision", "--add", 1, "--out", made.folder)
    assert said.startswith(f"fedsel: Copy {made.certificate} again from where it was")
    assert (sorted(made.folder.rglob("*")), tree(made.client(0))) == before


@pytest.mark.parametrize("file", ["signatures.json", "trusted.yaml"])
@pytest.mark.parametrize("damage", ["folder", "pipe"])
def test_a_folder_of_signatures_with_no_files_is_told_or_mended(made, capsys, file, damage):
    """`sign`, and `start` of a server, waited for ever for a pipe."""
    damage_file(made.admin / "signing" / file, damage)
    code = main(["sign", "--out", str(made.admin / "signing")])
    assert (code == 0 and (made.admin / "signing" / file).is_file()) or file in capsys.readouterr().err
    if file == "signatures.json":
        damage_file(made.server / file, damage)
        assert file in sentence(capsys, "start", made.server)


def test_a_folder_that_somebody_makes_while_keys_are_drawn_gets_none(tmp_path, monkeypatch, capsys):
    out = tmp_path / "federation"

    def raced(hosts):
        out.mkdir()
        return b"", b""

    monkeypatch.setattr(folders, "server_certificate", raced)
    assert "exists already" in sentence(capsys, "provision", "--server", "x", "--clients", 1, "--out", out)
    assert not list(out.iterdir())


@AS_ROOT
def test_in_a_shared_folder_another_user_never_owns_a_key(tmp_path, capsys):
    tmp_path.chmod(0o1777)
    out = tmp_path / "federation"
    out.mkdir()
    os.chown(out, ANOTHER, ANOTHER)
    assert "exists already" in sentence(capsys, "provision", "--server", "x", "--clients", 1, "--out", out)
    assert not list(out.iterdir())
    out.rmdir()
    out.symlink_to(tmp_path / "elsewhere")
    assert "exists already" in sentence(capsys, "provision", "--server", "x", "--clients", 1, "--out", out)


def test_a_federation_is_made_completely_or_not_at_all(tmp_path, monkeypatch):
    """A disk error at any file leaves nothing."""
    real, files = os.open, iter(())

    def failing(path, flags, *arguments, **options):
        if flags & os.O_EXCL and tmp_path in Path(path).parents and next(files, False):
            raise OSError(28, "No space left on device")
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", failing)
    words = ["provision", "--server", "x", "--clients", "1", "--out", str(tmp_path / "federation")]
    for before in (0, 2, 7, 11):
        files = iter([*[False] * before, True])
        assert main(words) == 2
        assert not list(tmp_path.iterdir())
    assert main(words) == 0
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "federation").rglob("*") if path.is_dir()}
    assert modes == {0o700}


@pytest.mark.parametrize("name", ["..", "/", "a\nb", "-x", "x" * 101])
def test_a_run_lies_below_the_servers_runs(made, capsys, name):
    """The name is refused before the server is asked, which does not exist."""
    before = tree(made.admin)
    said = sentence(capsys, "submit", made.admin, "--cohort", 1, "--set", f"out={name}")
    assert "'out' must be a name" in said
    assert tree(made.admin) == before


@AS_ROOT
def test_another_users_folder_signs_nothing(made, capsys, tmp_path):
    signing = tmp_path / "theirs"
    shutil.copytree(made.admin / "signing", signing)
    os.chown(signing, ANOTHER, ANOTHER)
    before = tree(signing)
    said = sentence(capsys, "sign", "--out", signing)
    assert f"{signing}`: it belongs to another user" in said
    assert tree(signing) == before


def test_a_started_machine_closes_its_folder_and_writes_for_its_owner_alone(made, capfd):
    """U9: the log, which has values of the data, was open to all users, and its folder too."""
    folder, before = made.client(0), os.umask(0o022)
    try:
        folder.chmod(0o755)
        (folder / "log.txt").touch()
        close(folder)
        assert "was open to other users of this machine (755), and is now closed to them." in capfd.readouterr().out
        (folder / "log.txt.1").touch()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.glob("log.txt*"))}
        assert modes == {"client-0": 0o700, "log.txt": 0o600, "log.txt.1": 0o600}
        close(folder)
        assert capfd.readouterr().out == ""
    finally:
        os.umask(before)
