"""What must survive a translation: ``python -m bench.kept [ARTIFACT]``.

Puts fifteen kinds of placeholders into twenty English sentences and counts how they come back: as
the model writes them without ``keep_placeholders``, and how each came to its place with it. A place
is right if the word before it or behind it is that of a German reference.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.drivers.server_process import ServerProcess, seqserve_server
from bench.tables import Table
from seqserve import Client, Hypothesis, Placement

SENTENCES = Path(__file__).with_name("kept.tsv")
KINDS = {
    "printf": "%s",
    "Python": "{name}",
    "ICU": "{0}",
    "Android": "%1$s",
    "i18next": "{{count}}",
    "Mustache": "{{{user.name}}}",
    "tag of XML": '<x id="1"/>',
    "Markdown's link": "[Berlin](https://berlin.example/map)",
    "URL": "https://shop.example.org/a?id=7",
    "mail": "anna.berg@example.org",
    "version": "2.4.1-rc1",
    "unit, by `keep`": "50 MB/s",
    "emoji": "🎉",
    "hashtag": "#WinterSale",
    "code": "`git pull`",
}
_BY_KEEP = "50 MB/s"
_EXACT, _RIGHT = "exact without", "place is right"
_WORD = re.compile(r"\w+")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path, nargs="?", default=Path("models/en-de/4"))
    parser.add_argument("--texts", action="store_true", help="print the texts too")
    arguments = parser.parse_args()
    rows = [line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    columns = [_EXACT, *(placement.value for placement in [*Placement][1:]), _RIGHT]
    counts = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(
            seqserve_server(arguments.artifact, Path(folder)), Path(folder, "log")
        ) as server,
        Client(server.address) as client,
    ):
        for kind, kept in KINDS.items():
            counts[kind] = Counter(_outcomes(client, rows, kept, shows=arguments.texts))
    counts["all"] = sum(counts.values(), Counter())
    lines = [[kind, *(str(count[name]) for name in columns)] for kind, count in counts.items()]
    print(Table([f"{len(rows)} sentences with", *columns], lines))


def _outcomes(
    client: Client, rows: Sequence[Sequence[str]], kept: str, *, shows: bool
) -> Iterator[str]:
    keep = [kept] if kept == _BY_KEEP else []
    for template, *references in rows:
        source = template.replace("X", kept)
        text = client.generate(source, keep_placeholders=False).text
        if len(re.findall(rf"(?<!\w){re.escape(kept)}(?!\w)", text)) == 1:
            yield _EXACT
        best = client.generate(source, keep_placeholders=True, keep=keep).hypotheses[0]
        for part in best.kept:
            yield part.placement.value
        is_right = _is_right(best, references)
        if is_right:
            yield _RIGHT
        if shows:
            print(f"{'right' if is_right else 'wrong'}\t{source}\t{best.text}")


def _is_right(hypothesis: Hypothesis, references: Sequence[str]) -> bool:
    [part] = hypothesis.kept
    text = hypothesis.text
    own = _neighbours(text[: part.target_begin], text[part.target_end :])
    for reference in references:
        for word, other in zip(own, _neighbours(*reference.split("X")), strict=True):
            if word == other:
                return True
    return False


def _neighbours(before: str, behind: str) -> tuple[str, str]:
    """Returns the last word before a place and the first one behind it, if there are any."""
    first, last = _WORD.findall(before.lower()), _WORD.findall(behind.lower())
    return (first or [""])[-1], (last or [""])[0]


if __name__ == "__main__":
    main()
