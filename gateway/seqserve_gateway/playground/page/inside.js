// Inside an answer: what a token attended to, and which tokens might stand in its place.

import { element, walkWithArrows } from "./dom.js";
import { generate } from "./generation.js";
import { percent, shownToken, spaced } from "./token.js";

const ALTERNATIVES = 6;

export class Inside {
  #place;
  #abort = new AbortController();

  /** Takes its element, and what to do with a source and the tokens that an alternative begins with. */
  constructor(place, onChoice) {
    this.#place = place;
    this.onChoice = onChoice;
    walkWithArrows(place.querySelector(".alternatives"));
  }

  /** Hides what is shown, and cancels what is asked. */
  close() {
    this.#abort.abort();
    this.#place.hidden = true;
  }

  /** Shows one token of the answer to a text, whose pieces are given; throws the call's failure. */
  async open({ source, pieces }, options, hypothesis, index) {
    this.close();
    this.#place.hidden = false;
    const token = shownToken(hypothesis.tokens[index]);
    const score = hypothesis.token_scores[index];
    const share = score === null ? "given" : percent(score);
    this.#place.querySelector("h2").textContent = `“${token}”, ${share}`;
    this.#drawAttention(pieces, hypothesis.attention[index]);
    await this.#drawAlternatives(source, options, hypothesis.tokens.slice(0, index));
  }

  #drawAttention(pieces, weights) {
    const none = "This model has no scorer.onnx, so there is no attention.";
    const attended = (weights ? pieces : []).map((piece, key) => {
      const share = `${(100 * weights[key]).toFixed(0)} %`;
      const shown = element("span", { role: "listitem", title: share }, shownToken(piece));
      shown.setAttribute("aria-label", `${shownToken(piece)}, ${share}`);
      shown.style.setProperty("--weight", weights[key].toFixed(3));
      return shown;
    });
    this.#place.querySelector(".attended").replaceChildren(...(weights ? attended : [none]));
  }

  async #drawAlternatives(source, options, prefix) {
    const list = this.#place.querySelector(".alternatives");
    list.replaceChildren(element("li", {}, "…"));
    this.#abort = new AbortController();
    const asked = { ...options, return_alternatives: true, num_hypotheses: ALTERNATIVES };
    if (prefix.length) asked.target_prefix_tokens = prefix;
    try {
      for await (const { result } of generate({ source, options: asked }, this.#abort.signal)) {
        const rows = result?.hypotheses.map((each) => this.#alternative(each, source, prefix.length));
        if (rows) list.replaceChildren(...rows);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      list.replaceChildren();
      throw error;
    }
  }

  #alternative(hypothesis, source, index) {
    const begin = hypothesis.tokens.slice(0, index + 1);
    const share = element("span", {}, percent(hypothesis.token_scores[index]));
    const text = element("span", { dir: "auto" }, ...marked(hypothesis, index));
    const button = element("button", { type: "button" }, share, text);
    // The sentence may end here; nothing goes on from there.
    button.disabled = begin.length <= index;
    button.addEventListener("click", () => this.onChoice(source, begin));
    return element("li", {}, button);
  }
}

/** The text with the alternative token marked; plain where tokens are not parts of it as written. */
function marked({ text, tokens }, index) {
  const parts = [tokens.slice(0, index), tokens.slice(index, index + 1), tokens.slice(index + 1)];
  const [before, token, after] = parts.map(spaced);
  if ((before + token + after).trim() !== text) return [text];
  return [before.trimStart(), element("strong", {}, index ? token : token.trimStart()), after];
}
