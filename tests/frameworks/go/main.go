// Command agent plays a task with an agent of eino. The harness in python/program.py starts it and describes the
// protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
)

func main() {
	if err := run(context.Background(), newHarness(os.Stdin, os.Stdout)); err != nil {
		log.Fatal(err)
	}
}

// run answers the requests of the harness until it closes the input.
func run(ctx context.Context, h *harness) error {
	var given play
	if err := h.receive(&given); err != nil {
		return fmt.Errorf("reading the description of the agent: %w", err)
	}
	c, err := newConversation(ctx, h, &given)
	if err != nil {
		return fmt.Errorf("creating the agent of %s: %w", given.Variant, err)
	}
	for {
		var asked request
		if err := h.receive(&asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		if err := h.send(c.respond(ctx, asked)); err != nil {
			return fmt.Errorf("writing a response: %w", err)
		}
	}
}
