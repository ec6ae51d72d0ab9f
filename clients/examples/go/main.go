// Calls a seqserve server: one answer, then one as a stream.
//
//	go run . "The coffee tastes good."
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	seqservev1 "example.com/seqserve-example/gen/seqserve/v1"
)

// gRPC's own limit is 4 MiB, which attention, or many hypotheses of a long text, exceed.
const maxAnswerBytes = 64 << 20

func main() {
	target := os.Getenv("SEQSERVE_TARGET")
	if target == "" {
		target = "localhost:50051"
	}
	source := "The coffee tastes good."
	if len(os.Args) > 1 {
		source = os.Args[1]
	}

	connection, err := grpc.NewClient(
		target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := seqservev1.NewGenerationServiceClient(connection)

	if err := generate(client, source); err != nil {
		log.Fatal(err)
	}
	if err := stream(client, source); err != nil {
		log.Fatal(err)
	}
}

// generate asks once and prints the best hypothesis.
func generate(client seqservev1.GenerationServiceClient, source string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	longest := int32(64)
	answer, err := client.Generate(ctx, &seqservev1.GenerateRequest{
		Source:  source,
		Options: &seqservev1.GenerationOptions{MaxDecodingLength: &longest},
	})
	if err != nil {
		return err
	}
	best := answer.Hypotheses[0]
	fmt.Println(best.Text)
	fmt.Printf("%s/%d, %s, %d tokens in %.1f ms\n",
		answer.Model, answer.Version, best.StopReason, answer.GeneratedTokens, answer.Timings.TotalMs)
	return nil
}

// stream prints text as it is decoded. Returning early cancels the call on the server.
func stream(client seqservev1.GenerationServiceClient, source string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	messages, err := client.GenerateStream(ctx, &seqservev1.GenerateRequest{Source: source})
	if err != nil {
		return err
	}
	for {
		message, err := messages.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if piece := message.GetPiece(); piece != nil {
			fmt.Print(piece.Text)
		}
		if result := message.GetResult(); result != nil {
			fmt.Printf("\nfirst token after %.1f ms\n", result.Timings.FirstTokenMs)
		}
	}
}
