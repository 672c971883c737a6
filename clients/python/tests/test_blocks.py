"""The blocks of a view become the objects of a framework again."""

from __future__ import annotations

from typing import Any

from palimpsest import _blocks as blocks
from palimpsest._blocks import Source


def source(role: str, message: str, *items: tuple[Any, str]) -> Source[str, str]:
    return Source(role, message, items)


def restore(view: list[Any], sources: list[Source[str, str]]) -> list[tuple[list[str], str | None, bool]]:
    known, ids = blocks.with_call_ids(sources)
    messages = blocks.restore(view, known, ids, lambda block, item: f"{item} as {blocks.plain_text(block)}")
    return [(it.items, it.base, it.is_unchanged) for it in messages]


def user(*contents: Any) -> Any:
    return {"role": "user", "content": [blocks.text(it) if isinstance(it, str) else it for it in contents]}


def test_equal_texts_are_matched_from_the_end() -> None:
    sources = [source("user", f"message {n}", (None, f"thinking {n}"), (blocks.text("yes"), f"text {n}")) for n in "ab"]
    assert restore([user("yes")], sources) == [(["thinking b", "text b"], "message b", True)]
    assert [it[1] for it in restore([user("yes"), user("yes")], sources)] == ["message a", "message b"]


def test_an_equal_text_of_another_role_stays_apart() -> None:
    sources = [
        source("assistant", "a", (None, "thinking"), (blocks.text("ok"), "text a")),
        source("user", "b", (blocks.text("ok"), "text b")),
    ]
    answer = {**user("ok"), "role": "assistant"}
    assert restore([answer], sources) == [(["thinking", "text a"], "a", True)]
    assert [it[1] for it in restore([answer, user("ok")], sources)] == ["a", "b"]


def test_calls_keep_ids_that_the_service_replaces() -> None:
    use, outcome = blocks.call("a:1", "read", {}), blocks.result("a:1", [blocks.text("large")])
    sources = [source("assistant", "a", (use, "use")), source("user", "b", (outcome, "result"))]
    known, _ = blocks.with_call_ids(sources)
    use, outcome = (it["content"][0] for it in blocks.array(known))
    assert use["id"] == outcome["tool_use_id"] != "a:1"
    view = [{"role": "assistant", "content": [use]}, user({**outcome, "content": "small"})]
    unchanged, changed = restore(view, sources)
    assert unchanged == (["use"], "a", True)
    assert changed[0][0].startswith("result as {")
    assert '"a:1"' in changed[0][0]


def test_merged_messages_keep_items_without_a_block() -> None:
    sources = [
        source("user", "a", (blocks.text("one"), "one"), (None, "mark")),
        source("user", "b", (None, "system"), (blocks.text("two"), "two")),
    ]
    assert restore([user("one", "two")], sources) == [(["one", "mark", "system", "two"], "b", False)]


def test_changed_and_added_blocks_are_converted() -> None:
    call = blocks.result("c", [blocks.text("large")])
    sources = [source("user", "a", (call, "result"), (blocks.text("And?"), "text"))]
    changed = {**call, "content": "small"}
    view = user("summary", changed, "And?\n[id:a1b2c3]")
    items = restore([view], sources)[0][0]
    assert items[0] == "None as summary"
    assert items[1].startswith("result as {")
    assert items[2] == "text as And?\n[id:a1b2c3]"


def test_an_array_has_no_empty_message() -> None:
    sources = [source("user", "a", (blocks.text("hi"), "hi")), source("assistant", "b", (None, "thinking"))]
    assert blocks.array(sources) == [user("hi")]


def test_files() -> None:
    assert blocks.file("image/png", b"a")["source"] == {"type": "base64", "media_type": "image/png", "data": "YQ=="}
    assert blocks.file("application/pdf", "https://x.org/a.pdf")["source"]["type"] == "url"
    assert blocks.file("text/csv", b"1,2")["source"]["data"] == "1,2"
    assert blocks.file("video/mp4", b"abc", "film")["source"]["data"] == "[film video/mp4 3 bytes]"
