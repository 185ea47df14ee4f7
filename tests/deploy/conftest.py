"""The files of a release, built once."""

import shutil
from pathlib import Path

import pytest

from tests.constants import ROOT
from tests.house import checks
from tools.release import build_release

BUILT_S = 1_770_000_000


def built_release(folder: Path) -> Path:
    """Build a release from a copy of this checkout, committed or not, and return the folder of its files."""
    source, target = folder / "source", folder / "dist"
    for path in checks.files(ROOT):
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    target.mkdir()
    build_release(source, target, built_s=BUILT_S)
    return target


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the files of a release."""
    return built_release(tmp_path_factory.mktemp("release"))
