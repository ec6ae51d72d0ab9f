// Elements of the page. Text of users and models is only ever text, never markup.

/** Makes an element with properties and children, which are elements or texts. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Shows a text, or hides the element that has none. */
export function showText(place, text) {
  place.textContent = text;
  place.hidden = !text;
}

/** Makes the options of a select, and keeps the chosen one if it is still there. */
export function setChoices(select, choices) {
  const chosen = select.value;
  select.replaceChildren(...choices.map(([value, label]) => new Option(label, value)));
  if (choices.some(([value]) => value === chosen)) select.value = chosen;
}

/** Lets the arrow keys go from button to button of a place. */
export function walkWithArrows(place) {
  place.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    const buttons = [...place.querySelectorAll("button:not(:disabled)")];
    const next = buttons[buttons.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}
