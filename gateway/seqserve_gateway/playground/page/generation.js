// Calls of the server behind the page.

/** An error of a call, with what to do about it. */
export class CallFailure extends Error {
  constructor({ code, details, advice = "" }) {
    super(advice ? `${advice} (${code}: ${details})` : `${code}: ${details}`);
    this.code = code;
  }
}

const GONE = {
  code: "UNAVAILABLE",
  details: "the playground itself does not answer",
  advice: "`seqserve playground` starts it again.",
};

/** Yields the lines of an answer: {call}, {piece}, {result}; aborting the signal cancels the call. */
export async function* generate(question, signal) {
  const response = await send("/api/generate", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
    signal,
  });
  for await (const line of linesOf(response)) {
    if (line.error) throw new CallFailure(line.error);
    yield line;
  }
}

/** Returns the target and the models of the server. */
export async function models() {
  return (await send("/api/models")).json();
}

async function send(address, request) {
  let response;
  try {
    response = await fetch(address, request);
  } catch (error) {
    throw error.name === "AbortError" ? error : new CallFailure(GONE);
  }
  if (response.ok) return response;
  let answer;
  try {
    answer = await response.json();
  } catch {
    answer = { error: { code: `HTTP ${response.status}`, details: response.statusText } };
  }
  throw new CallFailure(answer.error);
}

async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await read(reader);
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : new CallFailure(GONE);
  }
}
