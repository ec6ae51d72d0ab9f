// Inside an answer: the attention of its tokens as a heat map, and tokens that might replace one.

import { send } from "./calls.js";
import { $, choice, element, offer, show } from "./dom.js";

const ALTERNATIVES = 6;
// The weights of all layers and heads grow with the square of the length.
const LONGEST = 600;
const HINT = "Each row is a word of the answer, or a part of one. The stronger a cell, the more of it comes from the word above. Click a word on the left to replace it.";
// Tokenizers write ▁ or Ġ for the space before a word.
const SPACE = /^[▁Ġ]/;
const isSpace = (token) => token.replace(SPACE, "") === "";

let abort = new AbortController();
let attention;

/** The text of tokens, with the space before its first word. */
export const joined = (tokens) => tokens.map((token) => token.replace(SPACE, " ")).join("");

export function close() {
  abort.abort();
  $("#inside").hidden = true;
}

/** Asks for the attention of a target to its source, and draws it. */
export async function look(request, isPivot, onChoice) {
  close();
  abort = new AbortController();
  if (!request.target) return;
  const isLong = request.source.length + request.target.length > LONGEST;
  if (isLong || isPivot) return explain(isLong ? "The text is too long to draw." : "Two models answered over a pivot.");
  try {
    attention = await (await send("attention", request, abort.signal)).json();
  } catch (error) {
    if (error.code === "FAILED_PRECONDITION") return explain(error.message);
    throw error;
  }
  const { layers, heads } = attention.cross;
  const numbers = (count) => Array.from({ length: count }, (_, index) => [String(index), String(index + 1)]);
  offer($("#layer"), numbers(layers).reverse());
  offer($("#head"), [["", "mean"], ...numbers(heads)]);
  $("#layer").onchange = $("#head").onchange = () => draw(request, onChoice);
  draw(request, onChoice);
}

function explain(text, ...rows) {
  $("#map").replaceChildren(...rows);
  $("#alternatives").replaceChildren();
  show($("#hint"), text);
  $("#inside").hidden = false;
}

/** Where the word ends that begins at a token: a lone space belongs to the next token. */
function endOf(tokens, begin) {
  let end = begin + 1;
  while (end < tokens.length && isSpace(tokens[end - 1])) end += 1;
  return end;
}

/** The words of tokens, the last of which is the end token, with their places. */
function wordsOf(tokens) {
  const words = [];
  for (let begin = 0; begin < tokens.length; begin = words.at(-1).end) {
    const end = endOf(tokens, begin);
    const places = Array.from({ length: end - begin }, (_, index) => begin + index);
    const text = end === tokens.length ? "end" : joined(tokens.slice(begin, end)).trim();
    words.push({ begin, end, places, text });
  }
  return words;
}

function draw(request, onChoice) {
  const { source_tokens: sources, target_tokens: targets } = attention;
  const heads = $("#head").value ? [Number($("#head").value)] : [...Array(attention.cross.heads).keys()];
  const read = wordsOf(sources);
  const columns = read.map(({ text }) => element("th", { scope: "col" }, element("span", {}, text)));
  const rows = wordsOf(targets).map(({ text, begin, places }) => {
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", () => replace(request, targets.slice(0, begin), button, onChoice));
    const cells = read.map((source) => {
      const weight = mean(heads.flatMap((head) => places.map((row) => weightOf(head, row, source.places))));
      const cell = element("td", { title: `${text} ← ${source.text}: ${percent(weight)}` });
      cell.style.setProperty("--weight", weight.toFixed(3));
      return cell;
    });
    return element("tr", {}, element("th", { scope: "row" }, button), ...cells);
  });
  explain(HINT, element("tr", {}, element("td", {}), ...columns), ...rows);
}

function weightOf(head, row, columns) {
  const { heads, queries, keys, weights } = attention.cross;
  const first = ((Number($("#layer").value) * heads + head) * queries + row) * keys;
  return columns.reduce((sum, column) => sum + weights[first + column], 0);
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

function percent(share) {
  return share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
}

/** Lists the words that might follow the first tokens of an answer, with the texts they lead to. */
async function replace({ target, source_language, target_language, ...request }, prefix, button, onChoice) {
  for (const each of $("#map").querySelectorAll("button")) {
    each.setAttribute("aria-pressed", String(each === button));
  }
  const options = {
    source_language,
    target_language,
    segmentation: "none",
    num_hypotheses: ALTERNATIVES,
    return_alternatives: true,
    return_token_scores: true,
    ...(prefix.length && { target_prefix_tokens: prefix }),
  };
  const answer = await (await send("generate", { ...request, options }, abort.signal)).json();
  const items = answer.hypotheses.map(({ text, tokens = [], token_scores }) => {
    const begin = tokens.slice(0, endOf(tokens, prefix.length));
    const scores = token_scores.slice(prefix.length, Math.max(begin.length, prefix.length + 1));
    const share = percent(Math.exp(scores.reduce((sum, score) => sum + score, 0)));
    const item = choice(share, marked(text ?? "", tokens, prefix.length, begin.length), () => onChoice(begin));
    // The text may end here; nothing goes on from there.
    item.firstChild.disabled = begin.length <= prefix.length;
    return item;
  });
  $("#alternatives").replaceChildren(...items);
}

/** A text with one of its words marked; plain where tokens are not parts of it as written. */
function marked(text, tokens, begin, end) {
  const parts = [tokens.slice(0, begin), tokens.slice(begin, end), tokens.slice(end)];
  const [before, word, after] = parts.map(joined);
  if ((before + word + after).trim() !== text) return [text];
  return [before.trimStart(), element("strong", {}, begin ? word : word.trimStart()), after];
}
