// Whether the server answers, which models it has, and how busy they are. It is asked every two
// seconds while the page is looked at, and every second during an outage.

import { models } from "./generation.js";
import { showText } from "./dom.js";

const CALM_MS = 2000;
const OUTAGE_MS = 1000;

export class Server {
  #status = document.querySelector("#server");
  #outage = document.querySelector("#outage");
  #isAway = false;
  #timer = 0;
  #known = "";

  /** Takes what to do with a new list of models, and after an outage. */
  constructor(onModels, onReturn) {
    this.onModels = onModels;
    this.onReturn = onReturn;
    document.addEventListener("visibilitychange", () => this.ask());
  }

  /** Asks for the models, now and then again. */
  async ask() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    try {
      this.#answered(await models());
    } catch (error) {
      if (error.code === "UNAVAILABLE") this.failed(error);
      else showText(this.#status, error.message);
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.ask(), this.#isAway ? OUTAGE_MS : CALM_MS);
  }

  /** Shows that the server is away, and asks until it is back. */
  failed(error) {
    const wasAway = this.#isAway;
    this.#isAway = true;
    const waits = "This page asks again every second.";
    showText(this.#outage, `No answer from the server. ${waits} ${error.message}`);
    showText(this.#status, "not connected");
    if (!wasAway) this.#timer = setTimeout(() => this.ask(), OUTAGE_MS);
  }

  #answered({ target, models }) {
    const wasAway = this.#isAway;
    this.#isAway = false;
    showText(this.#outage, "");
    const ready = models.filter((model) => model.state === "ready");
    const count = ready.length === 1 ? "1 version" : `${ready.length} versions`;
    showText(this.#status, `${target}: ${count} ready; ${load(ready)}`);
    const known = JSON.stringify(ready.map(withoutLoad));
    if (known !== this.#known) this.onModels(ready);
    this.#known = known;
    if (wasAway) this.onReturn();
  }
}

/** Adds up the rows that run and the requests that wait. */
function load(models) {
  const sum = (field) => models.reduce((total, model) => total + model[field], 0);
  const rows = `${sum("slots_in_use")} of ${sum("slots")} rows run`;
  return `${rows}, ${sum("queue_depth")} requests wait`;
}

/** Gives what stays of a model while its load changes. */
function withoutLoad({ slots_in_use, queue_depth, ...facts }) {
  return facts;
}
