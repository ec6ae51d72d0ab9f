// One model and its answer; two of them stand side by side.

import { element, setChoices, showText, walkWithArrows } from "./dom.js";
import { generate } from "./generation.js";
import { Inside } from "./inside.js";
import { beginsWord, percent, shownToken, spaced } from "./token.js";

export class Pane {
  #find;
  #models = [];
  #inside;
  #abort = new AbortController();
  #prefix = [];
  #question = { source: "", options: {} };

  /** Takes what to do with an error that says that the server is away. */
  constructor(name, onOutage) {
    this.element = document.querySelector("#pane").content.firstElementChild.cloneNode(true);
    this.element.setAttribute("aria-label", name);
    this.#find = (selector) => this.element.querySelector(selector);
    this.onOutage = onOutage;
    this.#inside = new Inside(this.#find(".inside"), (tokens) => this.#goOnFrom(tokens));
    this.#find(".model").addEventListener("change", () => this.#chooseModel());
    this.#find(".from select").addEventListener("change", () => this.ask(this.#question));
    this.#find(".to select").addEventListener("change", () => this.ask(this.#question));
    this.#find(".prefix button").addEventListener("click", () => this.ask(this.#question));
    walkWithArrows(this.#find(".answer"));
    walkWithArrows(this.#find(".hypotheses"));
    for (const figure of this.element.querySelectorAll("figure")) copies(figure);
  }

  /** Offers models. */
  set models(models) {
    this.#models = models;
    const labels = models.map((model) => `${model.name}/${model.version} (${model.precision})`);
    const choices = labels.map((label, index) => [keyOf(models[index]), label]);
    setChoices(this.#find(".model"), [["", "the server's default"], ...choices]);
    this.#offerLanguages();
  }

  /** Chooses the version of this place in the list, if nothing is chosen. */
  preferModel(index) {
    const model = this.#models[index];
    if (model && !this.#find(".model").value) this.#find(".model").value = keyOf(model);
    this.#offerLanguages();
  }

  /** Asks a question from the start, in place of the one before. */
  ask(question) {
    this.#question = question;
    this.#prefix = [];
    return this.#run();
  }

  /** Asks again what was asked, from the same tokens. */
  askAgain() {
    return this.#run();
  }

  /** Cancels the call. */
  stop() {
    this.#abort.abort();
    this.#inside.close();
  }

  #chooseModel() {
    this.#offerLanguages();
    this.ask(this.#question);
  }

  #offerLanguages() {
    const chosen = this.#find(".model").value;
    const model = this.#models.find((each) => (chosen ? keyOf(each) === chosen : each.is_default));
    for (const [place, codes] of [
      [".from", model?.source_languages ?? []],
      [".to", model?.target_languages ?? []],
    ]) {
      // A model of one language need not be told.
      this.#find(place).hidden = codes.length < 2;
      setChoices(this.#find(`${place} select`), [["", "–"], ...codes.map((code) => [code, code])]);
    }
  }

  get #options() {
    const chosen = this.#models.find((each) => keyOf(each) === this.#find(".model").value);
    const options = chosen ? { model: chosen.name, version: chosen.version } : {};
    const from = this.#find(".from select").value;
    const to = this.#find(".to select").value;
    if (from) options.source_language = from;
    if (to) options.target_language = to;
    return options;
  }

  #goOnFrom(tokens) {
    this.#prefix = tokens;
    this.#run();
    this.#find(".prefix button").focus();
  }

  async #run() {
    this.stop();
    const abort = (this.#abort = new AbortController());
    const { source, options } = this.#question;
    this.#clear();
    if (!source.trim()) return;
    const asked = { ...this.#options, ...options };
    if (this.#prefix.length) asked.target_prefix_tokens = this.#prefix;
    this.#find(".answer").setAttribute("aria-busy", "true");
    try {
      await this.#read(generate({ source, options: asked }, abort.signal));
    } catch (error) {
      if (error.name !== "AbortError") this.#fail(error);
    } finally {
      if (abort === this.#abort) this.#find(".answer").setAttribute("aria-busy", "false");
    }
  }

  async #read(lines) {
    const began = performance.now();
    let first = 0;
    for await (const { call, piece, result } of lines) {
      const passed = performance.now() - began;
      if (call) this.#showCode(call);
      if (piece) {
        first ||= passed;
        this.#find(".answer").append(piece);
        showText(this.#find(".latency"), `first text after ${first.toFixed(0)} ms`);
      }
      if (result) this.#showResult(result, first || passed, passed);
    }
  }

  #clear() {
    this.#find(".answer").replaceChildren();
    this.#find(".hypotheses").hidden = true;
    this.#find(".code").hidden = true;
    this.#find(".latency").textContent = "";
    showText(this.#find(".failure"), "");
    this.#find(".prefix").hidden = !this.#prefix.length;
    this.#find(".prefix span").textContent = `Goes on from “${spaced(this.#prefix).trim()}”.`;
  }

  #fail(error) {
    if (error.code === "UNAVAILABLE") this.onOutage(error);
    else showText(this.#find(".failure"), error.message);
  }

  #showResult(result, first, passed) {
    const { queue_ms, encode_ms, decode_ms } = result.timings;
    const server = `queue ${ms(queue_ms)}, encode ${ms(encode_ms)}, decode ${ms(decode_ms)}`;
    const total = `first text after ${first.toFixed(0)} ms, all after ${passed.toFixed(0)} ms`;
    const tokens = `${result.source_tokens} tokens in, ${result.generated_tokens} out`;
    const latency = `${result.model}/${result.version}: ${total} (${server}); ${tokens}`;
    showText(this.#find(".latency"), latency);
    this.#showHypothesis(result, 0);
    const many = result.hypotheses.length > 1;
    const rows = result.hypotheses.map((each, rank) => this.#hypothesis(result, each, rank));
    this.#find(".hypotheses").replaceChildren(...rows);
    this.#find(".hypotheses").hidden = !many;
  }

  #hypothesis(result, hypothesis, rank) {
    const score = element("span", {}, hypothesis.normalized_score?.toFixed(3) ?? "–");
    const text = element("span", { dir: "auto" }, hypothesis.text);
    const button = element("button", { type: "button" }, score, text);
    button.setAttribute("aria-pressed", String(rank === 0));
    button.addEventListener("click", () => {
      press(button, this.#find(".hypotheses"));
      this.#showHypothesis(result, rank);
    });
    return element("li", {}, button);
  }

  #showHypothesis(result, rank) {
    this.#inside.close();
    const hypothesis = result.hypotheses[rank];
    const tokens = hypothesis.tokens.map((token, index) => {
      const button = element("button", { type: "button" }, shownToken(token));
      button.title = percent(hypothesis.token_scores[index]);
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => this.#open(button, result, hypothesis, index));
      return button;
    });
    this.#find(".answer").replaceChildren(...inWords(hypothesis.tokens, tokens));
    const unmet = hypothesis.unmet_terms.map((pair) => pair.join(" = ")).join(", ");
    showText(this.#find(".failure"), unmet && `Terms that it lacks: ${unmet}`);
  }

  async #open(button, result, hypothesis, index) {
    press(button, this.#find(".answer"));
    const { model, version } = result;
    const options = { ...this.#options, segmentation: "none", model, version };
    try {
      await this.#inside.open(this.#question.source, options, result, hypothesis, index);
    } catch (error) {
      this.#fail(error);
    }
  }

  #showCode(call) {
    const [python, grpcurl] = this.element.querySelectorAll("pre");
    python.textContent = call.python;
    grpcurl.textContent = call.grpcurl;
    this.#find(".code").hidden = false;
  }
}

// Of languages without spaces, a whole sentence would be one word.
const LONGEST_WORD = 16;

const keyOf = (model) => `${model.name}/${model.version}`;
const ms = (duration) => `${duration.toFixed(1)} ms`;

/** Puts the buttons of a word's tokens, up to a length, where no line breaks between them. */
function inWords(tokens, buttons) {
  const parts = [];
  buttons.forEach((button, index) => {
    const begins = index > 0 && beginsWord(tokens[index]);
    if (begins) parts.push(" ");
    if (!index || begins || parts.at(-1).textContent.length > LONGEST_WORD) {
      parts.push(element("span", { className: "word" }));
    }
    parts.at(-1).append(button);
  });
  return parts;
}

function press(button, group) {
  for (const each of group.querySelectorAll("button")) {
    each.setAttribute("aria-pressed", String(each === button));
  }
}

function copies(figure) {
  const button = figure.querySelector("button");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(figure.querySelector("pre").textContent);
      button.textContent = "Copied";
    } catch {
      // Only pages of this machine, or with TLS, may write to the clipboard.
      getSelection().selectAllChildren(figure.querySelector("pre"));
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}
