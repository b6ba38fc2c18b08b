"""A small Flower app, `tests/tinyapp`, in a folder."""

from pathlib import Path

PROJECT = """
[project]
name = "tinyapp"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "tinyapp.server_app:app"
clientapp = "tinyapp.client_app:app"

[tool.flwr.app.config]
"""


def write_app(
    folder: Path, client_app: str = "app = None\n", server_app: str = "app = None\n", config: str = ""
) -> Path:
    """Write an app of these modules, with `config` as the lines of its run configuration. Returns `folder`."""
    package = folder / "tinyapp"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "server_app.py").write_text(server_app)
    (package / "client_app.py").write_text(client_app)
    (folder / "pyproject.toml").write_text(PROJECT + config)
    return folder
