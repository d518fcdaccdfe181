"""The base of every spec: frozen, hashable, without unknown fields, and changed only by `replace`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from html import escape
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from capacity.errors import SpecError, rephrase, unknown_field, unknown_name
from capacity.inputs import LARGEST_COUNT
from capacity.units import parse_written

Evidence = Literal["computed", "measured", "published", "calibrated", "assumed"]
_DOUBTS = {"assumed", "unverified"}  # lists of figures without a source

Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT, strict=True)]
"""A whole number from one to `LARGEST_COUNT`."""


def _integral(value: Any) -> Any:
    """A float without a fraction as an int: sizes are often written as 32e9."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def written_in(unit: str) -> BeforeValidator:
    """Lets a number be written as text with its unit, as in "3 TB/s"; bytes are rounded down to whole ones."""
    number: Callable[[float], float] = int if unit == "B" else float
    return BeforeValidator(lambda value: number(parse_written(value, unit)) if isinstance(value, str) else value)


Bytes = Annotated[int, BeforeValidator(_integral), Field(ge=1, lt=2**53, strict=True)]
"""A size of at least one byte that a float still holds exactly; 32e9 is read as 32_000_000_000."""

CountOrZero = Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
WrittenBytes = Annotated[Bytes, written_in("B")]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=True)]

K = TypeVar("K")
V = TypeVar("V")


class FrozenMapping(Mapping[K, V], Generic[K, V]):
    """An ordered dictionary that is hashable and immutable."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMapping({self._items!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        arguments = getattr(source, "__args__", (Any, Any))
        inner = handler.generate_schema(dict[arguments[0], arguments[1]])  # type: ignore[valid-type]
        from_dict = core_schema.no_info_after_validator_function(cls, inner)
        from_self = core_schema.no_info_before_validator_function(_as_dict, from_dict)
        return core_schema.json_or_python_schema(
            json_schema=from_dict,
            python_schema=from_self,
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


def _as_dict(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


class Spec(BaseModel):
    """A frozen set of validated facts; error messages show ``obtained_by``: how to get one."""

    obtained_by: ClassVar[str] = ""

    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="never")

    @model_validator(mode="before")
    @classmethod
    def fields_are_known(cls, data: Any) -> Any:
        """Refuse an unknown field with the nearest one of the same table."""
        for name in data if isinstance(data, Mapping) else ():
            if name not in cls.model_fields:
                raise ValueError(unknown_field(name, cls.model_fields))
        return data

    @cached_property
    def hash_value(self) -> int:
        """The hash, computed once: specs are keys of caches, and a model holds hundreds of values."""
        return hash((type(self), *(getattr(self, name) for name in type(self).model_fields)))

    def __hash__(self) -> int:
        return self.hash_value

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse a change in place: a spec is the key of what was computed from it.

        Raises
        ------
        SpecError
            Always.
        """
        raise SpecError(
            f"{type(self).__name__}.{name} cannot be changed in place; make a copy with replace({name}=...)"
        )

    def __delattr__(self, name: str) -> None:
        """Refuse to delete a field, as `__setattr__` refuses to change one.

        Raises
        ------
        SpecError
            Always.
        """
        raise SpecError(f"{type(self).__name__}.{name} cannot be deleted; make a copy with replace({name}=...)")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What a notebook shows: the text of a spec that has one of its own, else its fields."""
        own = type(self).__str__ is not BaseModel.__str__
        printer.text(str(self) if own else repr(self))

    def _repr_html_(self) -> str:
        """The same in a notebook that shows HTML."""
        own = type(self).__str__ is not BaseModel.__str__
        return f"<pre>{escape(str(self) if own else repr(self))}</pre>"

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: str) -> Self:
        """Validate external data; an error names the place and the field.

        Raises
        ------
        SpecError
            One sentence for each of the first three faults.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise rephrase(error, where) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with dotted fields changed and everything validated again.

        A replaced figure loses its source: it moves to ``assumed`` where the spec has such a list. No figure leaves
        that list or ``unverified``. Fields that were left to their defaults still count as not set.

        Examples
        --------
        ``part.replace(**{"memory.bytes_per_s": 4.8e12})``
        """
        data = self.model_dump()
        for dotted, value in changes.items():
            if _DOUBTS.intersection(dotted.split(".")):
                raise SpecError(
                    f"{type(self).__name__}.replace: {dotted!r} lists figures without a source and cannot be replaced; "
                    "give a figure its source in a file"
                )
            _set(data, dotted.split("."), value, dotted, type(self).__name__)
        if "assumed" in type(self).model_fields:
            data["assumed"] = tuple(dict.fromkeys([*data.get("assumed", ()), *changes]))
        copy = type(self).parse(data, where=getattr(self, "name", type(self).__name__))
        copy.model_fields_set.intersection_update({*self.model_fields_set, *(name.split(".")[0] for name in changes)})
        return copy


MAX_PATTERN_LETTERS = 200  # matching grows with the square of a pattern
Patterns = Annotated[tuple[Annotated[str, Field(max_length=MAX_PATTERN_LETTERS)], ...], Field(max_length=1_000)]
"""Dotted names of figures, ``*`` allowed."""


class Source(Spec):
    """The source of figures: the dotted fields it covers (``*`` allowed) and a citation with a date.

    ``published`` is a printed figure; ``measured`` comes from a run of this package.
    """

    fields: Patterns
    cite: Annotated[str, Field(min_length=4)]
    confidence: Literal["A", "B", "C"] | None = None
    evidence: Literal["published", "measured"] = "published"


class UserSpec(Spec):
    """A spec that people construct by hand: an error is one sentence there too, not a validation dump."""

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise rephrase(error, type(self).__name__) from None

    def __str__(self) -> str:
        """The fields that are not at their default."""
        fields = type(self).model_fields.items()
        values = {name: getattr(self, name) for name, field in fields if getattr(self, name) != field.default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: str) -> Self:
        """Validate external data; an error names the place and the field."""
        if not isinstance(data, Mapping):
            raise SpecError(f"{where}: must be a table of fields, got {type(data).__name__}")
        try:
            return cls(**data)
        except SpecError as error:
            raise SpecError(str(error).replace(f"{cls.__name__}:", f"{where}:")) from None


def _set(data: Any, path: list[str], value: Any, dotted: str, kind: str) -> None:
    head, rest = path[0], path[1:]
    if not isinstance(data, dict):
        raise SpecError(f"{kind}.replace: {dotted!r} reaches into a value that has no named fields")
    if not rest:
        data[head] = value
        return
    if head not in data:
        raise SpecError(f"{kind}.replace: {unknown_name('field', dotted, map(str, data))}")
    inner = data[head]
    data[head] = dict(inner) if isinstance(inner, Mapping) else inner
    _set(data[head], rest, value, dotted, kind)
