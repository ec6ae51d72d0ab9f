// One answer: node generate.js "The coffee tastes good."

import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { connect, deadline } from "./service.js";

const source = process.argv[2] ?? "The coffee tastes good.";
const client = connect();
const generate = promisify(client.generate.bind(client));

try {
  const answer = await generate({ source, options: { maxDecodingLength: 64 } }, new grpc.Metadata(), deadline());
  const [best] = answer.hypotheses;
  console.log(best.text);
  console.error(
    `${answer.model}/${answer.version}, ${best.stopReason}, ` +
      `${answer.generatedTokens} tokens in ${answer.timings.totalMs.toFixed(1)} ms`,
  );
} catch (error) {
  console.error(`${grpc.status[error.code]}: ${error.details}`);
  process.exitCode = 1;
} finally {
  client.close();
}
