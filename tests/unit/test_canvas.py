"""The canvas: frozen values that compare by what they mean, and say what to write instead."""

from dataclasses import FrozenInstanceError

import pytest

from models.errors import InvalidIdentifier
from tasks import Context, Then, group, step
from tasks.canvas import Chain, Signature, chain
from tasks.errors import DefinitionError, PlanCircle


@step
def read(ctx: Context, uri: str) -> str:
    return uri


@step
def think(ctx: Context, doc: str, depth: int = 0) -> str:
    return doc * depth


def test_chains_of_chains_are_one_chain() -> None:
    flat = read.s("a") | think.s() | think.s(2)
    assert read.s("a") | (think.s() | think.s(2)) == flat
    assert chain(read.s("a"), chain([think.s(), think.s(2)])) == flat
    assert [link for link in flat.links() if isinstance(link, Signature)] == [
        read.s("a"),
        think.s(),
        think.s(2),
    ]


def test_a_group_takes_members_or_one_iterable_of_them() -> None:
    assert group(think.s(1), think.s(2)) == group(think.s(n) for n in (1, 2))
    assert group([]) == group()
    assert group(think.s(), tolerant=True) != group(think.s())


def test_a_member_may_be_a_chain_and_stays_one() -> None:
    assert len(group(read.s("a") | think.s()).members) == 1


def test_signatures_are_immutable() -> None:
    signature = think.s(depth=2)
    with pytest.raises(FrozenInstanceError):
        signature.key = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        signature.kwargs["depth"] = 3  # type: ignore[index]


def test_set_makes_another_signature() -> None:
    plain = think.s()
    assert plain.set(queue="gpu", key="draft").set(queue="llm").key == "draft"
    assert (plain.queue, plain.key) == (None, None)


@pytest.mark.parametrize("key", ["a#2", "a/b", "a b", "x" * 101, "é" * 51])
def test_a_key_that_could_not_be_kept_apart_is_refused(key: str) -> None:
    with pytest.raises((DefinitionError, InvalidIdentifier), match="step key"):
        think.s().set(key=key)


@pytest.mark.parametrize("key", ["e\u0301", "a\x00b", " a"])
def test_a_key_that_could_not_be_stored_is_refused(key: str) -> None:
    with pytest.raises(InvalidIdentifier, match="step key"):
        think.s().set(key=key)


def test_a_step_in_place_of_its_signature_is_named() -> None:
    for wrong in (
        lambda: read.s("a") | think,
        lambda: think | read.s("a"),
        lambda: group(think),  # type: ignore[arg-type]
        lambda: Then("a", think),  # type: ignore[arg-type]
    ):
        with pytest.raises(DefinitionError, match=r"`think` is a step.*write think\.s\("):
            wrong()


def test_what_is_no_canvas_is_refused_by_type() -> None:
    with pytest.raises(DefinitionError, match=r"5 \(int\) cannot stand in a plan"):
        read.s("a") | 5
    with pytest.raises(DefinitionError, match="at least one"):
        chain()


def test_a_chain_made_to_contain_itself_is_a_circle_and_not_an_endless_loop() -> None:
    knot = Chain((read.s("a"),))
    object.__setattr__(knot, "parts", (read.s("a"), Chain((knot,))))
    with pytest.raises(PlanCircle, match="a chain contains itself"):
        list(knot.links())


def test_a_chain_used_twice_is_no_circle() -> None:
    twice = chain(think.s(), think.s(1))
    assert len(list((twice | twice).links())) == 4


def test_twenty_thousand_links_are_flattened_compared_and_dropped_without_recursion() -> None:
    def long() -> Chain:
        made = read.s("a") | think.s()
        for _ in range(19_998):
            made = made | think.s()
        return made

    assert len(list(long().links())) == 20_000
    assert long() == long()


def test_a_canvas_shows_as_it_is_written() -> None:
    shown = repr(read.si("a") | group(think.s(depth=1), tolerant=True))
    assert shown == "read.si('a') | group(think.s(depth=1), tolerant=True)"
