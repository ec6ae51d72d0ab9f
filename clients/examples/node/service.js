// The generation service of a seqserve server, from the .proto files: no code is generated.

import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const PROTO = fileURLToPath(new URL("../../../proto", import.meta.url));

const definition = protoLoader.loadSync("seqserve/v1/generation.proto", {
  includeDirs: [PROTO],
  enums: String, // stopReason as "STOP_REASON_EOS", not as a number
  longs: Number,
  defaults: true, // fields that were not sent appear with their default
  oneofs: true, // message.event says which of piece and result a message holds
});

const { GenerationService } = grpc.loadPackageDefinition(definition).seqserve.v1;

export const TARGET = process.env.SEQSERVE_TARGET ?? "localhost:50051";

// gRPC's own limit on an answer is 4 MiB, which attention, or many hypotheses of a long text, exceed.
const OPTIONS = { "grpc.max_receive_message_length": 64 << 20 };

export function connect(target = TARGET) {
  return new GenerationService(target, grpc.credentials.createInsecure(), OPTIONS);
}

// Without a deadline a call waits for ever.
export function deadline(seconds = 30) {
  return { deadline: Date.now() + 1000 * seconds };
}
