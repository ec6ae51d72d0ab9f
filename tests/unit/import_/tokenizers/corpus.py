"""Makes texts of many scripts, with what breaks tokenizers: marks, emoji, spaces, rare characters.

Words are invented from the letters of each script, the same ones in each run, so that a trained
vocabulary has frequent words, rare words and characters that it never saw.
"""

import random
import unicodedata
from collections.abc import Iterator

SCRIPTS = {
    "latin": "etaoinshrdlucmfw",
    "accented": "éèêëñçöüßåøœ",
    "vietnamese": "ếệạảăâđơưọ",
    "greek": "αβγδεζηθικλμνξοπρστυφχψωά",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшыьэюяё",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "devanagari": "कखगघचजटडतदनपबमयरलवशसहािीुेो्",
    "thai": "กขคงจชตทนบปผมยรลวสหอาิีุเแโไ่้ำ",
    "hangul": "가나다라마바사아자차카타파하한글말",
    "kana": "あいうえおかきくけこアイウエオカキガギ",
    "han": "的一是不了人我在有他這中大來上國",
    "digits": "0123456789",
}
ODD = [
    *("😀", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "❤️", "1️⃣", "ﬁ", "Ⅷ", "½", "①", "㎏", "…", "™", "ﬀ"),
    *("ｆｕｌｌ", "ｶﾞｷﾞ", "～", "‘quoted’", "“double”", "—", "a-b", "don't", "www.a.org/?q=1&r=2"),
    *("\u200f", "\u202bعربي\u202c", "x\u0301", " \u0301", "\x07", "\ufeff", "\ufffd", "\U0001f9ff"),
    *(
        "\u0645\u0651\u064e\u0631",
        "\u05e9\u05c1\u05bc\u05b8",
        "e\u0302\u0301",
        "\u1100\u1161\u11a8",
    ),
    *("ꙮ", "𝔘𝔫𝔦", "𓀀", "ⵣ", "▁", "a▁b", "▁▁", "{}", "<b>", "</b>", "<", "%%", "\\n", "...."),
]
SPACES = [*"    ", "  ", "   ", "\t", "\n", "\r\n", "\u00a0", "\u2009", "\u3000", "\u200b"]


def lines(count: int, seed: int = 0) -> list[str]:
    """Returns texts; some are empty, some only white space, some in decomposed form."""
    source = random.Random(seed)
    words = _words(random.Random(1))
    return [_line(source, words) for _ in range(count)]


def plain_lines(count: int, seed: int = 0) -> Iterator[str]:
    """Yields texts as a vocabulary is trained on: words of every script, with single spaces."""
    source = random.Random(seed)
    words = _words(random.Random(1))
    for _ in range(count):
        known = words[source.choice(list(words))]
        yield " ".join(_frequent(source, known) for _ in range(source.randint(3, 12)))


def _words(source: random.Random) -> dict[str, list[str]]:
    return {
        script: [_word(letters, source) for _ in range(60)] for script, letters in SCRIPTS.items()
    }


def _word(letters: str, source: random.Random) -> str:
    word = "".join(source.choices(letters, k=source.randint(1, 9)))
    # Marks stand in the order in which people write them.
    return unicodedata.normalize("NFC", word)


def _frequent(source: random.Random, words: list[str]) -> str:
    # Few words are frequent, as in any language.
    return words[min(int(source.expovariate(0.08)), len(words) - 1)]


def _line(source: random.Random, words: dict[str, list[str]]) -> str:
    kind = source.random()
    if kind < 0.02:
        return ""
    if kind < 0.04:
        return "".join(source.choices(SPACES, k=source.randint(1, 4)))
    text = ""
    known = words[source.choice(list(words))]
    for _ in range(source.randint(1, 10)):
        odd = source.random() < 0.15
        text += source.choice(ODD) if odd else _frequent(source, known)
        text += source.choice(SPACES) if source.random() < 0.9 else ""
        if source.random() < 0.1:
            known = words[source.choice(list(words))]
    if kind < 0.5:
        text = text.strip()
    return unicodedata.normalize("NFD", text) if kind > 0.9 else text
