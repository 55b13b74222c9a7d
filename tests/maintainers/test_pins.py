"""The pinned set: whole, in force, the same for conda users, and no threat to Colab's packages."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest
from _pins import PROJECT, conda_pip_lines, pins, public, resolve, resolved
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

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
    ran = resolve(conda_pip_lines(tmp_path), tmp_path / "report", "--no-index")
    assert ran.returncode == 0, ran.stderr
    assert resolved(tmp_path / "report") == {}
