"""Says why a folder cannot be used: often a file stands where a folder should be."""

from pathlib import Path


def folder_error(folder: Path, error: OSError) -> str:
    """Return why `folder` could not be used: that a file is there, or above it, else the system's own words."""
    for each in (folder, *folder.parents):
        if each.is_dir():
            break
        if each.exists():
            return f"{each} is a file, not a folder"
    return error.strerror or type(error).__name__
