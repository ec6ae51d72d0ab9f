from itertools import chain

import pytest

from seqserve_server.contract.options import SegmentationMode
from seqserve_server.text.splitting import Segmentation, TextJoiner, split


def joined(source: str, *texts: str, language: str = "en") -> str:
    joint = TextJoiner(source)
    spans = chain.from_iterable(split(source, Segmentation(SegmentationMode.SENTENCES, language)))
    pieces = [joint.add(span, text) for span, text in zip(spans, texts, strict=True)]
    text = "".join(pieces)
    assert joint.length == len(text)
    return text + joint.rest()


def test_white_space_comes_back() -> None:
    assert joined("\n  a.\r\n\r\n\tb.  \n", "x", "yy") == "\n  x\r\n\r\n\tyy  \n"


def test_a_space_is_added_where_the_script_of_the_source_has_none() -> None:
    assert joined("今日は。行こう！", "Hello.", "Let's go!", language="ja") == "Hello. Let's go!"


def test_none_is_added_between_answers_in_such_a_script() -> None:
    assert joined("今日は。行こう！", "你好。", "走吧！", language="ja") == "你好。走吧！"


def test_none_is_added_where_the_script_has_spaces() -> None:
    assert joined("Hello world.This too.", "Hallo.", "Dies.") == "Hallo.Dies."


@pytest.mark.parametrize("empty", [("", "b"), ("a", ""), ("", "")])
def test_an_empty_answer_gets_no_space(empty: tuple[str, str]) -> None:
    assert joined("今日は。行こう！", *empty, language="ja") == "".join(empty)
