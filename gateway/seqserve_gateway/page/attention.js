// Inside an answer: the attention of its tokens as a heat map, and tokens that might replace one.

import { send } from "./calls.js";
import { $, choice, element, offer, show } from "./dom.js";

const ALTERNATIVES = 6;
// The weights of all layers and heads grow with the square of the length.
const LONGEST = 600;
const HINT = "Each row is a token of the answer; the stronger a cell, the more it attends to that source token. Click a token to see what might replace it.";
// Tokenizers write ▁ or Ġ for the space before a word.
const SPACE = /^[▁Ġ]/;
const shown = (token) => token.replace(SPACE, "") || "␣";

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

function draw(request, onChoice) {
  const { source_tokens: sources, target_tokens: targets } = attention;
  const heads = $("#head").value ? [Number($("#head").value)] : [...Array(attention.cross.heads).keys()];
  const columns = sources.map((token) => element("th", { scope: "col" }, element("span", {}, shown(token))));
  const rows = targets.map((token, row) => {
    const button = element("button", { type: "button" }, shown(token));
    button.addEventListener("click", () => replace(request, targets.slice(0, row), button, onChoice));
    const cells = sources.map((source, column) => {
      const weight = mean(heads.map((head) => weightOf(Number($("#layer").value), head, row, column)));
      const cell = element("td", { title: `${shown(token)} ← ${shown(source)}: ${percent(weight)}` });
      cell.style.setProperty("--weight", weight.toFixed(3));
      return cell;
    });
    return element("tr", {}, element("th", { scope: "row" }, button), ...cells);
  });
  explain(HINT, element("tr", {}, element("td", {}), ...columns), ...rows);
}

function weightOf(layer, head, row, column) {
  const { heads, queries, keys, weights } = attention.cross;
  return weights[((layer * heads + head) * queries + row) * keys + column];
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

function percent(share) {
  return share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
}

/** Lists the tokens that might follow the first ones of an answer, with the texts they lead to. */
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
    const begin = tokens.slice(0, prefix.length + 1);
    const share = percent(Math.exp(token_scores[prefix.length]));
    const item = choice(share, marked(text ?? "", tokens, prefix.length), () => onChoice(begin));
    // The text may end here; nothing goes on from there.
    item.firstChild.disabled = begin.length <= prefix.length;
    return item;
  });
  $("#alternatives").replaceChildren(...items);
}

/** A text with one of its tokens marked; plain where tokens are not parts of it as written. */
function marked(text, tokens, index) {
  const parts = [tokens.slice(0, index), tokens.slice(index, index + 1), tokens.slice(index + 1)];
  const [before, token, after] = parts.map(joined);
  if ((before + token + after).trim() !== text) return [text];
  return [before.trimStart(), element("strong", {}, index ? token : token.trimStart()), after];
}
