"""The parser of blocks of Markdown: CommonMark, tables, and the blocks that sites add.

Sources: the pages of MkDocs Material on admonitions and tabs, PyMdown on blocks, VitePress and
Docusaurus on containers, MDX on imports.
"""

import re
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock, reference
from mdit_py_plugins.container import container_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin

# Lines that end the paragraph before them.
_ENDS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
_INDENT = 4
_INDENTED = re.compile(r"(?:!!!|\?\?\?\+?|===[+!]?)[ \t]+\S[^\n]*")
_STATEMENT = re.compile(
    r"import\s[^\n]*['\"][^'\"\n]+['\"];?[ \t]*(?:\n|\Z)|import\s*\{[^\n]*(?:\n|\Z)"
    r"|export\s+(?:default|const|let|var|function|class|async)\b"
)
# Code in a shortcode.
_OF_CODE = "(code|comment|highlight|katex|math|mermaid|plantuml)"
_CODE_BEGIN = re.compile(rf"\{{[{{%][<%]?[-\s]*{_OF_CODE}\b")
_CODE_END = re.compile(rf"\{{[{{%][<%]?[-\s]*(?:/[-\s]*|end){_OF_CODE}\b[^\n]*(?:\n|\Z)")
_VALUE = r"\"[^\"]{0,500}\"|'[^']{0,500}'|\{(?:[^{}]|\{[^{}]{0,200}\}){0,500}+\}"
COMPONENT = rf"</?(?:[A-Z]|[a-z](?=[^<>]{{1,500}}=\{{))[\w.:-]*+(?:[^<>{{}}\"']|{_VALUE})*+>"
"""A tag of MDX, as a pattern: its name has a capital, or it has an expression. Others are HTML."""
_LONG_COMPONENT = re.compile(COMPONENT + r"[ \t]*(?:\n|\Z)")
_TITLE = re.compile(
    # Behind marks of quotes and items: of a box or a tab; of a container, whose name has no dots,
    # as those of modules have.
    r"[ \t>*-]*+(?:(?:!!!|\?\?\?\+?|===[+!]?)[^\"\n]*\"(?P<quoted>[^\"\n]+)\""
    r"|:{3,}+[ \t]*+(?:\{[^}\n]*\}|[\w-]++(?![.:]))[ \t]*+"
    r"(?:\[(?P<bracketed>[^\]\n]+)\]|(?P<bare>[^{\[\n]*))"
    r"|/{3,}+(?![ \t]*html\b)[^|\n]*+\|(?P<barred>[^\n]*))"
)


def title_of(line: str, begin: int) -> tuple[int, int]:
    """Returns where the title of a box, a tab or a container begins and ends; or an empty place."""
    title = _TITLE.match(line, begin)
    if title is None or not title.lastgroup or not (text := title[title.lastgroup].strip()):
        return 0, 0
    first = line.index(text, title.start(title.lastgroup))
    return first, first + len(text)


@cache
def block_parser() -> MarkdownIt:
    """Returns a parser whose tokens have no tokens for what is within a line."""
    # Nobody nests blocks so deep, and each level is several calls.
    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable("table")
    parser.core.ruler.disable(["inline", "text_join"])
    parser.use(dollarmath_plugin).use(deflist_plugin)
    parser.use(footnote_plugin, inline=False, move_to_end=False)
    for name, marker in (("colons", ":"), ("slashes", "/")):
        parser.use(container_plugin, name, marker, validate=lambda info, _: bool(info.strip()))
    rules = parser.block.ruler
    rules.at("reference", _reference)
    rules.before("fence", "indented", _indented, _ENDS)
    rules.before("fence", "script", _script, _ENDS)
    rules.before("fence", "markup", _markup, _ENDS)
    return parser


def _indented(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A line with a mark, and the lines below it that are indented."""
    begin = state.bMarks[first] + state.tShift[first]
    is_code = state.is_code_block(first)
    if is_code or not _INDENTED.match(state.src, begin, state.eMarks[first]):
        return False
    if silent:
        return True
    indent = state.blkIndent + _INDENT
    end = first + 1
    while end < last and (state.isEmpty(end) or state.sCount[end] >= indent):
        end += 1
    token = state.push("indented_open", "div", 1)
    token.map = [first, end]
    before = state.blkIndent, state.lineMax, state.parentType
    state.blkIndent, state.lineMax, state.parentType = indent, end, "indented"
    state.md.block.tokenize(state, first + 1, end)
    state.blkIndent, state.lineMax, state.parentType = before
    state.push("indented_close", "div", -1)
    state.line = end
    return True


def _script(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Lines of JavaScript in MDX, up to a blank one."""
    begin = state.bMarks[first]
    if state.level or not _STATEMENT.match(state.src, begin):
        return False
    if silent:
        return True
    end = first + 1
    while end < last and not state.isEmpty(end):
        end += 1
    state.push("script", "", 0).map = [first, end]
    state.line = end
    return True


def _markup(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Lines of code in a shortcode, or of a tag of MDX; a line of them may look like a block."""
    begin = state.bMarks[first] + state.tShift[first]
    found, kind = _LONG_COMPONENT.match(state.src, begin), "component"
    if shortcode := _CODE_BEGIN.match(state.src, begin):
        name, kind = shortcode[1], "script"
        unclosed = state.env.setdefault("unclosed", set())
        if name not in unclosed:
            ends = _CODE_END.finditer(state.src, begin)
            found = next((end for end in ends if end[1] == name), None)
        if not found:
            # For another one the text is not searched again.
            unclosed.add(name)
    if not found:
        return False
    lines = state.src[begin : found.end()]
    end = first + lines.count("\n") + (lines[-1] != "\n")
    if end > last or (kind == "component" and end == first + 1):
        return False
    if not silent:
        state.push(kind, "", 0).map = [first, end]
        state.line = end
    return True


def _reference(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    if not reference(state, first, last, silent):
        return False
    if not silent:
        state.push("reference", "", 0).map = [first, state.line]
    return True
