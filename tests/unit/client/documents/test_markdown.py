from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from seqserve.documents.formats import Format
from seqserve.documents.passage import Translation

from .marking import aligned, capital_pairs, in_capitals, passages_of, sent, written

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
def test_a_field_is_quoted_where_it_would_mean_something(target: str, written_target: str) -> None:
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
    capital_pairs(
        # Escapes and references are characters of the text, and what needs it is escaped again.
        (r"\*stars\* cost 2 \* 3", r"\*STARS\* COST 2 * 3"),
        ("AT&amp;T &lt;b&gt; &copy; &amp;lt;", r"AT&T \<B> © \&LT;"),
        (r"a snake\_case 5\$ \#1\.", r"A SNAKE_CASE 5\$ \#1."),
        # Footnotes, of which each begins a line.
        ("a[^1] b\n\n[^1]: one\nmore\n[^b]: two\n", "A[^1] B\n\n[^1]: ONE MORE\n[^b]: TWO\n"),
        # Cells with bars.
        "| «a» \\| «b» | `c\\|d` |\n|---|---|\n| «e» | «f»\\|«g» |\n",
        # Addresses.
        "«see» https://x.y/a_b?c=d&amp;e (www.x.y). **http://x.y/(z)**, «c»",
        # Addresses with shortcodes.
        (
            '«a» [«b» *«c»*]({{< ref "d e.md" >}}) «f» '
            '[«g»]({% link h i %}) [«j»](/k/{{ l }}/m "«n»")'
        ),
        '«a» ![«b»]({{< c "d" >}}) «e»',
        # Texts of images, and titles of links.
        (
            "a ![b c](d.png \"e 'f'\") [g](h 'i' ) [![j](k)](l \"m\")",
            "A ![B C](d.png \"E \\'F\\'\") [G](h 'I' ) [![J](k)](l \"M\")",
        ),
        '![«a»](b)\n\n![](c "«d»")\n\n![`e`](f)',
        # Code in shortcodes.
        "«a»\n{% highlight c %}\nb\n\n# c\n{% endhighlight %}\n«d»",
        ("{{< highlight c >}}\nb\n{{< /highlight >}}\n",) * 2,
        "{% highlight c %}\n«b»\n",
        # Expressions in tags.
        "<img src={a('b')} alt=\"«c»\" />",
        "«a» <b className={c}>«d»</b> <E f={{g: 'h'}} i={() => j}>«k»</E> «l»",
        '<Card\n  title="«a b»"\n  icon={<C />}\n>\n«d»\n</Card>',
        "«to» ann.lee+b@mail.x.org, «or» @«bob»",
        # What is at a place behind what is kept stays behind it, with its white space.
        "https://x.y/a_b {.c}, «d»",
        ("`a` \\[b `c` ![i](j)] d", "`a` \\[B `c` ![I](j)\\] D"),
        # A note in the text of a link.
        "«a» [[^1] «b»](u) «c»",
    ),
)
def test_what_is_read_and_written(markdown: str, expected: str) -> None:
    assert in_capitals(passages_of(Format.MARKDOWN, markdown)) == expected


@pytest.mark.parametrize(
    ("markdown", "expected"),
    capital_pairs(
        "::: tip «My title»\n«Some» *«text»*.\n:::\n",
        ":::note[«My title»]{.a}\n«Text»\n:::\n",
        "/// note | «My title»\n«text»\n///\n",
        # Front matter: what a reader sees.
        "+++\ntitle = '«a»'\nslug = 'a'\n+++\n«b»\n",
        "---\ntitle: «a»\ntags: [a]\n---\n«b»\n",
        (
            "---\ntitle: \"a \\\"b\\\"\" # c\n- text: 'it''s'\r\nalt: a: b\ntext: true\n---\n",
            '---\ntitle: "A \\"B\\"" # c\n- text: \'IT’S\'\r\nalt: a: b\ntext: true\n---\n',
        ),
        ("> [!NOTE]\n> some\n> text\n", "> [!NOTE]\n> SOME TEXT\n"),
        "> [!tip]- «Title»\n> «text»\n",
        "$$\na = b\n$$\n\n«so» $a_1 = b$ «is»\n",
        "«so» $$a_1$$ «and» $$ b $$ «is»\n",
        "«it costs» $5, «or» $6\n",
        (
            '!!! note "The title"\n    some\n    text\n\n    - item\n\nmore\n',
            '!!! note "THE TITLE"\n    SOME TEXT\n\n    - ITEM\n\nMORE\n',
        ),
        "??? tip\n    «text»\n",
        '=== "«First»"\n\n    «text»\n\n=== "«Second»"\n\n        code\n',
        "# «Title» {#my-id .cls}\n",
        "«a» [«text»]{.mark} «b»\n{: .cls }\n",
        (
            '{{< note >}}\nsome\ntext\n{{< /note >}}\nsee {{< ref "a b" >}} now\n',
            '{{< note >}}\nSOME TEXT\n{{< /note >}}\nSEE {{< ref "a b" >}} NOW\n',
        ),
        "{% if a %}\n«some» {{ user.name }} «text»\n{% endif %}\n",
        "import A from './a.js'\nexport const b = {\n  c: 'text',\n}\n\n«some» {props.d} «text»\n",
        '<Tabs groupId={a}>\n<Tab>\n\n«some» <Tip text="b">«word»</Tip>\n\n</Tab>\n</Tabs>\n',
        "«see» [[Page]] «and» [[page|«this» *«page»*]]\n",
        "«press» <kbd>Ctrl</kbd>+<kbd>C</kbd> «now»\n",
        '«a» <b>«bold»</b> <span translate="no">Word</span> «b»\n',
        "<details>\n<summary>«More»</summary>\n\n«text»\n\n</details>\n",
        "«Term»\n: «The» *«meaning»*\n\n- [ ] «task»\n- [x] «done»\n",
        "«a»[^1].\n\n[^1]: «note»\n\n    «more»\n",
        "*[HTML]: «Some text»\n*[CSS]: «more»\n",
        '--8<-- "a.md"\n\n[TOC]\n\n:smile: «and» ++ctrl+c++\n',
        # A text that is the label of its address.
        (
            "see [the page] or [b][]\n\n[the page]: c\n[b]: d\n",
            "SEE [THE PAGE][the page] OR [B][b]\n\n[the page]: c\n[b]: d\n",
        ),
        # A label whose address another file has.
        "«the» [«text»][label-of-site] «here»\n",
        "«a» [:icon:][_label]{: .class } «b»\n",
        "«use» `code` «in» *«the» `x` «text»*\n",
        # Pandoc: notes within a text, lowered numbers, lines of verse.
        "«See it»^[«a» [«b»](u)] «now»\n",
        "1 «l of» H~2~O\n",
        "| «a red»\n|   «car»\n",
    ),
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
