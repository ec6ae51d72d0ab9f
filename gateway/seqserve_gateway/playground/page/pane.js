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
  // The sentence that an answer goes on in; empty for all of the source.
  #part = "";
  #question = { source: "", options: {} };

  /** Takes what to do with an error that says that the server is away. */
  constructor(name, onOutage) {
    this.element = document.querySelector("#pane").content.firstElementChild.cloneNode(true);
    this.element.setAttribute("aria-label", name);
    this.#find = (selector) => this.element.querySelector(selector);
    this.onOutage = onOutage;
    /** Called with the model, and the language to translate from, when they may have changed. */
    this.onModel = () => {};
    this.#inside = new Inside(this.#find(".inside"), (...begin) => this.#goOnFrom(...begin));
    this.#find(".model").addEventListener("change", () => this.#chooseModel());
    this.#find(".from select").addEventListener("change", () => {
      this.#tellModel();
      this.ask(this.#question);
    });
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
    const standard = models.find((model) => model.is_default);
    const unnamed = `the server's default${standard ? `, ${standard.name}` : ""}`;
    setChoices(this.#find(".model"), [["", unnamed], ...choices]);
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
    this.#part = "";
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

  get #model() {
    const chosen = this.#find(".model").value;
    return this.#models.find((each) => (chosen ? keyOf(each) === chosen : each.is_default));
  }

  #tellModel() {
    this.onModel(this.#model, this.#find(".from select").value);
  }

  #offerLanguages() {
    const model = this.#model;
    for (const [place, codes] of [
      [".from", model?.source_languages ?? []],
      [".to", model?.target_languages ?? []],
    ]) {
      // A model of one language need not be told.
      this.#find(place).hidden = codes.length < 2;
      setChoices(this.#find(`${place} select`), [["", "–"], ...codes.map((code) => [code, code])]);
    }
    this.#tellModel();
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

  #goOnFrom(source, tokens) {
    this.#part = source;
    this.#prefix = tokens;
    this.#run();
    this.#find(".prefix button").focus();
  }

  async #run() {
    this.stop();
    const abort = (this.#abort = new AbortController());
    const { options } = this.#question;
    const source = this.#part || this.#question.source;
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
    const source = this.#part || this.#question.source;
    const parts = result.segments.length
      ? partsOf(result, source).map((part) => this.#shownPart(result, part))
      : [this.#shown(result, { source, pieces: result.source_pieces }, result.hypotheses[rank])];
    this.#find(".answer").replaceChildren(...parts.flat());
    const unmet = result.hypotheses[rank].unmet_terms.map((pair) => pair.join(" = ")).join(", ");
    showText(this.#find(".failure"), unmet && `Terms that it lacks: ${unmet}`);
  }

  /** A segment of the answer, or text between two, or text that the model has not read. */
  #shownPart(result, part) {
    return part.hypothesis ? this.#shown(result, part, part.hypothesis) : [part.text];
  }

  /** The tokens of a hypothesis as buttons, or its text where it keeps parts of the source. */
  #shown(result, part, hypothesis) {
    if (hypothesis.kept.length) return withKept(hypothesis);
    const tokens = hypothesis.tokens.map((token, index) => {
      const button = element("button", { type: "button" }, shownToken(token));
      button.title = percent(hypothesis.token_scores[index]);
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => this.#open(button, result, part, hypothesis, index));
      return button;
    });
    return inWords(hypothesis.tokens, tokens);
  }

  async #open(button, result, part, hypothesis, index) {
    press(button, this.#find(".answer"));
    const { model, version } = result;
    const options = { ...this.#options, segmentation: "none", model, version };
    try {
      await this.#inside.open(part, options, hypothesis, index);
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

/** Divides an answer into its segments and the text between them; offsets count code points. */
function partsOf(result, source) {
  const read = [...source];
  const written = [...result.hypotheses[0].text];
  const cut = (text, begin, end) => text.slice(begin, end).join("");
  const parts = [];
  let end = 0;
  for (const segment of result.segments) {
    parts.push({ text: cut(written, end, segment.target_begin) });
    parts.push({
      text: cut(written, segment.target_begin, segment.target_end),
      source: cut(read, segment.source_begin, segment.source_end),
      pieces: segment.source_pieces,
      hypothesis: segment.hypotheses[0],
    });
    end = segment.target_end;
  }
  return [...parts, { text: cut(written, end, written.length) }];
}

const PLACES = {
  generated: "kept: the model wrote it",
  aligned: "kept: put in place of what the model wrote from it",
  inserted: "kept: put behind the word before it",
};

/** The text of a hypothesis with what it keeps marked; offsets count code points. */
function withKept(hypothesis) {
  const written = [...hypothesis.text];
  const parts = [];
  let end = 0;
  const placed = hypothesis.kept.filter((part) => part.placement in PLACES);
  placed.sort((one, other) => one.target_begin - other.target_begin);
  for (const part of placed) {
    parts.push(written.slice(end, part.target_begin).join(""));
    parts.push(element("mark", { title: PLACES[part.placement] }, part.text));
    end = part.target_end;
  }
  return [...parts, written.slice(end).join("")];
}

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
