from collections.abc import Callable

import pytest

from seqserve.words import MAX_ENTRIES
from seqserve_server.text.glossary import GlossaryError, Label
from seqserve_server.text.glossary_formats import tbx_entries, tsv_entries

SECOND = """<?xml version="1.0"?>
<!DOCTYPE martif SYSTEM "TBXBasiccoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en"><martifHeader><fileDesc><sourceDesc><p>term</p></sourceDesc>
</fileDesc></martifHeader><text><body>
<termEntry id="c1"><descrip type="definition">A drink &amp; more</descrip>
  <langSet xml:lang="en-US"><tig><term>iced <hi>tea</hi>
    drink</term><termNote type="partOfSpeech">noun</termNote></tig>
    <ntig><termGrp><term>ice tea</term></termGrp></ntig></langSet>
  <langSet xml:lang="fr"><tig><term>thé</term></tig></langSet>
  <langSet xml:lang="de">
    <tig><term>Kalttee</term>
      <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig>
    <tig><term>Eistee</term></tig></langSet></termEntry>
<termEntry id="c2"><langSet xml:lang="en"><tig><term>cake</term></tig></langSet></termEntry>
</body></text></martif>"""

THIRD = """<?xml version="1.0" encoding="UTF-8"?>
<tbx type="TBX-Basic" style="dct" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2"
  xmlns:min="http://www.tbxinfo.net/ns/min" xmlns:basic="http://www.tbxinfo.net/ns/basic">
<tbxHeader/><text><body>
<conceptEntry id="1"><langSec xml:lang="de">
    <termSec><term>Blätterteig</term></termSec>
    <termSec><term>Plunder</term>
      <min:administrativeStatus>preferredTerm-admn-sts</min:administrativeStatus></termSec>
  </langSec><langSec xml:lang="en"><termSec><term>R&amp;D pastry</term></termSec></langSec>
</conceptEntry>
<conceptEntry id="2"><langSec xml:lang="en"><termSec><term>R&amp;D pastry</term></termSec></langSec>
  <langSec xml:lang="de"><termSec><term>Gebäck</term></termSec></langSec></conceptEntry>
</body></text></tbx>"""


def read(text: str, source: str = "en", target: str = "de") -> list[tuple[str, str]]:
    entries = tbx_entries(text.encode(), Label("a", source, target))
    return [(entry.source, entry.target) for entry in entries]


def test_second_edition() -> None:
    assert read(SECOND) == [("iced tea drink", "Eistee"), ("ice tea", "Eistee")]
    assert read(SECOND, "de", "fr") == [("Kalttee", "thé"), ("Eistee", "thé")]


def test_third_edition() -> None:
    assert read(THIRD) == [("R&D pastry", "Plunder")]
    assert read(THIRD, "de", "en")[0] == ("Blätterteig", "R&D pastry")


def test_languages_that_it_lacks_give_no_entries() -> None:
    assert read(THIRD, "ko", "de") == []


BOMB = """<!DOCTYPE tbx [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<tbx><text>&b;</text></tbx>"""
FILE = """<!DOCTYPE tbx [<!ENTITY f SYSTEM "file:///etc/passwd">]><tbx>&f;</tbx>"""
SKIPPED = """<!DOCTYPE tbx SYSTEM "a.dtd"><tbx>&nbsp;</tbx>"""
PARAMETER = """<!DOCTYPE tbx [<!ENTITY % p SYSTEM "http://127.0.0.1/a.dtd"> %p;]><tbx/>"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "line 1: has the entity 'a'"),
        (FILE, "has the entity 'f'"),
        (SKIPPED, "has the entity 'nbsp'"),
        (PARAMETER, "has the entity 'p'"),
        ("<tbx><text></tbx>", "line 1: is not well-formed XML: mismatched tag"),
        ("tea\tTee", "is not well-formed XML"),
        ("<html/>", "has the root 'html'"),
        ('<?xml version="1.0" encoding="made-up"?><tbx/>', "an encoding that is not read: unknown"),
        (
            '<?xml version="1.0" encoding="utf-7"?><tbx/>',
            "an encoding that is not read: multi-byte",
        ),
        ("<tbx>" + "<a>" * 99, "within 64 others"),
        (SECOND.replace("Eistee", "E" * 300), "has an entry whose target has 300 characters"),
    ],
)
def test_what_is_no_tbx_or_hostile_is_refused(text: str, reason: str) -> None:
    with pytest.raises(GlossaryError, match=reason):
        read(text)


def test_a_part_within_a_term_is_read_as_another_term() -> None:
    concept = "<conceptEntry>{}</conceptEntry>".format(
        '<langSec xml:lang="en"><term>tea<termSec>with <term>milk</term></termSec></term></langSec>'
        '<langSec xml:lang="de"><termSec><term>Milch</term></termSec></langSec>'
    )
    assert read(f"<tbx>{concept}</tbx>") == [("milk", "Milch")]


def tsv(text: str) -> list[tuple[str, str]]:
    return [(entry.source, entry.target) for entry in tsv_entries(text.encode())]


def test_lines_are_entries() -> None:
    text = "\ufeff# products\n\ntea\tTee\r\n hot cake \t Kuchen\ntea\tTee\n #tag\t#Etikett"
    assert tsv(text) == [("tea", "Tee"), ("hot cake", "Kuchen"), ("#tag", "#Etikett")]
    assert tsv("") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tea\tTee\ncake", "line 2: has 1 columns"),
        ("a\tb\tc", "line 1: has 3 columns"),
        ("tea\t ", "line 1: its target is empty"),
        ("\tTee", "line 1: its source is empty"),
        ("a\tb\na\tc", "line 2: 'a' has another target"),
        ("a\t" + "b" * 257, "line 1: its target has 257 characters"),
    ],
)
def test_what_is_no_entry_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(GlossaryError, match=reason):
        tsv(text)


def test_other_encodings_are_refused() -> None:
    with pytest.raises(GlossaryError, match="line 2: is not UTF-8"):
        tsv_entries("a\tb\nc\tä".encode("latin-1"))


ENTRY = "<termEntry>{}</termEntry>"
ENGLISH = '<langSet xml:lang="en"><tig><term>{}</term></tig></langSet>'
GERMAN = '<langSet xml:lang="de"><tig><term>Tee</term></tig></langSet>'


def broken_tbx(entries: str) -> object:
    return read(f"<martif>{entries}<broken")


@pytest.mark.parametrize(
    ("entries", "entry"),
    [
        pytest.param(lambda lines: tsv(f"{lines}no tab"), "w{}\ta\n", id="tsv"),
        pytest.param(broken_tbx, ENTRY.format(ENGLISH + GERMAN), id="concepts"),
        pytest.param(broken_tbx, ENGLISH, id="terms of a concept"),
    ],
)
def test_no_more_is_read_than_a_glossary_may_have(
    entries: Callable[[str], object], entry: str
) -> None:
    """What comes after the entry that is one too many would be refused for its own sake."""
    many = "".join(map(entry.format, range(MAX_ENTRIES + 1)))
    with pytest.raises(GlossaryError, match=r"one entry too many; a glossary has 1 to 10,000"):
        entries(many)
