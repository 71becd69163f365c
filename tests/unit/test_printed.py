"""Every configuration that the documentation prints is planned as it stands, but for the places it leaves to you."""

from pathlib import Path
from typing import Any

import pytest

from printed import completed, printed
from servebench import configuration


def test_they_are_found() -> None:
    assert {name.split()[0] for name in printed()} >= {"config/README.md", "docs/evaluations.md", "docs/slurm.md"}


@pytest.mark.parametrize(("place", "content"), printed().items(), ids=printed())
def test_it_is_planned(place: str, content: dict[str, Any], tmp_path: Path) -> None:
    assert configuration.load(completed(content), [tmp_path / "config.yaml"]).measurements > 0
