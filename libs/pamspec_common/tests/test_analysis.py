"""The analysis of texts: the same for index and query, for any text, and without an operator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common.analysis import LANGUAGES, analyze, sought, texts_of
from pamspec_common.analysis.terms import MAX_PHRASES, MAX_QUERY_CHARS, MAX_QUERY_WORDS, MAX_TOKENS
from pamspec_common.analysis.tokens import normalized, tokens


def matches(text: str, query: str) -> bool:
    """Whether a query would find a text, by what the index does: one term at least, and every phrase."""
    held, looked = analyze([text]), sought(query)
    spoken = [
        term in held.terms and language in (-1, held.language)
        for term, language in zip(looked.terms, looked.languages, strict=True)
    ]
    must = [one[1:] for one in looked.phrases if one.startswith("+")]
    return (any(spoken) or not looked.terms) and all(one in held.order for one in must) and not looked.nothing


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", "What did they say about the depot when it was closed?"),
        ("german", "Das ist nicht die Straße, die wir gesucht haben"),
        ("french", "Je ne sais pas ce que vous avez dit dans la maison"),
        ("spanish", "No sé qué es lo que pasa con los niños de la casa"),
        ("italian", "Non so che cosa è successo nella casa degli amici"),
        ("portuguese", "Eu não sei o que você fez com as coisas da casa"),
        ("dutch", "Ik weet niet wat er met het huis van mijn buren is"),
        ("swedish", "Jag vet inte vad som har hänt med huset och barnen"),
        ("russian", "Я не знаю, что это было"),
        ("russian", "теплица"),
        ("english", "marigold"),
        ("english", ""),
    ],
)
def test_a_language_is_told_by_its_function_words(language: str, text: str) -> None:
    assert LANGUAGES[analyze([text]).language] == language


@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_text_is_analyzed_and_finds_itself(text: str, others: list[str]) -> None:
    """Whatever the characters are; a text of which nothing is a token finds nothing."""
    held = analyze([*others, text])
    assert held.length >= 0
    assert all(times > 0 for times in held.terms.values())
    if any(token.placed for token in tokens(normalized(text.replace('"', " ")))):
        assert matches(text, text) or sought(text).nothing or '"' in text or len(text) > MAX_QUERY_CHARS


@given(st.text(alphabet=st.characters(whitelist_categories=("Ll", "Lo", "Nd")), min_size=2, max_size=12))
def test_a_word_is_found_in_a_text_of_another_language(word: str) -> None:
    assert matches(f"das ist nicht {word} und es war nie so", word)


def test_a_code_is_one_term_and_found_by_its_parts() -> None:
    text = "ticket INC-2024-00017: foo_bar.baz at C:\\x\\y.py, parseJSONBody, C++ and v2"
    for query in ("INC-2024-00017", "2024", "foo_bar.baz", "bar", "c:\\X\\y.py", "json", "parsejsonbody", "C++", "v2"):
        assert matches(text, query), query
    whole = sought("INC-2024-00017")
    assert len(whole.terms) > 3, "the whole beside its parts"
    assert not matches(text, "INC-2024-00018") or sought("INC-2024-00018").terms[0] not in analyze([text]).terms


def test_phrases_are_taken_from_any_quotation_marks_and_only_from_pairs() -> None:
    for query in ('"red barn"', "“red barn”", "«red barn»", "„red barn“"):
        assert matches("the red barn", query), query
        assert not matches("the barn is red", query), query
    assert matches("the barn is red", 'where is the "red barn"'), "in a question it only counts more"
    assert len(sought('where is the "red barn"').phrases) == 1
    assert sought('red "barn').phrases == []
    assert sought('""" " """').nothing
    assert len(sought('"a b" ' * 50).phrases) == MAX_PHRASES


def test_bounds_are_kept_and_said() -> None:
    held = analyze(["word " * (MAX_TOKENS + 1)])
    assert (held.truncated, held.length) == (True, MAX_TOKENS)
    assert not analyze(["word " * MAX_TOKENS]).truncated
    assert sought("x " * MAX_QUERY_CHARS).clamped
    many = sought(" ".join(f"w{n}" for n in range(MAX_QUERY_WORDS * 2)))
    assert many.clamped
    assert len(set(many.words)) == MAX_QUERY_WORDS
    assert not sought("when does the depot open").clamped


def test_the_texts_of_a_content_come_in_its_order_without_names() -> None:
    assert texts_of(b'{"b": ["one", {"a": "two"}], "a": 7, "c": null, "d": "three"}') == ["one", "two", "three"]
    assert texts_of(b'"alone"') == ["alone"]
    assert texts_of(b"17") == []
