"""Divides a text into words, and placeholders and addresses, which come back as they are.

Documents are read by it, and the server reads texts by it.
"""

_NOT_IN_ADDRESS = r"\s<>()\[\]`*|\\"
_PARENTHESES = rf"\([^{_NOT_IN_ADDRESS}]*\)"
ADDRESS = (
    rf"(?<!\w)(?:(?:https?|ftp)://|www\.)(?:[^{_NOT_IN_ADDRESS}]|{_PARENTHESES})*"
    rf"(?:[^{_NOT_IN_ADDRESS}.,;:!?'\"_~]|{_PARENTHESES})"
    r"|(?<![\w.+-])[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+"
)
"""Addresses of pages and of mail, as a pattern."""
# Sources: printf of C (ISO 9899, 7.21.6.1), with the positions of POSIX and the names of Python;
# str.format; i18next; ICU; Qt; Ruby; Symfony; Chrome's messages.json; references of HTML.
_SIZE = r"(?:\d++|\*)?(?:\.(?:\d++|\*))?(?:hh|ll|[hljztLq])?"
_PRINTF = rf"(?:\d+\$|\([^()\s]+\))?[-+0#']*+{_SIZE}[@A-Za-z]"
PLACEHOLDER = "|".join(
    [
        ADDRESS,
        r"\{{2,3}[^{}]*\}{2,3}",
        r"[$%#]?\{[^{}]*\}",
        r"\$t\([^()]*\)",
        r"\$\w+\$",
        r"%(?:\d+\$)?#@\w+@",
        r"%[A-Za-z_][\w.]{2,}%(?![\w%])",
        rf"(?<!\d)%{_PRINTF}|%{_PRINTF}(?![A-Za-z])",
        r"%L?\d{1,2}|%%",
        r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w+);",
    ]
)
"""Placeholders of programs and addresses, as a pattern without groups; 100%ige has none."""


def has_words(text: str) -> bool:
    """Returns whether a text has a letter: only then is it translated."""
    return any(map(str.isalpha, text))
