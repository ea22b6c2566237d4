"""Reads what the reports need from a compiled file: symbols, and which source line an address belongs to.

ELF and the DWARF 4 line table are read here, since a machine with nothing but `pip install ziglang` has no nm and no
addr2line.
"""

from __future__ import annotations

import bisect
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

KERNEL_FILE = "kernel.cu"


@dataclass(frozen=True)
class Symbol:
    name: str
    address: int
    size: int
    defined: bool
    variable: bool


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Row:
    """From `address` on, up to the next row, the code belongs to `file` and `line`.

    Line 0: the compiler names none. No file: what comes here is no code of this unit.
    """

    address: int
    file: str
    line: int


class Elf:
    """A 64-bit little-endian ELF file."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        assert self.data[:6] == b"\x7fELF\x02\x01", f"{path.name} is no 64-bit little-endian ELF file"

    @cached_property
    def sections(self) -> list[Section]:
        table, entry, count, names_index = self._unpack("<Q", 0x28)[0], *self._unpack("<HHH", 0x3A)
        raw = [self._unpack("<IIQQQQIIQQ", table + i * entry) for i in range(count)]
        names = raw[names_index][4]
        return [Section(self._text(names + r[0]), r[1], r[4], r[5], r[6]) for r in raw]

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The full symbol table (SHT_SYMTAB)."""
        found = []
        for section in self.sections:
            if section.kind != 2:
                continue
            names = self.sections[section.link].offset
            for at in range(section.offset, section.offset + section.size, 24):
                name, info, _, index, address, size = self._unpack("<IBBHQQ", at)
                found.append(Symbol(self._text(names + name), address, size, index != 0, info & 15 == 1))
        return found

    @cached_property
    def rows(self) -> list[Row]:
        """The line table in the order of addresses."""
        section = next((s for s in self.sections if s.name == ".debug_line"), None)
        rows: list[Row] = []
        at = section.offset if section else 0
        end = at + section.size if section else 0
        while at < end:
            length = self._unpack("<I", at)[0]
            rows += _LineProgram(self.data, at).rows()
            at += 4 + length
        return sorted(rows, key=lambda row: row.address)

    @cached_property
    def _addresses(self) -> list[int]:
        return [row.address for row in self.rows]

    def line(self, address: int) -> int | None:
        """The line of the kernel's source that `address` lies in; None when it lies elsewhere.

        Code of a header that the compiler put in line belongs to the kernel's line just before it.
        """
        i = bisect.bisect_right(self._addresses, address) - 1
        while i >= 0 and self.rows[i].file:
            if self.rows[i].line and self.rows[i].file.endswith(KERNEL_FILE):
                return self.rows[i].line
            i -= 1
        return None

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(form, self.data, at)

    def _text(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()


class _LineProgram:
    """One unit of the DWARF 2 to 4 line table: a small machine that emits rows (DWARF 4, section 6.2)."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        length, version, header_length = struct.unpack_from("<IHI", data, at)
        assert 2 <= version <= 4, f"a line table of DWARF {version}: compile with -gdwarf-4"
        self.end = at + 4 + length
        self.start = at + 10 + header_length
        at += 10
        self.step = data[at]
        at += 2 if version >= 4 else 1
        self.line_base, self.line_range, self.first_special = struct.unpack_from("<bBB", data, at + 1)
        lengths = at + 4
        self.operands = data[lengths : lengths + self.first_special - 1]
        self.at = lengths + self.first_special - 1
        while self._string():  # folders
            pass
        self.files = [""]
        while name := self._string():
            self.files.append(name)
            for _ in range(3):
                self._unsigned()

    def rows(self) -> list[Row]:
        self.at = self.start
        rows: list[Row] = []
        address, file, line = 0, 1, 1
        while self.at < self.end:
            code = self._byte()
            if code >= self.first_special:
                code -= self.first_special
                address += code // self.line_range * self.step
                line += self.line_base + code % self.line_range
                rows.append(Row(address, self.files[file], line))
            elif code == 0:  # extended
                length = self._unsigned()
                after = self.at + length
                kind = self._byte()
                if kind == 1:  # end of a sequence
                    rows.append(Row(address, "", 0))
                    address, file, line = 0, 1, 1
                elif kind == 2:
                    address = int.from_bytes(self.data[self.at : after], "little")
                self.at = after
            elif code == 1:
                rows.append(Row(address, self.files[file], line))
            elif code == 2:
                address += self._unsigned() * self.step
            elif code == 3:
                line += self._signed()
            elif code == 4:
                file = self._unsigned()
            elif code == 8:
                address += (255 - self.first_special) // self.line_range * self.step
            elif code == 9:
                address += struct.unpack_from("<H", self.data, self.at)[0]
                self.at += 2
            else:  # columns, statement marks: not needed
                for _ in range(self.operands[code - 1]):
                    self._unsigned()
        return rows

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _string(self) -> str:
        end = self.data.index(b"\0", self.at)
        text, self.at = self.data[self.at : end].decode(), end + 1
        return text

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _signed(self) -> int:
        start = self.at
        value = self._unsigned()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value
