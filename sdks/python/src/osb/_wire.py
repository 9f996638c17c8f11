"""What the classes of `osb.wire` share: reading from JSON, writing to JSON, comparing, showing.

Each class has a table of its fields: the attribute, its name on the wire, how it is read, whether
it must be there. A value is read as nothing special (None), as a time, as a class by its name, or
as a list (`[Name`) or a map (`{Name`) of these. Fields that a server adds later are passed over.
"""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Callable, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:
    def dataclass_transform(**_):
        return lambda found: found

_Reader = Callable[[Any], Any]
_Self = TypeVar("_Self", bound="Wire")


def time_from_text(text: str) -> datetime:
    """A time of RFC 3339; `datetime.fromisoformat` reads only some of them before Python 3.11."""
    if text.endswith(("Z", "z")):
        text = text[:-1] + "+00:00"
    head, dot, rest = text.partition(".")
    if dot:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        text = f"{head}.{digits[:6].ljust(6, '0')}{rest[len(digits):]}"
    return datetime.fromisoformat(text)


def text_from_time(moment: datetime) -> str:
    """A time as the protocol writes it; one without a zone is local time."""
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _reader(how: str, module: str) -> _Reader:
    if how.startswith("["):
        inner = _reader(how[1:], module)
        return lambda values: [inner(value) for value in values]
    if how.startswith("{"):
        inner = _reader(how[1:], module)
        return lambda values: {key: inner(value) for key, value in values.items()}
    if how == "time":
        return time_from_text
    found: _Reader = getattr(sys.modules[module], how).from_wire
    return found


@dataclass_transform(kw_only_default=True)
class Wire:
    """A value of the protocol. Made with keyword arguments, read with `from_wire`."""

    _fields: ClassVar[tuple[tuple[str, str, str | None, bool], ...]] = ()
    _readers: ClassVar[list[tuple[str, str, _Reader | None, bool]] | None] = None

    def __init__(self, **given: Any) -> None:
        for name, _, _, is_required in self._fields:
            if name in given:
                setattr(self, name, given.pop(name))
            elif is_required:
                raise TypeError(f"{type(self).__name__} needs {name}")
        if given:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(given))}")

    @classmethod
    def from_wire(cls: type[_Self], data: Any) -> _Self:
        """Reads what `json.loads` gave."""
        if not isinstance(data, dict):
            raise ValueError(f"{cls.__name__} is an object, not {type(data).__name__}")
        readers = cls.__dict__.get("_readers")
        if readers is None:
            readers = [(name, wire, how and _reader(how, cls.__module__), is_required)
                       for name, wire, how, is_required in cls._fields]
            cls._readers = readers
        found = cls.__new__(cls)
        for name, wire, read, is_required in readers:
            value = data.get(wire)
            if value is not None:
                setattr(found, name, read(value) if read else value)
            elif is_required:
                raise ValueError(f"{cls.__name__} without {wire}")
        return found

    def to_wire(self) -> dict[str, Any]:
        """As `json.dumps` takes it. What is None is left out."""
        written: dict[str, Any] = {}
        for name, wire, _, _ in self._fields:
            value = self.__dict__.get(name)
            if value is not None:
                written[wire] = to_wire(value)
        return written

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name, *_ in self._fields if name in self.__dict__)
        return f"{type(self).__name__}({shown})"


def to_wire(value: Any) -> Any:
    """Any value of ours as `json.dumps` takes it."""
    if isinstance(value, Wire):
        return value.to_wire()
    if isinstance(value, dict):
        return {key: to_wire(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_wire(inner) for inner in value]
    if isinstance(value, datetime):
        return text_from_time(value)
    return value
