"""What a package index has today, against what is pinned: for this it takes a network."""

import pytest
from _pins import conda_pip_lines, pins, resolve, resolved


@pytest.mark.needs("index")
@pytest.mark.timeout(900)
def test_pip_resolves_to_the_pins_from_nothing(tmp_path):
    ran = resolve(
        conda_pip_lines(tmp_path), tmp_path / "report", "--ignore-installed", "--retries=1"
    )
    assert ran.returncode == 0, ran.stderr
    found = resolved(tmp_path / "report")
    assert len(found) > 150
    assert found == {name: pins().get(name) for name in found}
