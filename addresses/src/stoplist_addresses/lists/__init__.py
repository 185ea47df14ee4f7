"""Reads lists of people who opted out: files of other systems, packed or not, as rows with line numbers.

The server and the partners' programs must agree on what a file says, so both read it with this package. It judges no
address. Source: docs/interface.md section D12.
"""

from stoplist_addresses.lists.formats import FORMATS, Format, Words
from stoplist_addresses.lists.list_file import ListFile, open_list, opening_list
from stoplist_addresses.lists.model import BadRow, ListError, ListOptions, OptOut, Part

__all__ = [
    "FORMATS",
    "BadRow",
    "Format",
    "ListError",
    "ListFile",
    "ListOptions",
    "OptOut",
    "Part",
    "Words",
    "open_list",
    "opening_list",
]
