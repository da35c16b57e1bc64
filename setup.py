"""The package's build: what `pyproject.toml` says, and the artefacts that are no Python inside the wheel.

`scripts/build_native.py` holds the recipes and the rule; here they only run before the packages' files are gathered,
and the wheel is marked as one for this architecture, since it carries machine code.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.errors import ExecError

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))

import build_native


class BuildWithArtefacts(build_py):
    """Gather the packages' files after the artefacts are there."""

    def run(self) -> None:
        """Build, or take, the artefacts first.

        Raises:
            ExecError: one is missing and cannot be built; the message says what to install.
        """
        for artefact in build_native.ARTEFACTS.values():
            try:
                build_native.ensure(artefact)
            except build_native.BuildError as error:
                message = f"cannot build the package: {error}"
                raise ExecError(message) from error
        super().run()


class ArchitectureDistribution(Distribution):
    """A distribution for one architecture: its machine code is no extension module, but ties it all the same."""

    def has_ext_modules(self) -> bool:
        """Say yes, so that the wheel is laid out and named for the platform."""
        return True


class ArchitectureWheel(bdist_wheel):
    """A wheel for one architecture and every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """Keep the platform only."""
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildWithArtefacts, "bdist_wheel": ArchitectureWheel}, distclass=ArchitectureDistribution)
