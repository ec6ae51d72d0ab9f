// The playground: sends what is typed to /v1 of its own address, and draws the answer.

import { close, joined, look } from "./attention.js";
import { send, stream } from "./calls.js";
import { $, choice, element, nameOf, offer, show } from "./dom.js";

const PAUSE_MS = 250;
const CALM_MS = 2000;
const OUTAGE_MS = 1000;
const EXAMPLES = {
  de: "Wenn ich mehr Zeit hätte, würde ich Klavier lernen.",
  en: "If I had more time, I would learn to play the piano.",
  es: "Si tuviera más tiempo, aprendería a tocar el piano.",
  fr: "Si j'avais plus de temps, j'apprendrais le piano.",
  it: "Se avessi più tempo, imparerei a suonare il pianoforte.",
  ja: "もっと時間があれば、ピアノを習います。",
  ko: "시간이 더 있으면 피아노를 배우고 싶다.",
  pt: "Se eu tivesse mais tempo, aprenderia a tocar piano.",
  ru: "Если бы у меня было больше времени, я бы научился играть на пианино.",
  zh: "如果我有更多时间，我会学弹钢琴。",
};

// --- The server: models, load, outages -----------------------------------------------------------

let models = [];
let isAway = false;
let timer = 0;

async function watch() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const answer = await (await send("models")).json();
    showServer(answer.models ?? []);
  } catch (error) {
    showOutage(error);
  }
  clearTimeout(timer);
  timer = setTimeout(watch, isAway ? OUTAGE_MS : CALM_MS);
}

function showServer(listed) {
  const ready = listed.filter((model) => model.state === "MODEL_STATE_READY");
  const sum = (field) => ready.reduce((total, model) => total + (model[field] ?? 0), 0);
  const count = ready.length === 1 ? "1 model" : `${ready.length} models`;
  const places = `${sum("slots_in_use")} of ${sum("slots")} places busy`;
  show($("#server"), `${count} ready; ${places}, ${sum("queue_depth")} waiting`);
  show($("#outage"), "");
  if (ready.map(keyOf).join() !== models.map(keyOf).join()) offerModels(ready);
  if (isAway) ask();
  isAway = false;
}

function showOutage(error) {
  if (error.code !== "UNAVAILABLE") return show($("#server"), error.message);
  const waits = "This page asks again every second; `seqserve serve` starts a server.";
  show($("#outage"), `No answer from the server. ${waits} (${error.message})`);
  show($("#server"), "not connected");
  isAway = true;
  clearTimeout(timer);
  timer = setTimeout(watch, OUTAGE_MS);
}

// --- Options -------------------------------------------------------------------------------------

const keyOf = (model) => `${model.name}/${model.version}`;
const ms = (duration) => `${duration.toFixed(duration < 10 ? 1 : 0)} ms`;
const chosenModel = () => models.find((model) => keyOf(model) === $("#model").value);

/** The pair of a model, such as English → German. */
function pairOf({ source_languages: sources = [], target_languages: targets = [] }) {
  if (!sources.length || !targets.length) return "";
  const named = (codes) => (codes.length > 2 ? `${codes.length} languages` : codes.map(nameOf).join(", "));
  return `${named(sources)} → ${named(targets)}`;
}

function offerModels(ready) {
  models = ready;
  const standard = models.find((model) => model.is_default);
  const labelOf = (model) => [pairOf(model), `${keyOf(model)} (${model.precision})`].filter(Boolean).join(": ");
  const choices = models.map((model) => [keyOf(model), labelOf(model)]);
  offer($("#model"), [["", standard ? pairOf(standard) || standard.name : "as the server chooses"], ...choices]);
  offerLanguages();
}

function offerLanguages() {
  const model = chosenModel() ?? models.find((each) => each.is_default);
  for (const [id, codes] of [["#from", model?.source_languages], ["#to", model?.target_languages]]) {
    // A model of one language need not be told.
    $(id).parentElement.hidden = (codes ?? []).length < 2;
    offer($(id), [["", "–"], ...(codes ?? []).map((code) => [code, nameOf(code)])]);
  }
  const sources = $("#from").value ? [$("#from").value] : (model?.source_languages ?? []);
  const texts = sources.map((code) => EXAMPLES[code.toLowerCase().split(/[_-]/)[0]]);
  const example = texts.includes(EXAMPLES.en) ? EXAMPLES.en : texts.find(Boolean);
  $("#try").hidden = !example;
  $("#example").textContent = example ?? "";
}

const languages = () => ({
  ...($("#from").value && { source_language: $("#from").value }),
  ...($("#to").value && { target_language: $("#to").value }),
});

/** The request for a source; what is not set is left to the model. */
function requestOf(source, prefix) {
  const options = languages();
  const terms = $("#terms").value.split(",").map((pair) => pair.split("=").map((text) => text.trim()));
  const known = terms.filter(([term, target]) => term && target);
  const count = Math.min($("#count").valueAsNumber || 1, 16);
  const beam = Math.min($("#beam").valueAsNumber || 0, 16);
  if (beam || count > 1) options.beam_size = Math.max(beam, count);
  if (count > 1) options.num_hypotheses = count;
  if (known.length) options.terms = known.map(([term, target]) => ({ source: term, target }));
  if (prefix.length) options.target_prefix_tokens = prefix;
  const model = chosenModel();
  return { ...(model && { model: model.name, version: model.version }), source, options };
}

// --- Answers -------------------------------------------------------------------------------------

let abort = new AbortController();
let asked = "";

/** Asks for all of the text, or goes on from the first tokens of the answer to a part of it. */
async function ask(source = $("#source").value, prefix = []) {
  abort.abort();
  const { signal } = (abort = new AbortController());
  const request = requestOf(source, prefix);
  asked = JSON.stringify(request);
  close();
  $("#times").hidden = $("#code").hidden = $("#click").hidden = true;
  for (const id of ["#answer", "#hypotheses"]) $(id).replaceChildren();
  show($("#failure"), "");
  $("#prefix").hidden = !prefix.length;
  $("#prefix span").textContent = `Goes on from “${joined(prefix).trim()}”.`;
  if (!source.trim()) return $("#answer").setAttribute("aria-busy", "false");
  showCode(request);
  $("#answer").setAttribute("aria-busy", "true");
  const began = performance.now();
  let first = 0;
  try {
    for await (const { piece, result } of stream("generate:stream", request, signal)) {
      const passed = performance.now() - began;
      if (piece?.text) $("#answer").append(piece.text);
      first ||= passed;
      if (!result) continue;
      showTimes(result, first, passed);
      showResult(result, source);
    }
  } catch (error) {
    fail(error);
  }
  if (!signal.aborted) $("#answer").setAttribute("aria-busy", "false");
}

function fail(error) {
  if (error.code === "UNAVAILABLE") showOutage(error);
  else if (error.name !== "AbortError") show($("#failure"), error.message);
}

function showTimes(result, first, passed) {
  const { queue_ms = 0, encode_ms = 0, decode_ms = 0 } = result.timings ?? {};
  const rest = Math.max(0, passed - queue_ms - encode_ms - decode_ms);
  const times = { waited: queue_ms, read: encode_ms, wrote: decode_ms, network: rest };
  const parts = Object.entries(times).map(([name, time]) => {
    const part = element("span", { className: name, title: `${name} ${ms(time)}` });
    part.style.flexGrow = time;
    return part;
  });
  $("#times .bar").replaceChildren(...parts);
  const server = `waited ${ms(queue_ms)}, read ${ms(encode_ms)}, wrote ${ms(decode_ms)}`;
  const pieces = `${result.source_tokens ?? 0} word pieces read, ${result.generated_tokens ?? 0} written`;
  const browser = `first words after ${first.toFixed(0)} ms, all after ${passed.toFixed(0)} ms`;
  show($("#latency"), `${keyOf({ ...result, name: result.model })}: ${browser} (${server}); ${pieces}`);
  $("#times").hidden = false;
}

function showResult(result, source) {
  const rows = result.hypotheses.map((hypothesis, rank) => {
    const score = hypothesis.normalized_score?.toFixed(3) ?? "–";
    return choice(score, [hypothesis.text ?? ""], () => showHypothesis(result, source, rank));
  });
  if (rows.length > 1) $("#hypotheses").replaceChildren(...rows);
  showHypothesis(result, source, 0);
}

/** Shows a hypothesis; its sentences are buttons that show their attention. */
function showHypothesis(result, source, rank) {
  const hypothesis = result.hypotheses[rank];
  const [read, written] = [[...source], [...(hypothesis.text ?? "")]];
  const whole = { source_end: read.length, target_end: written.length, hypotheses: [hypothesis] };
  const parts = [];
  let end = 0;
  for (const segment of result.segments?.length ? result.segments : [whole]) {
    const { source_begin = 0, source_end, target_begin = 0, target_end } = segment;
    parts.push(written.slice(end, target_begin).join(""));
    const [inner, part] = [written.slice(target_begin, target_end), read.slice(source_begin, source_end)];
    const best = segment.hypotheses?.[0];
    const button = element("button", { type: "button" }, ...marked(inner, best?.kept, best?.warnings));
    button.addEventListener("click", () => open(result, part.join(""), inner.join(""), button));
    parts.push(button);
    end = target_end ?? 0;
  }
  $("#answer").replaceChildren(...parts, written.slice(end).join(""));
  for (const row of $("#hypotheses").children) {
    row.firstChild.setAttribute("aria-pressed", String(row === $("#hypotheses").children[rank]));
  }
  const unmet = hypothesis.unmet_terms ?? [];
  const pairs = unmet.map((term) => `${term.source} = ${term.target}`).join(", ");
  const differing = (hypothesis.warnings ?? []).map(shownWarning).join(", ");
  const lacks = pairs && `Terms that it lacks: ${pairs}`;
  show($("#failure"), [lacks, differing && `Numbers that differ: ${differing}`].filter(Boolean).join(". "));
  $("#click").hidden = $("#answer").children.length < 2;
  $("#answer button").click();
}

/** Shows the attention of a part of the answer, which may go on from one of its tokens. */
function open(result, source, target, button) {
  for (const each of $("#answer").querySelectorAll("button")) {
    each.setAttribute("aria-pressed", String(each === button));
  }
  const { model, version } = result;
  const isPivot = Boolean(result.legs?.length);
  look({ model, version, source, target, ...languages() }, isPivot, (tokens) => ask(source, tokens)).catch(fail);
}

function shownWarning({ source_text, target_text }) {
  return `${source_text ?? "nothing"} → ${target_text ?? "nothing"}`;
}

/** A text with what it keeps of the source and what differs marked; offsets count code points. */
function marked(written, kept = [], warnings = []) {
  const parts = [];
  let end = 0;
  const placed = kept
    .filter((part) => part.placement !== "PLACEMENT_LOST")
    .map((part) => ({ ...part, title: `kept: ${part.placement.replace("PLACEMENT_", "").toLowerCase()}` }));
  for (const each of warnings.filter((each) => each.target_text)) {
    placed.push({ ...each, title: `differs: ${shownWarning(each)}`, className: "differs" });
  }
  placed.sort((one, other) => (one.target_begin ?? 0) - (other.target_begin ?? 0));
  for (const { target_begin = 0, target_end, title, className = "" } of placed) {
    if (target_begin < end) continue;
    parts.push(written.slice(end, target_begin).join(""));
    parts.push(element("mark", { title, className }, written.slice(target_begin, target_end).join("")));
    end = target_end;
  }
  return [...parts, written.slice(end).join("")];
}

function showCode(request) {
  const quoted = JSON.stringify(request, null, 1).replaceAll("'", "'\\''");
  const address = new URL("v1/generate", location);
  $("#code pre").textContent = `curl ${address} -H 'Content-Type: application/json' -d '${quoted}'`;
  $("#code").hidden = false;
}

// --- What the reader does ------------------------------------------------------------------------

let pause = 0;
let composes = false;

/** Asks when the typing pauses, and never while an input method composes a character. */
function wait() {
  clearTimeout(pause);
  if (composes) return;
  pause = setTimeout(() => {
    if (JSON.stringify(requestOf($("#source").value, [])) !== asked) ask();
  }, PAUSE_MS);
}

$("#source").addEventListener("compositionstart", () => {
  composes = true;
  clearTimeout(pause);
});
$("#source").addEventListener("compositionend", () => {
  composes = false;
  wait();
});
$("#source").addEventListener("input", wait);
$("#source").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || composes) return;
  event.preventDefault();
  clearTimeout(pause);
  ask();
});
$("#send").addEventListener("click", () => ask());
$("#model").addEventListener("change", offerLanguages);
$("#from").addEventListener("change", offerLanguages);
$("#options").addEventListener("change", wait);
$("#options").addEventListener("input", wait);
$("#options").addEventListener("submit", (event) => event.preventDefault());
$("#prefix button").addEventListener("click", () => ask());
$("#example").addEventListener("click", () => {
  $("#source").value = $("#example").textContent;
  ask();
});
document.addEventListener("visibilitychange", watch);
watch();
