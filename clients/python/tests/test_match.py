"""The places of messages in a view, and aliases of ids of calls."""

from __future__ import annotations

from palimpsest._call_ids import CallIds
from palimpsest._match import Key, last_places


def places(view: str, sources: str) -> list[int | None]:
    """Matches words. A word in capital letters has an id, and `|` begins another message."""
    numbered = [(number, key(word)) for number, part in enumerate(sources.split("|")) for word in part.split()]
    return last_places([key(word) for word in view.split()], numbered)


def key(word: str) -> Key:
    return Key(word, has_id=word.isupper())


def test_equal_texts_are_matched_from_the_end() -> None:
    assert places("done", "done | ok | done") == [2]
    assert places("summary ok done", "done | ok | done") == [None, 1, 2]
    assert places("done done done", "done | done") == [None, 0, 1]


def test_texts_keep_their_order() -> None:
    assert places("a b", "b | a") == [None, 0]
    assert places("done A", "done A | done B") == [0, 1]
    assert places("done A done B", "done A | done B") == [0, 1, 2, 3]


def test_a_moved_result_is_found() -> None:
    assert places("A RESULT hi", "A | hi | RESULT") == [0, 2, 1]
    assert places("A RESULT hi", "A | hi RESULT") == [0, 2, 1]


def test_legal_ids_stay() -> None:
    ids = CallIds(40)
    assert [ids.of_call("call_1"), ids.of_result("call_1"), ids.original("call_1")] == ["call_1"] * 3


def test_other_ids_have_aliases_of_their_own() -> None:
    for given in ("", "a b", "é", "x" * 41, None):
        ids, again = CallIds(40), CallIds(40)
        alias = ids.of_call(given)
        assert alias == again.of_call(given) == ids.of_result(given)
        assert alias.startswith("call_")
        assert len(alias) <= 40
        assert ids.original(alias) == given


def test_results_of_repeated_ids_belong_to_the_open_calls() -> None:
    ids = CallIds(64)
    first, second = ids.of_call("c"), ids.of_call("c")
    assert (first, ids.original(second)) == ("c", "c")
    assert [ids.of_result("c"), ids.of_result("c"), ids.of_result("c")] == [first, second, second]
    third = ids.of_call("c")
    assert third not in (first, second)
    assert ids.of_result("c") == third
