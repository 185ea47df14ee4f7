"""Reads the rows of a list, part by part, in constant memory. Source: docs/interface.md section D12."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, cast

from stoplist_addresses.lists.blocks import Block, BlockReader
from stoplist_addresses.lists.encodings import find_encoding
from stoplist_addresses.lists.header import Header, find_separator, understand_header, understand_json
from stoplist_addresses.lists.interpretation import Interpreter, Tally
from stoplist_addresses.lists.json_rows import is_json, names_of, read_json_rows
from stoplist_addresses.lists.last_versions import LastVersions
from stoplist_addresses.lists.model import ListError, ListOptions, Part
from stoplist_addresses.lists.own_targets import OwnTargets
from stoplist_addresses.lists.rewindable_stream import RewindableStream
from stoplist_addresses.lists.rows import Rows, read_rows
from stoplist_addresses.lists.statuses import Statuses
from stoplist_addresses.lists.times import TimeReader, time_zone
from stoplist_addresses.lists.unpacking import Unpacked

_BEGINNING = 4


def open_list(
    file: BinaryIO, options: ListOptions, *, max_bytes: int | None = None, is_examined: bool = True
) -> "ListFile":
    """Return the list in a file that may be packed.

    `max_bytes` bounds what the file unpacks to. `is_examined`: the whole file is gone through first where only that can
    tell whether its rows may be taken (`opening_list`). Raise ListError if the file is empty, or if it cannot be read
    with these options.
    """
    _refuse_wrong_options(options)
    if not is_examined:
        return ListFile(_blocks(file, options, max_bytes), options)
    found: ListFile | None = None
    for found in opening_list(file, options, max_bytes=max_bytes):  # noqa: B007 (the last one)
        pass
    assert found is not None  # noqa: S101 (the last one is the list)
    return found


def opening_list(file: BinaryIO, options: ListOptions, *, max_bytes: int | None = None) -> Iterator["ListFile | None"]:
    """Open a list as `open_list` does; yield None after each block that is gone through, and the list in the end.

    Otherwise a refusal would come when a part of the rows is stored already: of an own export with records of several
    targets, of times that need a time zone, or of a wrong encoding beside them. A pipe is copied to a temporary file
    while it is gone through.
    """
    _refuse_wrong_options(options)
    pipe = None if file.seekable() else RewindableStream(file)
    source, begin = (file, file.tell()) if pipe is None else (cast("BinaryIO", pipe), 0)
    found = ListFile(_blocks(source, options, max_bytes), options)
    if found.needs_examination:
        for _ in found.examining():
            yield None
        if pipe is None:
            file.seek(begin)
        else:
            pipe.rewind()
        found = ListFile(_blocks(source, options, max_bytes), options, versions=found.versions)
    elif pipe is not None:
        pipe.stop_copying()
    yield found


def _blocks(file: BinaryIO, options: ListOptions, max_bytes: int | None) -> BlockReader:
    source = Unpacked(file, max_bytes=max_bytes)
    beginning = source.read(_BEGINNING)
    encoding, mark_length = find_encoding(beginning, options.encoding)
    return BlockReader(source, encoding, beginning=beginning, mark_length=mark_length)


class ListFile:
    """A list of people who opted out. It is read once, from its beginning to its end."""

    def __init__(self, blocks: BlockReader, options: ListOptions, *, versions: LastVersions | None = None) -> None:
        """Use `open_list`. `versions`: those that the examination of the same file found."""
        self._blocks = blocks
        self._block: Block | None = None
        self._rows: Rows | None = None
        self._row = 0  # the next row of `_rows`
        header = self._read_header(options)
        try:
            self._begin(header, options, versions)
        except ListError as error:
            error.header = header.names
            raise

    def _begin(self, header: Header, options: ListOptions, versions: LastVersions | None) -> None:
        """Decide how the rows are read, and refuse what their beginning does not fit."""
        zone_name = options.time_zone or (header.format.time_zone if header.format else None)
        zone = None if zone_name is None else time_zone(zone_name)
        self.header: tuple[str, ...] = header.names
        self.format: str | None = header.format.name if header.format else None
        self.columns: Mapping[str, str] = MappingProxyType(
            {field: header.names[index] for field, index in header.fields.items()} if header.names else {}
        )
        self.time_zone: str | None = zone_name
        if "occurred_at" not in header.fields and options.as_of_ms is None:
            raise ListError(
                "The file has no column with the time at which each person opted out, and no moment is stated at which "
                "the list was true. Nothing is dated now in silence: an opt-out dated now overrides a consent that the "
                "person gave after it. State that moment, or name the column.",
                is_usage=True,
                option="as_of_ms",
            )
        self.targets = OwnTargets(header, options)
        statuses = Statuses(header, options.opted_out_when)
        rows = self._next_rows()
        statuses.refuse_undecided(rows)
        self._interpreter = Interpreter(header, statuses, TimeReader(zone, options.now_ms), options)
        self._interpreter.versions = versions
        self._history = header.history
        self._may_need_zone = zone is None and "occurred_at" in header.fields
        self.versions = versions
        if rows is not None:
            self._interpreter.read(rows, 0, rows.count, Tally())  # refuses times that need a zone

    def parts(self, *, rows: int = 10_000) -> Iterator[Part]:
        """Yield what has not been read yet, at most `rows` rows at a time.

        There is always a last part, which may have no rows; its `sha256` is that of the whole file. A part within many
        empty lines has none either, so that the caller can do something else. Raise ListError where the file is broken,
        which may be at its end.
        """
        tally = Tally()
        yielded_bytes = -1
        while (loaded := self._load_rows()) is not None:
            if not loaded.count:
                if not tally.rows:
                    yield tally.part(self._blocks.sha256)
                continue
            end = min(self._row + rows - tally.rows, loaded.count)
            self.targets.count(loaded, self._row, end)
            self.targets.refuse_several()
            self._interpreter.read(loaded, self._row, end, tally)
            self._take_rows(end)
            if tally.rows == rows:
                yield tally.part(self._blocks.sha256)
                tally, yielded_bytes = Tally(), self._blocks.taken_bytes
        if tally.rows or self._blocks.taken_bytes > yielded_bytes:
            yield tally.part(self._blocks.sha256)

    @property
    def needs_examination(self) -> bool:
        """Return whether only the whole file can tell if its rows may be taken, and which of them."""
        return self.targets.is_needed or self._may_need_zone or self._history is not None

    def examining(self) -> Iterator[None]:
        """Go through the whole file, and yield after each block.

        Raise ListError at a time that needs a time zone, at bytes that are not of the encoding, and at the end of an
        own export with records of several targets.
        """
        self.versions = None if self._history is None else LastVersions()
        while (loaded := self._load_rows()) is not None:
            self.targets.count(loaded, self._row, loaded.count)
            if self._may_need_zone:
                self._interpreter.require_time_zone(loaded, self._row, loaded.count)
            if self.versions is not None and self._history is not None:
                self.versions.add(*(loaded.column(index, self._row, loaded.count) for index in self._history))
            self._row = loaded.count
            yield
        self.targets.refuse_several()

    def skip(self, rows: int) -> str:
        """Pass over the next `rows` rows, and return the SHA-256 of everything up to their end. May be called again.

        Raise ListError if there are not so many.
        """
        for _ in self.skipping(rows):
            pass
        return self.sha256

    def skipping(self, rows: int) -> Iterator[None]:
        """Pass over the next rows as `skip` does, and yield after each block."""
        while rows:
            if (loaded := self._load_rows()) is None:
                raise ListError("The file has fewer rows than were read of it before: it has changed.")
            end = min(self._row + rows, loaded.count)
            rows -= end - self._row
            if end:
                self._take_rows(end)
            yield

    @property
    def sha256(self) -> str:
        """The SHA-256 of the unpacked bytes up to the end of the last row that was taken, in hexadecimal."""
        return self._blocks.sha256

    def _read_header(self, options: ListOptions) -> Header:
        block = self._blocks.read()
        while block is not None and not block.lines.strip("\n"):
            self._blocks.take(block.data)
            block = self._blocks.read()
        if block is None:
            raise ListError("The file is empty.")
        self.encoding: str = block.encoding.name
        first_line = block.lines.lstrip("\n").partition("\n")[0]
        self._is_json = options.separator is None and is_json(first_line)
        self.separator: str | None = None if self._is_json else self._find_separator(first_line, options)
        if self._is_json:
            return self._read_json_header(block, first_line, options)
        if self.separator is None:
            self._width = 1
            self._blocks.put_back(block.data, block.first_line)
            return Header((), None, {"address": 0}, ())
        rows, _ = read_rows(block, self.separator, first_line.count(self.separator) + 1)
        if not rows.count:
            raise ListError("The header is longer than 64 KiB: perhaps a quote is never closed.")
        try:
            header = understand_header(rows.cells(0), options)
        except ListError as error:
            if error.option is not None:  # otherwise the cells may be addresses, which nobody keeps as names
                error.header = tuple(cell.strip() for cell in rows.cells(0))
            raise
        self._width = len(header.names)
        rest = block.cut(rows.ends[0])
        self._blocks.take(block.data)
        self._blocks.put_back(rest, block.first_line + rows.ends[0])
        return header

    def _read_json_header(self, block: Block, first_line: str, options: ListOptions) -> Header:
        empty_lines = len(block.lines) - len(block.lines.lstrip("\n"))
        self._json_names = names_of(first_line, line=block.first_line + empty_lines)
        header = understand_json(self._json_names, options)
        self._blocks.put_back(block.data, block.first_line)
        return header

    def _find_separator(self, first_line: str, options: ListOptions) -> str | None:
        try:
            return find_separator(first_line, options)
        except ListError as error:
            if error.option is not None:
                error.header = (first_line.strip(),)
            raise

    def _next_rows(self) -> Rows | None:
        """Return the rows with the next row, which is row `_row` of them. At the end, take all, and return None."""
        while (loaded := self._load_rows()) is not None and not loaded.count:
            pass
        return loaded

    def _load_rows(self) -> Rows | None:
        """Return the rows as `_next_rows` does, or those of a block that has none."""
        if self._rows is None or self._row == self._rows.count:
            if self._block is not None:
                self._blocks.take(self._block.take(self._block.line_count))
            block = self._block = self._blocks.read()
            self._rows = None
            if block is None:
                return None
            self._row = 0
            if self._is_json:
                self._rows = read_json_rows(block, self._json_names)
                return self._rows
            self._rows, line_count = read_rows(block, self.separator, self._width)
            if line_count < block.line_count:
                self._blocks.put_back(block.cut(line_count), block.first_line + line_count)
        return self._rows

    def _take_rows(self, end: int) -> None:
        """Take the rows before `end` of those that are loaded."""
        if self._rows is not None and self._block is not None:
            self._row = end
            self._blocks.take(self._block.take(self._rows.ends[end - 1]))


def _refuse_wrong_options(options: ListOptions) -> None:
    if options.as_of_ms is not None and options.as_of_ms > options.now_ms:
        raise ListError("The moment at which the list was true is in the future.", is_usage=True, option="as_of_ms")
    if options.reason is not None and options.reason not in options.reasons:
        raise ListError(
            f"The reason is not known. The reasons are: {', '.join(sorted(options.reasons))}.",
            is_usage=True,
            option="reason",
        )
