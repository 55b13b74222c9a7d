"""What is pinned, and what pip would install for conda users."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from _tools import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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


def resolve(requirements: Path, report: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-build-isolation"]
    command += ["--no-cache-dir", "--report", str(report), "-r", str(requirements), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def resolved(report: Path) -> dict[str, Version]:
    packages = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    found = {canonicalize_name(p["name"]): public(p["version"]) for p in packages}
    found.pop("distlab")  # a checkout is always installed anew
    return found
