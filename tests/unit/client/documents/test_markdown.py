from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from seqserve.documents.formats import Format
from seqserve.documents.passage import Translation

from .marking import aligned, in_capitals, passages_of, sent, written

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


@pytest.mark.parametrize(
    ("target", "written_target"),
    [
        ("b: c", '"b: c"'),
        ("[b] c", '"[b] c"'),
        ('b "c" #', '"b \\"c\\" #"'),
        ("b #1:2", '"b #1:2"'),
    ],
)
def test_a_plain_field_is_quoted_where_it_would_mean_something(
    target: str, written_target: str
) -> None:
    passages = passages_of(Format.MARKDOWN, "---\ntitle: a\n---\n")
    assert (
        written(passages, lambda _: Translation(target)) == f"---\ntitle: {written_target}\n---\n"
    )


def with_word(markdown: str, text: str, translation: str) -> str:
    """The document with this text translated; others stay."""
    passages = passages_of(Format.MARKDOWN, markdown)
    assert text in sent(passages)
    return written(
        passages, lambda each: Translation(translation if each.text == text else each.text)
    )


@pytest.mark.parametrize("marks", ["`", "$"])
def test_code_side_by_side_does_not_become_one(marks: str) -> None:
    passage, *_ = passages_of(Format.MARKDOWN, f"We use ({marks}x{marks}), and {marks}y{marks}.")
    first, second = passage.kept
    answer = aligned(passage, f"wir {second}{first} gut", f"We {second} {first} use")
    assert passage.written(answer) == f"wir {second} {first} gut"


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        # Escapes and references are characters of the text, and what needs it is escaped again.
        (r"\*stars\* cost 2 \* 3", r"\*STARS\* COST 2 * 3"),
        ("AT&amp;T &lt;b&gt; &copy; &amp;lt;", r"AT&T \<B> © \&LT;"),
        (r"a snake\_case 5\$ \#1\.", r"A SNAKE_CASE 5\$ \#1."),
        # Footnotes, of which each begins a line.
        ("a[^1] b\n\n[^1]: one\nmore\n[^b]: two\n", "A[^1] B\n\n[^1]: ONE MORE\n[^b]: TWO\n"),
        # Cells with bars.
        (
            "| a \\| b | `c\\|d` |\n|---|---|\n| e | f\\|g |\n",
            "| A \\| B | `c\\|d` |\n|---|---|\n| E | F\\|G |\n",
        ),
        # Addresses.
        (
            "see https://x.y/a_b?c=d&amp;e (www.x.y). **http://x.y/(z)**, c",
            "SEE https://x.y/a_b?c=d&amp;e (www.x.y). **http://x.y/(z)**, C",
        ),
        # Addresses with shortcodes.
        (
            'a [b *c*]({{< ref "d e.md" >}}) f [g]({% link h i %}) [j](/k/{{ l }}/m "n")',
            'A [B *C*]({{< ref "d e.md" >}}) F [G]({% link h i %}) [J](/k/{{ l }}/m "N")',
        ),
        ('a ![b]({{< c "d" >}}) e', 'A ![B]({{< c "d" >}}) E'),
        # Texts of images, and titles of links.
        (
            "a ![b c](d.png \"e 'f'\") [g](h 'i' ) [![j](k)](l \"m\")",
            "A ![B C](d.png \"E \\'F\\'\") [G](h 'I' ) [![J](k)](l \"M\")",
        ),
        ('![a](b)\n\n![](c "d")\n\n![`e`](f)', '![A](b)\n\n![](c "D")\n\n![`e`](f)'),
        # Code in shortcodes.
        (
            "a\n{% highlight c %}\nb\n\n# c\n{% endhighlight %}\nd",
            "A\n{% highlight c %}\nb\n\n# c\n{% endhighlight %}\nD",
        ),
        ("{{< highlight c >}}\nb\n{{< /highlight >}}\n",) * 2,
        ("{% highlight c %}\nb\n", "{% highlight c %}\nB\n"),
        # Expressions in tags.
        ("<img src={a('b')} alt=\"c\" />", "<img src={a('b')} alt=\"C\" />"),
        (
            "a <b className={c}>d</b> <E f={{g: 'h'}} i={() => j}>k</E> l",
            "A <b className={c}>D</b> <E f={{g: 'h'}} i={() => j}>K</E> L",
        ),
        (
            '<Card\n  title="a b"\n  icon={<C />}\n>\nd\n</Card>',
            '<Card\n  title="A B"\n  icon={<C />}\n>\nD\n</Card>',
        ),
        ("to ann.lee+b@mail.x.org, or @bob", "TO ann.lee+b@mail.x.org, OR @BOB"),
        # What is at a place behind what is kept stays behind it, with its white space.
        ("https://x.y/a_b {.c}, d", "https://x.y/a_b {.c}, D"),
        ("`a` \\[b `c` ![i](j)] d", "`a` \\[B `c` ![I](j)\\] D"),
        # A note in the text of a link.
        ("a [[^1] b](u) c", "A [[^1] B](u) C"),
    ],
)
def test_what_is_read_and_written(markdown: str, expected: str) -> None:
    assert in_capitals(passages_of(Format.MARKDOWN, markdown)) == expected


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("::: tip My title\nSome *text*.\n:::\n", "::: tip MY TITLE\nSOME *TEXT*.\n:::\n"),
        (":::note[My title]{.a}\nText\n:::\n", ":::note[MY TITLE]{.a}\nTEXT\n:::\n"),
        ("/// note | My title\ntext\n///\n", "/// note | MY TITLE\nTEXT\n///\n"),
        # Front matter: what a reader sees.
        ("+++\ntitle = 'a'\nslug = 'a'\n+++\nb\n", "+++\ntitle = 'A'\nslug = 'a'\n+++\nB\n"),
        ("---\ntitle: a\ntags: [a]\n---\nb\n", "---\ntitle: A\ntags: [a]\n---\nB\n"),
        (
            "---\ntitle: \"a \\\"b\\\"\" # c\n- text: 'it''s'\r\nalt: a: b\ntext: true\n---\n",
            '---\ntitle: "A \\"B\\"" # c\n- text: \'IT’S\'\r\nalt: a: b\ntext: true\n---\n',
        ),
        ("> [!NOTE]\n> some\n> text\n", "> [!NOTE]\n> SOME TEXT\n"),
        ("> [!tip]- Title\n> text\n", "> [!tip]- TITLE\n> TEXT\n"),
        ("$$\na = b\n$$\n\nso $a_1 = b$ is\n", "$$\na = b\n$$\n\nSO $a_1 = b$ IS\n"),
        ("so $$a_1$$ and $$ b $$ is\n", "SO $$a_1$$ AND $$ b $$ IS\n"),
        ("it costs $5, or $6\n", "IT COSTS $5, OR $6\n"),
        (
            '!!! note "The title"\n    some\n    text\n\n    - item\n\nmore\n',
            '!!! note "THE TITLE"\n    SOME TEXT\n\n    - ITEM\n\nMORE\n',
        ),
        ("??? tip\n    text\n", "??? tip\n    TEXT\n"),
        (
            '=== "First"\n\n    text\n\n=== "Second"\n\n        code\n',
            '=== "FIRST"\n\n    TEXT\n\n=== "SECOND"\n\n        code\n',
        ),
        ("# Title {#my-id .cls}\n", "# TITLE {#my-id .cls}\n"),
        ("a [text]{.mark} b\n{: .cls }\n", "A [TEXT]{.mark} B\n{: .cls }\n"),
        (
            '{{< note >}}\nsome\ntext\n{{< /note >}}\nsee {{< ref "a b" >}} now\n',
            '{{< note >}}\nSOME TEXT\n{{< /note >}}\nSEE {{< ref "a b" >}} NOW\n',
        ),
        (
            "{% if a %}\nsome {{ user.name }} text\n{% endif %}\n",
            "{% if a %}\nSOME {{ user.name }} TEXT\n{% endif %}\n",
        ),
        (
            "import A from './a.js'\nexport const b = {\n  c: 'text',\n}\n\nsome {props.d} text\n",
            "import A from './a.js'\nexport const b = {\n  c: 'text',\n}\n\nSOME {props.d} TEXT\n",
        ),
        (
            '<Tabs groupId={a}>\n<Tab>\n\nsome <Tip text="b">word</Tip>\n\n</Tab>\n</Tabs>\n',
            '<Tabs groupId={a}>\n<Tab>\n\nSOME <Tip text="b">WORD</Tip>\n\n</Tab>\n</Tabs>\n',
        ),
        ("see [[Page]] and [[page|this *page*]]\n", "SEE [[Page]] AND [[page|THIS *PAGE*]]\n"),
        ("press <kbd>Ctrl</kbd>+<kbd>C</kbd> now\n", "PRESS <kbd>Ctrl</kbd>+<kbd>C</kbd> NOW\n"),
        (
            'a <b>bold</b> <span translate="no">Word</span> b\n',
            'A <b>BOLD</b> <span translate="no">Word</span> B\n',
        ),
        (
            "<details>\n<summary>More</summary>\n\ntext\n\n</details>\n",
            "<details>\n<summary>MORE</summary>\n\nTEXT\n\n</details>\n",
        ),
        (
            "Term\n: The *meaning*\n\n- [ ] task\n- [x] done\n",
            "TERM\n: THE *MEANING*\n\n- [ ] TASK\n- [x] DONE\n",
        ),
        ("a[^1].\n\n[^1]: note\n\n    more\n", "A[^1].\n\n[^1]: NOTE\n\n    MORE\n"),
        ("*[HTML]: Some text\n*[CSS]: more\n", "*[HTML]: SOME TEXT\n*[CSS]: MORE\n"),
        (
            '--8<-- "a.md"\n\n[TOC]\n\n:smile: and ++ctrl+c++\n',
            '--8<-- "a.md"\n\n[TOC]\n\n:smile: AND ++ctrl+c++\n',
        ),
        # A text that is the label of its address.
        (
            "see [the page] or [b][]\n\n[the page]: c\n[b]: d\n",
            "SEE [THE PAGE][the page] OR [B][b]\n\n[the page]: c\n[b]: d\n",
        ),
        # A label whose address another file has.
        ("the [text][label-of-site] here\n", "THE [TEXT][label-of-site] HERE\n"),
        ("a [:icon:][_label]{: .class } b\n", "A [:icon:][_label]{: .class } B\n"),
        ("use `code` in *the `x` text*\n", "USE `code` IN *THE `x` TEXT*\n"),
        # Pandoc: notes within a text, lowered numbers, lines of verse.
        ("See it^[a [b](u)] now\n", "SEE IT^[A [B](u)] NOW\n"),
        ("1 l of H~2~O\n", "1 L OF H~2~O\n"),
        ("| a red\n|   car\n", "| A RED\n|   CAR\n"),
    ],
)
def test_what_sites_add(markdown: str, expected: str) -> None:
    assert in_capitals(passages_of(Format.MARKDOWN, markdown)) == expected


@pytest.mark.parametrize(
    ("markdown", "copied", "left"),
    [
        ("---\na: b\n---\n\n```\nc\n```\n\n12\n", ["data", "code", "no letter"], []),
        ("[a]: http://b 'c d'\n\n$$\nx\n$$\n", ["data", "code"], []),
        ("> <p>\n> text\n> </p>\n", [], ["is HTML within a quote, which is not read"]),
        (">" * 120 + " text\n", [], ["is at a place where no text is read"]),
        (
            "+---+---+\n| a | b |\n+---+---+\n",
            [],
            ["is a table whose columns would move, which is not read"],
        ),
    ],
)
def test_what_stays_is_told(markdown: str, copied: list[str], left: list[str]) -> None:
    found = passages_of(Format.MARKDOWN, markdown)
    assert [each.copied for each in found if each.copied] == copied
    assert [each.fault for each in found if each.fault] == left


@pytest.mark.parametrize(
    ("markdown", "text", "translation", "expected"),
    [
        ("a", "a", "1. b", "1\\. b"),
        ("- a\n", "a", "- b", "- \\- b\n"),
        ("- a\n", "a", "# b", "- \\# b\n"),
        ("a\n===\n", "a", "> b", "\\> b\n===\n"),
        ("# 1. a\n", "1. a", "1. b", "# 1. b\n"),
        ("[^1] a\n", "a", "- b", "[^1] - b\n"),
        ("|a|\n|-|\n", "a", "b|c", "|b\\|c|\n|-|\n"),
        ("a", "a", "-5 + 3 = 1.5, ~2 * 3 & 4 < 5!", "-5 + 3 = 1.5, ~2 * 3 & 4 < 5!"),
        ("a", "a", "__b__ and snake_case", "\\_\\_b\\_\\_ and snake_case"),
        ("a", "a", "*b* _c_ `d` [e](f) <g> &amp; ~~h~~", None),
    ],
)
def test_a_translation_changes_no_structure(
    markdown: str, text: str, translation: str, expected: str | None
) -> None:
    found = with_word(markdown, text, translation)
    assert found == expected or (expected is None and shown(found) == [("paragraph", translation)])


def shown(markdown: str) -> list[tuple[str, str]]:
    """The texts of a document as its reader sees them, each with its kind of block."""
    tokens = READER.parse(markdown)
    found = []
    for parent, token in pairwise(tokens):
        if token.type == "inline":
            assert token.children is not None
            assert {each.type for each in token.children} <= {"text", "text_special"}
            text = "".join(each.content for each in token.children)
            found.append((parent.type.removesuffix("_open"), text))
    return found


WORDS = ["b", "1.", "2)", "#", "##", "-", "+", "*", "_", "**", "~~", "~~~", "`", "```", ">", "=="]
WORDS += ["|", "[c]", "[^1]:", "](d)", "![", "<e>", "</e>", "&amp;", "&#65;", "\\", "\\*", "a*b*"]
WORDS += ["_f_", "---", "***", ":", "[ ]", "!"]


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), st.booleans())
@example(words=["_", "_", "b", "_", "_"], is_apart=False)
@settings(max_examples=300)
def test_the_reader_sees_the_translation(words: list[str], is_apart: bool) -> None:
    translation = (" " if is_apart else "").join(["x", *words])[2 if is_apart else 1 :]
    for before, behind, kind in (
        ("", "\n", "paragraph"),
        ("- ", "\n", "paragraph"),
        ("> 1. ", "\n", "paragraph"),
        ("", "\n===\n", "heading"),
        ("## ", " ##\n", "heading"),
        ("| ", " |\n|---|\n", "th"),
    ):
        found = with_word(f"{before}word{behind}", "word", translation)
        assert shown(found) == [(kind, translation)], found


@pytest.mark.parametrize(
    ("line", "is_text"),
    [
        ("::: package.module", False),
        ("::: tip Title", True),
        ("/// html | div.result", False),
        ("/// note | Title", True),
    ],
)
def test_only_titles_of_boxes_are_texts(line: str, is_text: bool) -> None:
    assert bool(sent(passages_of(Format.MARKDOWN, f"{line}\n"))) is is_text


def test_a_long_text_is_not_divided_within_markup() -> None:
    picture = f"data:image/png;base64,{'iVBOrw0K' * 1000}"
    badge, link = f"[![A c]({'d' * 150}.svg)](e)", f"[a b c]({'d' * 120} 'a b')"
    text = f"a ![b c]({picture}) d <img src='{picture}'> e {f'{badge} ' * 40}{f'{link} a ' * 60}\n"
    result = in_capitals(passages_of(Format.MARKDOWN, text))
    assert "\\" not in result and result.count(picture) == 2
    assert (result.count(f"{'d' * 150}.svg"), result.count(f"[A B C]({'d' * 120} 'A B')")) == (
        40,
        60,
    )


@pytest.mark.parametrize("form", ["{}\n", "- {} {}\n", "| {} |\n|---|\n| {} |\n", "**{}**\n"])
@pytest.mark.parametrize("link", ["[a b]", "[a b][]"])
def test_a_link_alone_keeps_its_label(form: str, link: str) -> None:
    passages = passages_of(Format.MARKDOWN, f"{form.format(link, link)}\n[a b]: c.md\n")
    result = form.format("[A B][a b]", "[A B][a b]")
    assert in_capitals(passages) == f"{result}\n[a b]: c.md\n"
