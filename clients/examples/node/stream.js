// Text as it is decoded: node stream.js "We saw a good film."
// Leaving the loop, by break or by an error, cancels the call on the server.

import grpc from "@grpc/grpc-js";
import { connect, deadline } from "./service.js";

const source = process.argv[2] ?? "We saw a good film.";
const client = connect();
const call = client.generateStream({ source }, new grpc.Metadata(), deadline());

try {
  for await (const message of call) {
    if (message.event === "piece") {
      process.stdout.write(message.piece.text);
    } else {
      const { firstTokenMs, totalMs } = message.result.timings;
      console.log();
      console.error(`first token after ${firstTokenMs.toFixed(1)} ms, all after ${totalMs.toFixed(1)} ms`);
    }
  }
} catch (error) {
  console.error(`${grpc.status[error.code]}: ${error.details}`);
  process.exitCode = 1;
} finally {
  call.cancel();
  client.close();
}
