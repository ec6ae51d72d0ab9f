import pytest

from seqserve.errors import OptionError
from seqserve_export.artifact import declared
from seqserve_server.artifact.records import Template

OPUS = Template(source_prefix=["{target}"], target_languages={"fra": "F", "por": "P"})


def test_a_model_of_one_pair_declares_it() -> None:
    expected = Template(source_languages={"en": ""}, target_languages={"pt-BR": ""})
    assert declared(None, "en", "pt-BR") == expected


def test_a_model_of_unknown_languages_declares_none() -> None:
    assert declared(None, "", "") is None
    assert declared(OPUS, "", "") == OPUS


def test_a_side_without_languages_gets_one_beside_those_of_the_other_side() -> None:
    template = declared(OPUS, "en", "fr")
    assert template is not None
    assert template.source_languages == {"en": ""}
    assert template.target_languages == OPUS.target_languages


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("auto", "de", "--source-language: 'auto' is not a code"),
        ("en", "d/e", "--target-language: 'd/e' is not a code"),
        ("en", "de", "--target-language: de is not one of the model's: fra, por"),
    ],
)
def test_what_is_no_language_of_the_model_is_refused(
    source: str, target: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        declared(OPUS, source, target)
