"""The pinned set: whole, in force, the same for conda users, and no threat to Colab's packages."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from _tools import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What Colab had in its runtime, all for Python 3.13.
COLAB = {
    "ipykernel": "6.17.1",
    "ipywidgets": "7.7.1",
    "jax": "0.7.2",
    "keras": "3.13.2",
    "matplotlib": "3.10.0",
    "numpy": "2.1.3",
    "scikit-learn": "1.6.1",
    "tensorflow": "2.20.0",
    "tf-keras": "2.20.1",
    "torch": "2.11.0",
}


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(str(requirement.specifier).startswith("==") for requirement in found)
    return {canonicalize_name(r.name): Version(str(r.specifier)[2:]) for r in found}


def public(version: str) -> Version:
    """The version without the build it came as: torch's 2.13.0+cpu is 2.13.0."""
    return Version(Version(version).public)


def conda_pip_lines(folder: Path) -> Path:
    """The pip part of environment.yml as a requirements file, where conda would put it."""
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (python,) = [line for line in dependencies if str(line).startswith("python=")]
    assert (
        python.removeprefix("python=") + ".0"
        in Requirement(f"python{PROJECT['requires-python']}").specifier
    )
    (section,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    requirements = folder / "requirements.txt"
    # conda keeps such a file in the folder of environment.yml; a relative path means that folder.
    lines = [re.sub(r"^(-c |-e )", rf"\1{ROOT}/", line) for line in section]
    requirements.write_text("\n".join(lines))
    return requirements


def resolved(folder: Path, *options: str) -> dict[str, Version]:
    """What pip would install for conda users."""
    report = folder / "report"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-build-isolation"]
    command += ["--no-cache-dir", "--report", report, "-r", conda_pip_lines(folder), *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    packages = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    found = {canonicalize_name(p["name"]): public(p["version"]) for p in packages}
    found.pop("distlab")  # a checkout is always installed anew
    return found


def needed(extra: str) -> dict[str, Version]:
    """Every package that distlab[extra] needs here, with the version that is installed."""
    found: dict[str, Version] = {}
    todo = [("distlab", extra)]
    seen = set(todo)
    while todo:
        name, extra = todo.pop()
        package = distribution(name)
        found[canonicalize_name(name)] = public(package.version)
        for requirement in map(Requirement, package.requires or []):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            for wanted in (
                (requirement.name, ""),
                *((requirement.name, e) for e in requirement.extras),
            ):
                if wanted not in seen:
                    seen.add(wanted)
                    todo.append(wanted)
    found.pop("distlab")
    return found


@pytest.fixture(scope="module")
def installed() -> dict[str, Version]:
    try:
        return needed("dev")
    except PackageNotFoundError as missing:
        pytest.skip(f"only the project's own environment has everything: {missing} is not here")


def test_every_installed_package_is_the_pinned_one(installed):
    assert {"torch", "tensorflow", "jax", "jupyterlab"} <= set(installed)
    assert installed == {name: pins().get(name) for name in installed}


def test_every_package_takes_every_supported_python(installed):
    for name in installed:
        wanted = distribution(name).metadata["Requires-Python"] or ""
        for version in ("3.11.0", "3.12.0", "3.13.0"):  # distributions ship early patch releases
            assert version in SpecifierSet(wanted), f"{name} needs Python {wanted}"


def test_the_pins_are_within_the_ranges():
    extras = PROJECT["optional-dependencies"].values()
    ranges = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    for requirement in map(Requirement, ranges):
        if requirement.name != "distlab":
            assert pins()[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_installing_on_colab_replaces_nothing():
    extras = ("jax", "tensorflow", "torch", "notebooks")
    wanted = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    checked = set()
    for requirement in map(Requirement, [*PROJECT["dependencies"], *wanted]):
        name = canonicalize_name(requirement.name)
        if name in COLAB:
            assert COLAB[name] in requirement.specifier, requirement
            checked.add(name)
    assert checked == set(COLAB)
    assert "3.13.0" in Requirement(f"python{PROJECT['requires-python']}").specifier


def test_conda_users_get_the_environment_that_is_here(tmp_path, installed):
    assert resolved(tmp_path, "--no-index") == {}


@pytest.mark.needs("index")
@pytest.mark.timeout(900)
def test_pip_resolves_to_the_pins_from_nothing(tmp_path):
    """What a package index has today, against what is pinned: for this it takes a network."""
    found = resolved(tmp_path, "--ignore-installed", "--retries=1")
    assert len(found) > 150
    assert found == {name: pins().get(name) for name in found}
