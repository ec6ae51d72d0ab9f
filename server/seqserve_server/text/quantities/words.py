"""Numbers and months in words, of the languages whose words are known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from decimal import Decimal
from functools import cache
from typing import NamedTuple

# Patterns of the words for 0 to 19, 20 to 90, 100, a thousand, a million, 10^9, 10^12, a half and a
# quarter; then what joins them. A word may go on after them: in ordinals, cases and compounds.
_NUMERALS = {
    "en": "zero (?:one|once|single)\\b|first two|twice|second|both|couple|pair|double"
    " three|thrice|third|triple four|quart five|fifth six seven eight|eighth nine|ninth"
    " ten(?:ths?)?\\b eleven twelve|twelfth|dozen|noon|midday|midnight thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twent(?:y|ie) thirt(?:y|ie) fort(?:y|ie) fift(?:y|ie)"
    " sixt(?:y|ie) sevent(?:y|ie) eight(?:y|ie) ninet(?:y|ie) hundred thousand million billion"
    " trillion half|halves quarter and",
    "de": "null|kein ein(?:e[nmrs]?|s)?\\b|einmal|erst|einzig|einzeln|ein(?=und|hundert|tausend)"
    " zwei|zwo|beid|doppel|paar drei|dritt vier fünf sechs sieben|siebt acht neun zehn elf"
    " zwölf|dutzend|mittag|mitternacht dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
    " zwanzig dreißig|dreissig vierzig fünfzig sechzig siebzig achtzig neunzig hundert tausend"
    " million|mio\\b milliarde|mrd\\b billion halb|hälfte|einhalb viertel|dreiviertel und",
    "fr": "zéro un|une|premi deux|double|second trois|triple quatr cinq six sept\\b|septième huit"
    " neuf|neuv dix|dizain onze douz|midi|minuit treiz quatorz quinz seiz dix-sept dix-huit dix-neuf"
    " vingt trent quarant cinquant soixant septant quatre-vingt|huitant|octant nonant cents?\\b|centain|centième milles?\\b|mil\\b"
    " million milliard billion demi|moitié quart et",
    "es": "cero un[oa]?\\b|primer d[oó]s|segund|doble tr[eé]s|tercer cuatro cinco|quint|quin(?=ient)"
    " s[eé]is|sext siete|séptim|sete(?=cient) ocho|octav nueve|noven[oa]|nove(?=cient) diez|décim once\\b"
    " doce|mediodía|medianoche trece catorce quince diecis[ée]is diecisiete dieciocho diecinueve veint"
    " treinta cuarenta cincuenta sesenta setenta ochenta noventa cien|ient(?=[oa]s) mil\\b"
    " mill[oó]n millardo bill[oó]n medi[oa]|mitad cuart y",
    "pt": "zero uma?\\b|primeir dois|duas|segund|dobro|du(?=zent) tr[êe]s|terceir|tre(?=zent)"
    " quatro cinco|quint|quin(?=hent) seis|sext sete\\b|sétim|sete(?=cent) oito|oitav nove\\b|non[oa]\\b"
    "|nove(?=cent) dez\\b|décim|dezena onze doze|dúzia|meio-dia|meia-noite treze [cq]u?atorze quinze"
    " dez[ea]sseis dez[ea]ssete dezoito dez[ea]nove vinte trinta quarenta cinquenta sessenta setenta"
    " oitenta noventa cem\\b|cent|zent|hent mil\\b milh[ãõ] bilh[ãõ] trilh[ãõ] mei[oa]|metade quart e",
    "it": "zero un[oa']?\\b|prim[oaie]\\b|uno due|second|doppi tre(?!n)|terz quattro cinque|quint sei|sest"
    " sette|settim otto|ottav nove|non[oa]\\b dieci|decin|decim undici dodic|dozzin|mezzogiorno"
    "|mezzanotte tredic quattordic quindic sedic diciassett diciott diciannov vent trent quarant"
    " cinquant sessant settant ottant novant cent mill?e\\b|mila\\b|mille milion miliard bilion"
    " mezz|metà quart e",
    "nl": "nul e[eé]n\\b|één|eerst|enkel|een(?=en|honderd) twee|dubbel|beide drie|derde vier vijf zes"
    " zeven acht negen tien elf twaalf|dozijn|middag|middernacht dertien veertien vijftien zestien"
    " zeventien achttien negentien twintig dertig veertig vijftig zestig zeventig tachtig negentig"
    " honderd duizend miljoen miljard biljoen half|helft|halve kwart en",
    "pl": "zer jed[ne]|pierwsz|raz dw[aóieu]|drug|podwój|oba|obie trz[eyi]|trzec cztere|cztery|czwart"
    " pię[ćc]|piąt sześ[ćc]|szóst siedem|siedmi|siódm osiem|ośmi|ósm dziewię[ćc]|dziewiąt"
    " dziesię[ćc]|dziesiąt jedenaś|jedenast dwanaś|dwunast|tuzin|południ|północ trzynaś|trzynast"
    " czternaś|czternast piętnaś|piętnast szesnaś|szesnast siedemnaś|siedemnast osiemnaś|osiemnast"
    " dziewiętnaś|dziewiętnast dwadzieś|dwudziest trzydzie czterdzie pięćdziesi sześćdziesi siedemdziesi"
    " osiemdziesi dziewięćdziesi st[ou]\\b|setn|set\\b|ście\\b|sta\\b tysi milion miliard bilion"
    " pół|połow kwadrans|ćwier i",
}
_VALUES = [
    *map(Decimal, (*range(20), *range(20, 100, 10), 100, 10**3, 10**6, 10**9, 10**12)),
    *(Decimal("0.5"), Decimal("0.25")),
]

# As a date has them, then other forms.
_MONTHS = {
    "en": "january february march april may june july august september october november december",
    "de": "januar|jänner februar märz april mai juni juli august september oktober november dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre"
    " dicembre",
    "nl": "januari februari maart|mrt april mei juni juli augustus september oktober november december",
    "pl": "stycznia|styczeń lutego|luty marca|marzec kwietnia|kwiecień maja czerwca|czerwiec"
    " lipca|lipiec sierpnia|sierpień września|wrzesień października|październik listopada|listopad"
    " grudnia|grudzień",
}
# How a date is written: with the day, then with the year too.
_DATES = {
    **dict.fromkeys(["en", "fr", "it", "nl", "pl"], ("{day} {month}", " {year}")),
    **dict.fromkeys(["es", "pt"], ("{day} de {month}", " de {year}")),
    "de": ("{day}. {month}", " {year}"),
}
# Their names of months begin with a capital.
_CAPITALS = ("en", "de")
_ALTERNATIVES = re.compile(r"\|(?![^(]*\))")


class _Numerals(NamedTuple):
    pattern: re.Pattern[str]
    """One group for each word."""
    values: list[Decimal]
    """What the groups stand for."""
    join: str
    """The word that may be between them."""


def is_known(language: str) -> bool:
    """Tells whether the words of a language, a code of ISO 639, are known."""
    return language in _NUMERALS


@cache
def months(language: str) -> re.Pattern[str]:
    """Returns the names of the months, one group for each; it reads small letters.

    An abbreviation has three letters or four.
    """
    groups = []
    for names in _MONTHS[language].split():
        forms = (f"{name[:3]}(?:{name[3:4]}|{name[3:]})?" for name in names.split("|"))
        groups.append(f"({'|'.join(forms)})")
    return re.compile(rf"(?<!\w)(?:{'|'.join(groups)})(?!\w)")


def date(language: str, day: str, month: int, year: str) -> str:
    """Writes a date; the year may be empty."""
    name = _MONTHS[language].split()[month - 1].partition("|")[0]
    name = name.title() if language in _CAPITALS else name
    form, end = _DATES[language]
    return (form + (end if year else "")).format(day=day, month=name, year=year)


def numbers_in(text: str, language: str) -> Iterator[Decimal]:
    """Yields the numbers that a text has in words: two hundred, zweiundzwanzig, quatre-vingt-dix.

    Where it has "and" between two of them, it may mean their sum or both.
    """
    pattern, values, join = _numerals(language)
    text = text.lower()
    found = [(*match.span(), values[match.lastindex or 0]) for match in pattern.finditer(text)]
    near = {"", "-", " ", "i", join, f" {join}-", f"-{join}-", f"{join} "}
    for joins in (near, {*near, f" {join} ", f" {join} a "}):
        whole = part = Decimal(0)
        last = -1
        for begin, end, value in found:
            gap = text[last:begin]
            if not (last >= 0 and len(gap) <= _LONGEST_JOIN and _goes_on(part, value, gap, joins)):
                if last >= 0:
                    yield whole + part
                    last = -1
                if text[begin - 1 : begin].isalpha():
                    continue
                whole = part = Decimal(0)
            elif " " in gap:
                yield whole + part
            last = end
            if value < 100:
                part += value
            elif value == 100:
                part = 100 * (part or 1)
            else:
                whole, part = whole + value * (part or 1), Decimal(0)
        if last >= 0:
            yield whole + part


def scale_at(text: str, language: str) -> Decimal:
    """Returns the value of a word that multiplies the number before it, such as million; or 1."""
    if value := _SCALES.get(text[:1]):
        return Decimal(value)
    if not is_known(language):
        return Decimal(1)
    pattern, values, _ = _numerals(language)
    match = pattern.match(text.lower())
    value = values[match.lastindex or 0] if match else Decimal(1)
    return value if value >= 1000 else Decimal(1)


_SCALES = {
    **dict.fromkeys("千천", 1000),
    **dict.fromkeys("万萬만", 10**4),
    **dict.fromkeys("億亿억", 10**8),
}
_LONGEST_JOIN = 12
_LETTERS = "abcdefghijklmnopqrstuvwxyzäöüßéèąćęłńóśźżãñç"


def _goes_on(part: Decimal, value: Decimal, gap: str, joins: Collection[str]) -> bool:
    """Tells whether a value goes on with the number before it."""
    gap = gap.lstrip(_LETTERS) or gap
    if gap not in joins:
        return False
    if value >= 100:
        return part < value
    if value < 1:
        return gap != " "
    rest = part % 100
    if value < 10:
        return not rest % 10 and not 0 < rest < 20
    # "soixante-dix", "fünfundzwanzig"
    return not rest or (rest in (60, 80) and value < 20) or (rest < 10 and gap in _BEFORE_TENS)


_BEFORE_TENS = ("und", "en")


@cache
def _numerals(language: str) -> _Numerals:
    *numbers, half, quarter, join = _NUMERALS[language].split()
    words = [
        (len(word), word, value)
        for each, value in zip([*numbers, half, quarter], _VALUES, strict=True)
        for word in _ALTERNATIVES.split(each)
    ]
    # "vierzig" before "vier".
    words.sort(reverse=True)
    pattern = re.compile("|".join(f"({word})" for _, word, _ in words))
    return _Numerals(pattern, [Decimal(0), *(value for _, _, value in words)], join)
