"""The number of sentences that break the checkable rules of docs/STYLE.md never rises."""

from __future__ import annotations

import pytest

from tests.docs.english import Sentence, counts, of_markdown, of_python, recorded, split


def test_sentences_that_break_the_rules_become_fewer() -> None:
    found = {room: bad for room, (bad, _) in counts().items()}
    allowed = recorded()
    more = {room: f"{bad}, {allowed.get(room, 0)} allowed" for room, bad in found.items() if bad > allowed.get(room, 0)}
    assert more == {}, "python -m tests.docs.english ROOM prints them; docs/STYLE.md has the rules"
    fewer = {room: found.get(room, 0) for room, number in allowed.items() if found.get(room, 0) < number}
    assert fewer == {}, "well done: python -m tests.docs.english --record"


@pytest.mark.parametrize(
    ("text", "offends"),
    [
        ("What is given up has a place.", True),
        ("Of each member the attempt that runs.", True),
        ("Whoever leads writes a claim.", True),
        ("The lease by which it leads.", True),
        ("A list of whom nobody knows anything.", True),
        ("Which jobs must be brought back, from which checkpoint, and why?", False),
        ("What comes next?", False),
        ("The offset from which it reads.", False),
        ("A leader writes a claim.", False),
    ],
)
def test_a_sentence_offends_by_its_beginning_or_by_a_chain(text: str, offends: bool) -> None:
    assert Sentence("page.md", text).offends is offends


def test_sentences_are_found_where_people_read_them() -> None:
    source = '''"""A module of tests. It has two sentences."""

# A comment that goes on
# in a second line.
def f(x):
    raise ValueError("This is an error text.")  # Another comment is here.
'''
    assert list(of_python(source)) == [
        "A module of tests.",
        "It has two sentences.",
        "This is an error text.",
        "A comment that goes on in a second line.",
        "Another comment is here.",
    ]
    page = (
        "# A heading of words\n\n- one point here\n- What it is.\n\n```\nOf no code.\n```\n\n| What one cell says | no |\n"
    )
    assert list(of_markdown(page)) == ["A heading of words", "one point here", "What it is.", "What one cell says"]
    assert list(split("Too short. This one is long enough.")) == ["This one is long enough."]
