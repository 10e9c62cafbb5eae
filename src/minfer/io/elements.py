"""XML for the network formats, by expat: a small tree of elements with their places.

Nothing is fetched and nothing is expanded: entity declarations and external DTDs are refused. The
internal DTD that XMLBIF files carry may declare elements and attributes. Elements whose names the
reader does not ask for are passed over with all that is in them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, NoReturn
from xml.parsers import expat

from minfer.errors import FormatError, visible
from minfer.factors.group import Floats
from minfer.io.tokens import number_complaint, shortened, to_numbers

#: What XML 1.0 cannot hold at all, or not unchanged.
UNWRITABLE = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: Elements inside one another, and attributes with a default, beyond which no honest file goes.
_DEPTH, _DEFAULTS, _DEFAULT_LENGTH = 64, 64, 200
#: Elements that a file may have anyway, and bytes that it must have for each further one.
_ELEMENTS, _BYTES = 1 << 16, 12
_CHUNK = 1 << 15  # bytes that expat is given at a time
_NO_MEMORY = expat.errors.codes[expat.errors.XML_ERROR_NO_MEMORY]
_COLUMNS = 1 << 24  # of one line; columns beyond it are not told apart


class Element:
    """One element: its name, attributes, text, the elements in it, line and column.

    A file may have very many, so one that is empty holds nothing.
    """

    __slots__ = ("_attributes", "_parts", "_place", "children", "tag")

    def __init__(self, tag: str, attributes: list[str], line: int, column: int) -> None:
        self.tag, self._attributes = tag, tuple(attributes)
        self._place = line * _COLUMNS + min(column, _COLUMNS - 1)
        self.children: list[Element] | tuple[()] = ()
        self._parts: list[str] | tuple[()] = ()

    @property
    def attributes(self) -> dict[str, str]:
        return dict(zip(self._attributes[::2], self._attributes[1::2]))

    def add(self, child: Element) -> None:
        """One more element in it."""
        self.children = self.children or []
        self.children.append(child)

    def add_text(self, text: str) -> None:
        """More text; blanks between elements are none."""
        if self._parts or not text.isspace():
            self._parts = self._parts or []
            self._parts.append(" " if text.isspace() else text)

    @property
    def text(self) -> str:
        """Its own text, white space around it taken off."""
        return "".join(self._parts).strip()

    def all(self, *tags: str) -> Iterator[Element]:
        """The elements directly in it that have one of these names."""
        return (child for child in self.children if child.tag in tags)


class ElementTree:
    """A parsed file: the root, and errors that know their place.

    Elements called as in ``keep`` are wanted, and all that are directly in one of ``all_in``.
    """

    def __init__(
        self, name: str, data: bytes, keep: Collection[str], all_in: Collection[str] = ()
    ) -> None:
        self.name, self.n_bytes, self._keep, self._all_in = name, len(data), keep, all_in
        self.root: Element | None = None
        self._open: list[Element] = []
        self._passed = 0  # depth inside an element that is passed over
        self._defaults = self._elements = 0
        parser = self._parser = expat.ParserCreate()
        parser.buffer_text = parser.ordered_attributes = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._entity
        parser.UnparsedEntityDeclHandler = self._entity
        parser.ExternalEntityRefHandler = self._entity
        parser.AttlistDeclHandler = self._attlist
        try:
            for begin in range(0, len(data), _CHUNK):  # so that what fails is soon known
                parser.Parse(data[begin : begin + _CHUNK], False)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            if error.code == _NO_MEMORY:
                raise MemoryError from None
            reason = expat.ErrorString(error.code)
            raise FormatError(
                f"{name}: line {error.lineno}, column {error.offset + 1}: not well-formed XML: "
                f"{reason}"
            ) from None
        except (LookupError, ValueError) as error:  # an encoding that is unknown or multi-byte
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{name}: line 1: {visible(str(error))}: use UTF-8") from None
        finally:
            del self._parser, parser  # it knows us by its handlers: all would wait for a collection

    def fail(self, at: Element, message: str) -> NoReturn:
        """Raise an error about an element."""
        line, column = divmod(at._place, _COLUMNS)
        tag = shortened(at.tag)
        raise FormatError(f"{self.name}: line {line}, column {column}, <{tag}>: {message}")

    def numbers(self, at: Element) -> Floats:
        """The numbers that are the text of an element."""
        words = at.text.split()
        values = to_numbers(words)
        if isinstance(values, int):
            word = words[values]
            self.fail(at, f"number {values + 1}, '{shortened(word)}': {number_complaint(word)}")
        return values

    def one(self, parent: Element, *tags: str) -> Element:
        """The only element of some name in another."""
        found = list(parent.all(*tags))
        if len(found) != 1:
            self.fail(parent, f"it should hold one <{tags[0]}>, and has {len(found)}")
        return found[0]

    def _here(self, message: str) -> NoReturn:
        line, column = self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1
        raise FormatError(f"{self.name}: line {line}, column {column}: {message}")

    def _start(self, tag: str, attributes: list[str]) -> None:
        if len(self._open) + self._passed >= _DEPTH:
            self._here(f"more than {_DEPTH} elements inside one another")
        wanted = not self._open or tag in self._keep or self._open[-1].tag in self._all_in
        if self._passed or not wanted:
            self._passed += 1
            return
        line, column = self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1
        self._elements += 1
        if self._elements > _ELEMENTS + self.n_bytes // _BYTES:
            self._here(f"more than {self._elements - 1:,} elements in {self.n_bytes:,} bytes")
        element = Element(tag, attributes, line, column)
        if self._open:
            self._open[-1].add(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:
        if self._passed:
            self._passed -= 1
        else:
            self._open.pop()

    def _characters(self, text: str) -> None:
        if not self._passed:
            self._open[-1].add_text(text)

    def _doctype(self, name: str, system: Any, public: Any, internal: int) -> None:
        if system is not None or public is not None:
            self._here("a document type from outside the file is not fetched; remove it")

    def _entity(self, *_: Any) -> NoReturn:
        self._here("entities are not read; replace them by what they stand for")

    def _attlist(self, element: str, name: str, kind: str, default: Any, required: int) -> None:
        if default is not None:
            self._defaults += 1
            if self._defaults > _DEFAULTS or len(default) > _DEFAULT_LENGTH:
                self._here("too many or too long defaults of attributes")
