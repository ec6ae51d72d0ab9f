// Elements of the page. Text of users and models is only ever text, never markup.

export const $ = (selector) => document.querySelector(selector);

export function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Shows a text, or hides the element if there is none. */
export function show(place, text) {
  place.textContent = text;
  place.hidden = !text;
}

/** Fills a select; keeps the chosen value if it is still there. */
export function offer(select, choices) {
  const chosen = select.value;
  select.replaceChildren(...choices.map(([value, label]) => new Option(label, value)));
  if (choices.some(([value]) => value === chosen)) select.value = chosen;
}

/** An item of a list to choose from: a figure, and a text that may be marked. */
export function choice(figure, texts, onClick) {
  const button = element("button", { type: "button" });
  button.append(element("span", {}, figure), element("span", { dir: "auto" }, ...texts));
  button.addEventListener("click", onClick);
  return element("li", {}, button);
}

const names = new Intl.DisplayNames(["en"], { type: "language" });

/** The English name of a language; its code where the browser knows none. */
export function nameOf(code) {
  try {
    return names.of(code.replaceAll("_", "-"));
  } catch {
    return code;
  }
}
