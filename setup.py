"""Build step: the wheel carries the files of the checkout that Flower's bundle needs besides the packages."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithCheckoutFiles(build_py):
    """Build of the packages, with the files for `simulation.operations.deployment.app_folder`."""

    def run(self) -> None:
        """Build; an editable installation has the checkout itself."""
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, "simulation", "operations", "deployment", "checkout_files")
            self.mkpath(str(folder))
            for name in ("pyproject.toml", "README.md", "LICENSE", "fedsel.py"):
                self.copy_file(name, str(folder))


setup(cmdclass={"build_py": BuildWithCheckoutFiles})
