import gc
import json
import time
from collections.abc import Callable

import pytest

from seqserve.documents.formats import Format

from .marking import CUE, passages_of
from .test_office import docx_document

SIZES = (4_000, 16_000)
PATIENCE_S = 0.5
"""Of the processor: a shorter time says little of growth, and quadratic time is more here."""
PLACES = {
    Format.MARKDOWN: ["{}", "> {}", "| {} |\n|-|\n", "    {}"],
    Format.JSON: ['{{"k": "{}"}}'],
    Format.STRINGS: ['"k" = "{}";'],
    Format.PROPERTIES: ["k={}", "{}"],
    Format.PO: ['msgid "{}"\nmsgstr ""\n'],
    Format.CSV: ['text\n"{}"\n'],
    Format.SRT: [CUE + "{}\n"],
    Format.HTML: ["<p>{}"],
    Format.TEXT: ["{}"],
}
UNITS = [
    *("0", "<!--", "[", "![", "](", "[a](", "*a ", "**a_"),
    *("_*", "{{", "{%", "{", "$", "<A b", "[[a|", "&#"),
    *("<A\n", "<a b={", "<a b={{", "{% code %}\n", "[a]({{", "[a](b{{", "![a]({%", "[a]({{b}}"),
    *("\\", "{0,choice,", "{0,choice,0#|", "http://a(", "a@", ":a", "++a", "<?", "%(", "%1"),
    *("$t(", "'{", "''{", "{a,plural,", "<b>x", "</b>x", "> ", "- "),
    *("``a`", "<a b='", "<code>", "<kbd>x</b>", "[^a", "!!! a\n", "::: a\n", "=== a\n    "),
    *("[a]: b\n", "a  \n", "  ", "\n", "a|", "*[a]:", "<p>\n\n", "{#"),
    *("\\N", '"', "<a title=a", "<a title='b'>", "<b title='c'>d</b> › "),
    *("<a lang=e ", "<a>f</a> "),
]
WRITTEN: dict[Format, Callable[[str], str]] = {
    Format.JSON: lambda text: json.dumps(text)[1:-1],
    Format.STRINGS: lambda text: json.dumps(text)[1:-1],
    Format.PO: lambda text: json.dumps(text)[1:-1],
    Format.CSV: lambda text: text.replace('"', '""'),
}


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["a %{}", *UNITS])
@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.value)
def test_four_times_the_text_takes_four_times_as_long(kind: Format, unit: str) -> None:
    for place in PLACES[kind]:
        texts = (
            "a %" + "0" * size if unit == "a %{}" else unit * (size // len(unit)) for size in SIZES
        )
        short, long = (place.format(WRITTEN.get(kind, str)(text)) for text in texts)
        # Whatever else the machine does, one of three times is its own.
        assert any(is_linear(kind, short, long) for _ in range(3)), place


def is_linear(kind: Format, short: str, long: str) -> bool:
    used_s = cpu_of(kind, long)
    return used_s < PATIENCE_S or used_s < 9 * cpu_of(kind, short)


def cpu_of(kind: Format, document: str) -> float:
    # A collection of all that the tests have left takes longer than a document.
    gc.disable()
    begin = time.thread_time()
    passages_of(kind, document)
    used_s = time.thread_time() - begin
    gc.enable()
    return used_s


@pytest.mark.slow
def test_styles_of_office_documents_are_found_in_one_pass() -> None:
    form = f'<w:pPr w:x="{"pStyle " * 20_000}"/>'
    assert cpu_of(Format.DOCX, docx_document(f"<w:p>{form}</w:p>")) < 4 * PATIENCE_S


@pytest.mark.slow
def test_runs_of_backticks_that_grow_are_read_in_one_pass() -> None:
    document = " ".join("`" * length for length in range(1, 500))
    passages_of(Format.MARKDOWN, document)
