// A text of any length: node document.js < source.txt > target.txt
// Each line is a request of one call; the server divides it into sentences, and white space stays.

import { once } from "node:events";
import { text } from "node:stream/consumers";
import grpc from "@grpc/grpc-js";
import { connect } from "./service.js";

const lines = (await text(process.stdin)).split("\n");
const client = connect();
const call = client.generateBulk();

// The server reads on as it answers, so writing waits for it.
async function send() {
  for (const [id, source] of lines.entries()) {
    const request = { source, options: { segmentation: "sentences" } };
    if (source.trim() && !call.write({ id, request })) await once(call, "drain");
  }
  call.end();
}

async function receive() {
  for await (const { id, outcome } of call) {
    if (outcome.response) {
      lines[id] = outcome.response.hypotheses[0].text;
    } else {
      console.error(`line ${id + 1} stays as it is: ${outcome.failure.message}`);
      process.exitCode = 1;
    }
  }
}

try {
  await Promise.all([send(), receive()]);
  process.stdout.write(lines.join("\n"));
} catch (error) {
  console.error(`${grpc.status[error.code]}: ${error.details}`);
  process.exitCode = 1;
} finally {
  call.cancel();
  client.close();
}
