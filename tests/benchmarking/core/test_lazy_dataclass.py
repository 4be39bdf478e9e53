"""Data classes whose methods are generated at their first use behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing

import pytest

from benchmarking.core import lazy_dataclass
from benchmarking.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a grid."""

    batch: int
    name: str = "a"
    sizes: list[int] = dataclasses.field(default_factory=list, compare=False)
    note: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch: {self.batch}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Point):
    model: str


@dataclass(slots=True)
class Counter:
    count: int = 0


@dataclass(slots=True, eq=False)
class Owner:
    name: str


@dataclass(frozen=True)
class Written:
    value: int

    def __repr__(self) -> str:
        return f"<{self.value}>"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


def test_methods_are_generated_when_one_is_used():
    @dataclass(frozen=True, slots=True)
    class Fresh:
        value: int

    generated = ("__init__", "__repr__", "__eq__", "__hash__")
    assert all(isinstance(vars(Fresh)[name], lazy_dataclass._Method) for name in generated)
    assert Fresh(1) == Fresh(1)
    assert all(inspect.isfunction(vars(Fresh)[name]) for name in generated)


def test_instances_are_made_compared_and_shown():
    assert repr(Point(batch=2, sizes=[1])) == "Point(batch=2, name='a', sizes=[1])"
    assert Point(batch=2, sizes=[1]) == Point(batch=2)
    assert hash(Point(batch=2)) == hash(Point(batch=2, sizes=[3]))
    assert Point(batch=2) != Point(batch=3)
    assert Point(batch=2) != Cell(batch=2, model="m")
    assert repr(Cell(batch=2, model="m")) == "Cell(batch=2, name='a', sizes=[], model='m')"
    assert not hasattr(Cell(batch=2, model="m"), "__dict__")


def test_wrong_arguments_name_the_class():
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required keyword-only argument: 'batch'"):
        Point()
    with pytest.raises(TypeError, match="positional"):
        Point(2)
    with pytest.raises(ValueError, match="batch: 0"):
        dataclasses.replace(Point(batch=2), batch=0)


@pytest.mark.parametrize("kind", [Point, Cell])
def test_frozen_instances_cannot_be_changed(kind):
    instance = kind(**{"batch": 2} | ({"model": "m"} if kind is Cell else {}))
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'batch'"):
        instance.batch = 3
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del instance.name


def test_instances_are_copied_and_pickled():
    cell = Cell(batch=2, model="m", sizes=[1])
    assert copy.deepcopy(cell) == cell
    assert pickle.loads(pickle.dumps(cell)).sizes == [1]
    assert dataclasses.asdict(cell) == {"batch": 2, "name": "a", "sizes": [1], "note": "", "model": "m"}


def test_mutable_instances_have_no_hash_unless_they_are_compared_by_identity():
    assert Counter.__hash__ is None
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    owner = Owner("a")
    assert owner != Owner("a")
    assert owner in {owner}


def test_written_methods_stay():
    assert (repr(Written(3)), Written(3) == 4, hash(Written(3))) == ("<3>", True, 7)


def test_fields_and_signatures_are_those_of_the_class():
    assert [field.name for field in dataclasses.fields(Cell)] == ["batch", "name", "sizes", "note", "model"]
    assert list(inspect.signature(Point).parameters) == ["batch", "name", "sizes", "note"]
    assert typing.get_type_hints(Cell)["batch"] is int
    match Counter(4):
        case Counter(count):
            assert count == 4
