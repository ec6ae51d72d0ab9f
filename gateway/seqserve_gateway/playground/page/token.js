// Tokens as tokenizers write them: ▁ or Ġ is the space before a word.

const SPACE = /^[▁Ġ]/;

/** Whether a token begins a word. */
export const beginsWord = (token) => SPACE.test(token);

/** A token as people read it. */
export const shownToken = (token) => token.replace(SPACE, "") || "␣";

/** Tokens joined to a text, with the space before its first word. */
export const spaced = (tokens) => tokens.map((token) => token.replace(SPACE, " ")).join("");

/** A natural log-probability in per cent. */
export function percent(score) {
  if (score === null || score === undefined) return "–";
  const share = 100 * Math.exp(score);
  return share < 0.1 ? "< 0.1 %" : `${share.toFixed(1)} %`;
}
