// Calls of /v1, which the process that serves the page has too.

const GONE = { code: "UNAVAILABLE", detail: "the playground does not answer; `seqserve playground` starts it" };

export class Problem extends Error {
  constructor({ code, detail }) {
    super(`${code}: ${detail}`);
    this.code = code;
  }
}

const unlessAborted = (error) => {
  throw error.name === "AbortError" ? error : new Problem(GONE);
};

/** Sends a request to /v1; a problem is thrown, and aborting the signal cancels the call. */
export async function send(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const request = body && { method: "POST", headers, body: JSON.stringify(body), signal };
  const response = await fetch(`v1/${path}`, request).catch(unlessAborted);
  if (response.ok) return response;
  const unknown = { code: `HTTP ${response.status}`, detail: response.statusText };
  throw new Problem(await response.json().catch(() => unknown));
}

/** Yields the messages of a stream of server-sent events. */
export async function* stream(path, body, signal) {
  const response = await send(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(unlessAborted);
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const message = JSON.parse(block.slice(block.indexOf("data: ") + 6));
      if (block.startsWith("event: error")) throw new Problem(message);
      yield message;
    }
  }
}
