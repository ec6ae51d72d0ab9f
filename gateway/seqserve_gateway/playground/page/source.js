// The text and its options. It calls back when the typing pauses, or at once for Enter; never while
// an input method composes a character, as for Korean.

import { element } from "./dom.js";

const PAUSE_MS = 250;

export class Source {
  #text = document.querySelector("#source");
  #beam = document.querySelector("#beam");
  #hypotheses = document.querySelector("#hypotheses");
  #examples = document.querySelector("#examples");
  #terms = document.querySelector("#terms");
  #timer = 0;
  #sent = "";

  /** Takes what to do with a new question. */
  constructor(onChange) {
    this.onChange = onChange;
    let composes = false;
    this.#text.addEventListener("compositionstart", () => {
      composes = true;
      clearTimeout(this.#timer);
    });
    this.#text.addEventListener("compositionend", () => {
      composes = false;
      this.#wait();
    });
    this.#text.addEventListener("input", () => composes || this.#wait());
    this.#text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || composes) return;
      event.preventDefault();
      this.#sent = "";
      this.#send();
    });
    // Not while somebody types the beam's number.
    this.#beam.addEventListener("change", () => (this.#beam.value = this.#width));
    this.#hypotheses.addEventListener("input", () => (this.#beam.value = this.#width));
    for (const control of [this.#beam, this.#hypotheses, this.#terms]) {
      control.addEventListener("input", () => this.#wait());
    }
  }

  /** Offers texts to click. */
  offer(texts) {
    const buttons = texts.map((text) => element("button", { type: "button", dir: "auto" }, text));
    for (const button of buttons) {
      button.addEventListener("click", () => {
        this.#text.value = button.textContent;
        this.#sent = "";
        this.#send();
      });
    }
    this.#examples.replaceChildren(...buttons);
    this.#examples.hidden = !texts.length;
  }

  /** The source and the decoding options; the model recommends those that are not set. */
  get question() {
    const terms = this.#pairs();
    const hypotheses = wholeNumber(this.#hypotheses);
    const beam = this.#width;
    const options = {};
    if (beam) options.beam_size = beam;
    if (hypotheses > 1) options.num_hypotheses = hypotheses;
    if (Object.keys(terms).length) options.terms = terms;
    return { source: this.#text.value, options };
  }

  /** The beam, at least as wide as hypotheses need it; empty as the model recommends. */
  get #width() {
    const needed = wholeNumber(this.#hypotheses);
    if (!this.#beam.value) return needed > 1 ? needed : "";
    return Math.max(wholeNumber(this.#beam), needed);
  }

  #pairs() {
    const lines = this.#terms.value.split("\n").map((line) => line.split("="));
    const pairs = lines.map(([source, ...target]) => [source.trim(), target.join("=").trim()]);
    return Object.fromEntries(pairs.filter(([source, target]) => source && target));
  }

  #wait() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#send(), PAUSE_MS);
  }

  #send() {
    clearTimeout(this.#timer);
    const asked = JSON.stringify(this.question);
    if (asked === this.#sent) return;
    this.#sent = asked;
    this.onChange();
  }
}

function wholeNumber(input) {
  const number = Math.trunc(input.valueAsNumber);
  return number >= 1 ? Math.min(number, Number(input.max)) : 1;
}
