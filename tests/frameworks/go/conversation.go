package main

import (
	"context"
	"errors"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/schema"
)

// conversation is the agent with the messages of all its runs.
type conversation struct {
	harness  *harness
	agent    adk.Agent
	messages []adk.Message
}

// respond returns the line that answers a request.
func (c *conversation) respond(ctx context.Context, asked request) line {
	if asked.Stored {
		return line{"stored": c.results()}
	}
	answer, err := c.ask(ctx, asked.Ask)
	var rejected *openai.APIError
	if errors.As(err, &rejected) {
		return line{"error": rejected.Message}
	}
	if err != nil {
		return line{"error": err.Error()}
	}
	return line{"answer": answer}
}

// ask runs the agent, and adds the input of the user and all messages of the run to the conversation.
func (c *conversation) ask(ctx context.Context, text string) (string, error) {
	c.messages = append(c.messages, schema.UserMessage(text))
	events := adk.NewRunner(ctx, adk.RunnerConfig{Agent: c.agent}).Run(ctx, c.messages)
	for event, more := events.Next(); more; event, more = events.Next() {
		if event.Err != nil {
			return "", event.Err
		}
		message, err := event.Output.MessageOutput.GetMessage()
		if err != nil {
			return "", err
		}
		c.messages = append(c.messages, message)
		if message.Role == schema.Assistant {
			if err := c.harness.send(line{"used": message.ResponseMeta.Usage.PromptTokens}); err != nil {
				return "", err
			}
		}
	}
	return c.messages[len(c.messages)-1].Content, nil
}

// results returns the results of tools in the conversation.
func (c *conversation) results() []string {
	results := []string{}
	for _, message := range c.messages {
		if message.Role == schema.Tool {
			results = append(results, message.Content)
		}
	}
	return results
}
