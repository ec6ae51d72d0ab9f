from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import asked, part, refusal

from seqserve_server.features.protected import protected
from seqserve_server.front.generate.records import without
from seqserve_server.text.protected import text_read
from seqserve_server.text.splitting import Span
from seqserve_server.text.tokenizer import Tokenizer


def kept(text: str, *keep: str, keep_placeholders: bool = True) -> list[str]:
    return [text[slice(*span)] for span in spans(text, *keep, keep_placeholders=keep_placeholders)]


def spans(text: str, *keep: str, keep_placeholders: bool = True) -> Sequence[Span]:
    feature = protected(asked(keep=keep, keep_placeholders=keep_placeholders))
    assert feature
    return feature.read(part(text)).protected


@pytest.mark.parametrize(
    "placeholder",
    [
        *("%s", "%1$d", "%(name)s", "%.2f", "%@"),
        *("{name}", "{0}", "{}", "{{count}}", "{{{user.name}}}"),
        *("${total}", "#{user}", "$HOME", "$t(key)", "%USER%", "[NAME]", "__NAME__", "&nbsp;"),
        *("<b>", "</b>", "<br/>", "<<name>>", '<x id="1"/>', '<a href="https://a.example/">'),
        *(
            "https://a.example/b?c=d&e=f#g",
            "www.a.example",
            "shop.example.com/a",
            "a.b+c@d.example",
        ),
        *("1.2.3", "v2.0", "0.85.x", "3.1.0-rc1", "192.168.0.1", "192.168.100.200"),
        *("/usr/local/bin", "~/notes/a.md", "./run.sh"),
        *("C:\\Users\\a.txt", "README.md", "a-b_c.tar.gz"),
        *("--force", "MAX_SIZE", "sort_by()", "print()", "`git pull -r`"),
        *("KX7-4492", "MP3", "COVID-19", "A4"),
        *("2024-03-14T10:00:00Z", "2024-03-14T10:00+01:00", "123e4567-e89b-12d3-a456-426614174000"),
        *("©", "¼", "÷", "cm³", "µm", "en-US"),
        *("#winter", "@maria_92", "🙂", "👩🏽‍🚀", "❤️", "1️⃣", "🇩🇪"),
    ],
)
def test_placeholders(placeholder: str) -> None:
    assert "".join(kept(f"Take {placeholder} home, please.")) == placeholder


@pytest.mark.parametrize(
    "placeholder", ["https://a.example", "a@b.example", "a.com", "b.pdf", "v2.0", "a.com/말/b"]
)
def test_a_particle_does_not_belong_to_what_it_follows(placeholder: str) -> None:
    assert kept(f"{placeholder}에서 봐요") == [placeholder]
    assert kept(f"打开{placeholder}文件") == [placeholder]
    assert kept(f"오늘 {placeholder}를", placeholder, keep_placeholders=False) == [placeholder]
    assert kept(f"打开{placeholder}文件", placeholder, keep_placeholders=False) == [placeholder]


@pytest.mark.parametrize(
    "placeholder",
    [
        *("2024_보고서.pdf", "보고서_2024.txt", "README파일.md", "K팝_list.csv", "#K팝"),
        *("__NAME__", "C:\\문서a\\b.txt", "/home/사용자a/파일", "https://a.example/서울_지하철"),
    ],
)
def test_a_name_with_letters_of_several_scripts_is_whole(placeholder: str) -> None:
    assert kept(f"오늘 {placeholder} 봐요") == [placeholder]


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5.99, or 3.50 a day: 10% less.",
        "At 3:30 p.m. he weighed 1,250.75 kg and/or more...",
        "1.250.000 Leute zahlten 12.345.678,90 € oder 2.000.000.000 Won, also 3.000.000.",
        "Am 3.5.2024 und am 12.03.1985. 100%ige Töchter, 70%haltig, 50%-off, 20%off.",
        "Dr. Smith (M.D.) isn't here; e.g. on 1/2 days.",
        "He said: no.Then he left. Rock'n'roll, #1, C & A!",
        "“Why?” – << he >> asked [twice] at -5 °C.",
    ],
)
def test_what_people_write_is_no_placeholder(text: str) -> None:
    assert kept(text) == []


def test_a_word_in_tags_is_read_as_after_a_space() -> None:
    tokenizer = Tokenizer.load(Path("models/en-de/2/tokenizer.json"))
    feature = protected(asked(model=echo_model(manifest(), tokenizer), keep_placeholders=True))
    assert feature
    read = feature.read(part('I <b class="a">love</b> it.<br>Press <kbd>C</kbd> or <x/>{b}.'))
    assert read.text == f"I {'':13}love{'':4} it.<br>Press <kbd>C</kbd> or <x/>{{b}}."
    assert len(read.protected) == 7
    for text, plain in [
        ("Call f(<b>x</b>), <i>Tom</i>.", "Call f(x), Tom."),
        ("<li>Milk</li><li>Bread</li>", "Milk Bread"),
        ("<br><b><i>Tom</i></b>, <i>I</i>", "<br>Tom, I"),
    ]:
        read = feature.read(part(text))
        assert tokenizer.encode(read.text) == tokenizer.encode(plain)
        tags = {text_read(text, read.text, span) for span in read.protected}
        assert tags <= {"", "<br>"}


def test_texts_of_the_caller_are_whole_words_and_the_longest() -> None:
    text = "Ray, Ray Ban and Rays by c++"
    assert kept(text, "Ray", "Ray Ban", "c++", keep_placeholders=False) == ["Ray", "Ray Ban", "c++"]


@pytest.mark.parametrize("keep", ["", "  ", "a" * 257])
def test_texts_refused(keep: str) -> None:
    assert refusal(kept, "a", keep).field == "options.keep"


def test_the_text_without_its_kept_spans() -> None:
    text = "{a}: {b}!"
    assert without(text, spans(text)) == " :  !"
    assert without(text, []) == text
