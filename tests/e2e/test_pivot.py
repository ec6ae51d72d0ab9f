"""Languages in place of a model: the way back, and pairs for which two models answer."""

import pytest
from tests.support.process import ServerProcess

from seqserve import Client
from seqserve.command.main import main
from seqserve.errors import InvalidArgument

LANGUAGES = {"source_language": "ko", "target_language": "de"}
SENTENCES = ["커피가 맛이 좋네요.", "난 최선을 다할 거야.", "나는 의사가 아니다."]
SENTENCES += ["이 책은 아주 재미있다.", "톰은 어디에 살아?", "창문을 열어 주세요."]


def test_what_was_translated_is_read_back(translator: Client) -> None:
    sentences = ["The coffee tastes good.", "Where is the station?", "The house is old."]
    for sentence in sentences:
        there = translator.generate(sentence, source_language="en", target_language="de")
        back = translator.generate(there.text, source_language="auto", target_language="en")
        assert (there.model, back.model) == ("en-de", "de-en")
        assert back.detected_language and back.detected_language.language == "de"
        assert back.text == sentence


def test_german_reaches_korean_through_english(translator: Client) -> None:
    answer = translator.generate("Ich bin Arzt.", source_language="de", target_language="ko")
    assert [leg.model for leg in answer.legs] == ["de-en", "en-ko"]
    assert answer.legs[0].text.endswith(" a doctor.") and "의사" in answer.text


@pytest.mark.parametrize("options", [{}, {"beam_size": 1}, {"beam_size": 3}])
def test_a_pivot_gives_the_tokens_of_two_calls(translator: Client, options: dict[str, int]) -> None:
    for sentence in SENTENCES:
        between = translator.generate(sentence, model="ko-en", **options)
        by_hand = translator.generate(between.text, model="en-de", **options)
        answer = translator.generate(sentence, **LANGUAGES, **options)
        assert answer.hypotheses[0].token_ids == by_hand.hypotheses[0].token_ids
        assert answer.text == by_hand.text
        assert [leg.text for leg in answer.legs] == [between.text, ""]


def test_a_text_is_answered_and_streamed_as_its_sentences(translator: Client) -> None:
    answers = [translator.generate(sentence, **LANGUAGES).text for sentence in SENTENCES[1:]]
    text = " ".join(SENTENCES[1:])
    assert translator.generate(text, **LANGUAGES).text == " ".join(answers)
    pieces = [piece.text for piece in translator.stream(text, **LANGUAGES)]
    assert "".join(pieces) == " ".join(answers)


def test_the_alignment_leads_from_the_german_words_to_the_korean_ones(translator: Client) -> None:
    source = "커피가 맛이 좋네요."
    answer = translator.generate(source, return_alignment=True, **LANGUAGES)
    words = {
        answer.text[each.target_begin : each.target_end]: source[
            each.source_begin : each.source_end
        ]
        for each in answer.hypotheses[0].alignment
    }
    assert words["Kaffee"] in "커피가"


def test_the_command_prints_pairs_and_the_models_of_an_answer(
    shipped: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "--pairs", "--target", shipped.target]) == 0
    assert "ko    de  ko-en → en-de" in capsys.readouterr().out.splitlines()
    arguments = ["--source-language", "auto", "--target-language", "de", "--verbose"]
    assert main(["generate", *arguments, "--target", shipped.target, "커피가 맛이 좋네요."]) == 0
    printed = capsys.readouterr()
    assert printed.out == "Der Kaffee schmeckt gut.\n"
    assert "ko (1.00), ko-en/3 → en-de/5" in printed.err


def test_languages_are_detected_in_every_kind_of_call(translator: Client) -> None:
    korean, english = "나는 의사가 아니다.", "I am not a doctor."
    for source, language in ((korean, "ko"), (english, "en")):
        auto = {"source_language": "auto", "target_language": "de"}
        results = [
            translator.generate(source, **auto),
            *translator.generate_batch([source], **auto),
        ]
        results += [outcome for _, outcome in translator.generate_bulk([source], **auto)]
        results += [piece.result for piece in translator.stream(source, **auto) if piece.result]
        assert [result.detected_language.language for result in results] == [language] * 4
        assert {result.text for result in results} == {"Ich bin kein Arzt."}
        assert translator.detect_language(source)[0].language == language
    with pytest.raises(InvalidArgument, match="probably in 'de' already") as refused:
        translator.generate("Ich bin kein Arzt.", **auto)
    assert refused.value.field == "options.source_language"
