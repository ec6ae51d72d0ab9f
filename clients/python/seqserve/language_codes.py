"""Codes of languages, which have several forms: ``en``, ``eng``, ``en-US``, ``eng_Latn``.

A code is folded by rule, without a library: subtags are divided by ``-`` or ``_``, and case does
not count (BCP 47, RFC 5646, section 2.1). A language has its two-letter code of ISO 639-1 if it has
one. A subtag of four letters is the script. A region is left out, except for Chinese, where it
determines the script.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

AUTO = "auto"
"""Stands for the language that the server detects."""
_MAX_CHARACTERS = 35
"""Maximum length of a code; RFC 5646, section 4.4.1."""


class Language(NamedTuple):
    """A language, whatever form its code has."""

    name: str
    """Code of ISO 639, in two letters if it has a short form."""
    script: str
    """Code of ISO 15924, such as ``Hans``; empty if the language code has none."""

    def may_be(self, other: Language) -> bool:
        """Returns whether two codes may mean one language: their scripts do not contradict."""
        is_same_script = self.script == other.script or not (self.script and other.script)
        return self.name == other.name and is_same_script


def folded(code: str) -> Language:
    """Folds a code; one that is too long to be a code stays as it is."""
    # Not kept: a client may send as long a text as a message.
    return _folded(code) if len(code) <= _MAX_CHARACTERS else Language(code, "")


@lru_cache(1 << 12)
def _folded(code: str) -> Language:
    name, *rest = re.split("[-_]", code)
    name = name.lower()
    name = _ISO_639_1.get(name, name)
    script = next((subtag.title() for subtag in rest if len(subtag) == 4), "")
    if name == "zh" and not script:
        regions = (_CHINESE.get(subtag.upper(), "") for subtag in rest)
        script = next(filter(None, regions), "")
    return Language(name, script)


def code_among(code: str, known: Collection[str], aliases: Mapping[str, str]) -> str | None:
    """Finds the code that means the same language.

    The code itself comes first, then the one that it is an alias of. Then come codes of the same
    language and script, those without a region first, then those that may be the same.

    Returns:
        One of the known codes; None if none of them means this language, or several do.
    """
    if code in known:
        return code
    if aliases.get(code) in known:
        return aliases[code]
    wanted = folded(code)
    similar = [other for other in known if wanted.may_be(folded(other))]
    equal = [other for other in similar if folded(other) == wanted]
    plain = [other for other in equal if other.isalpha()]
    for codes in (plain, equal, similar):
        if len(codes) == 1:
            return codes[0]
    return None


_CHINESE = {"CN": "Hans", "SG": "Hans", "TW": "Hant", "HK": "Hant", "MO": "Hant"}

# Three letters of ISO 639-2 or 639-3, then the two of ISO 639-1. Where 639-3 divides a language,
# the form that models mean by its name is here too: arb, pes, zsm.
_CODES = """
aaraa abkab afraf akaak albsq alssq amham araar arbar argan armhy asmas avaav aveae aymay azeaz
azjaz bakba bambm baqeu belbe benbn bisbi bodbo bosbs brebr bulbg burmy catca cescs chach chece
chizh chucu chvcv cmnzh corkw cosco crecr cymcy czecs danda deude divdv dutnl dzodz ellel engen
epoeo estet euseu eweee faofo fasfa fijfj finfi frafr frefr fryfy fulff gazom geoka gerde glagd
glega glggl glvgv greel grngn gujgu hatht hauha hebhe herhz hinhi hmoho hrvhr hunhu hyehy iboig
iceis idoio iiiii ikuiu ileie inaia indid ipkik islis itait javjv jpnja kalkl kankn kasks katka
kaukr kazkk khkmn khmkm kikki kinrw kirky kmrku komkv konkg korko kuakj kurku laolo latla lavlv
limli linln litlt ltzlb lublu luglg lvslv macmk mahmh malml maomi marmr mayms mkdmk mlgmg mltmt
monmn mrimi msams myamy nauna navnv nblnr ndend ndong nepne nldnl nnonn nobnb norno npine nyany
ocioc ojioj orior ormom oryor ossos panpa pbtps perfa pesfa plipi pltmg polpl porpt pusps quequ
rohrm ronro rumro runrn rusru sagsg sansa sinsi slksk slosk slvsl smese smosm snasn sndsd somso
sotst spaes sqisq srdsc srpsr sswss sunsu swasw swesv swhsw tahty tamta tattt telte tgktg tgltl
thath tibbo tirti tonto tsntn tsots tuktk turtr twitw uigug ukruk urdur uzbuz uznuz venve vievi
volvo welcy wlnwa wolwo xhoxh yddyi yidyi yoryo zhaza zhozh zsmms zulzu
"""
_ISO_639_1 = {code[:3]: code[3:] for code in re.findall(r"\w+", _CODES)}
