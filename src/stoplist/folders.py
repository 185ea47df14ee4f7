"""Says why a folder cannot be used: often a file stands where a folder should be."""

import stat
from pathlib import Path


def file_in_place_of_folder(path: Path) -> Path | None:
    """Return what is no folder although it should be: `path` itself or the nearest folder above it that exists."""
    for each in (path, *path.parents):
        try:
            mode = each.stat().st_mode
        except OSError:
            continue
        return None if stat.S_ISDIR(mode) else each
    return None


def folder_error(path: Path, error: OSError) -> str:
    """Return why the folder `path` could not be used: that a file is there, else the system's own words."""
    file = file_in_place_of_folder(path)
    return f"{file} is a file, not a folder" if file else error.strerror or "unknown error"
