// Joins the parts of the page.

import { examplesFor } from "./examples.js";
import { Pane } from "./pane.js";
import { Server } from "./server.js";
import { Source } from "./source.js";

const place = document.querySelector("#panes");
const compare = document.querySelector("#compare");
const onOutage = (error) => server.failed(error);
const panes = [new Pane("Answer", onOutage), new Pane("Answer to compare", onOutage)];
const shown = () => panes.slice(0, compare.checked ? 2 : 1);

const source = new Source(() => shown().forEach((pane) => pane.ask(source.question)));

panes[0].onModel = (model, language) => source.offer(examplesFor(model, language));

const server = new Server(
  (models) => panes.forEach((pane) => (pane.models = models)),
  () => shown().forEach((pane) => pane.askAgain()),
);

compare.addEventListener("change", () => {
  place.replaceChildren(...shown().map((pane) => pane.element));
  panes[1].stop();
  if (!compare.checked) return;
  panes[1].preferModel(0);
  panes[1].ask(source.question);
});

place.replaceChildren(panes[0].element);
server.ask();
