// A complete agent on Palimpsest with the SDK of Anthropic. See ../../README.md.
//
//	tests/clients/go/build "$PWD/target/clients/go"
//	ANTHROPIC_API_KEY=… target/clients/go/agent "Why did the build fail?"
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"

	pb "example.com/yours/gen/palimpsest/context/v1"
	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var (
	session = cmp.Or(os.Getenv("PALIMPSEST_SESSION"), "projects/demo/sessions/agent")
	model   = cmp.Or(os.Getenv("MODEL"), "claude-sonnet-4-5")
	address = cmp.Or(os.Getenv("PALIMPSEST_ADDRESS"), "127.0.0.1:50051")
	tools   = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
		Name: "read_log", Description: anthropic.String("Reads the build's log."),
		InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}}}}}
)

func readLog() string {
	var lines strings.Builder
	for n := range 5_000 {
		fmt.Fprintf(&lines, "step %d: compiled, and nothing was wrong\n", n)
	}
	return lines.String() + "disk full\n"
}

// Wraps an Anthropic message or response without changes.
func asInput(message []byte) []*pb.MessageInput {
	payload := &pb.Payload{Format: pb.Format_FORMAT_ANTHROPIC_MESSAGES, Json: message}
	return []*pb.MessageInput{{Content: &pb.MessageInput_Payload{Payload: payload}}}
}

// Runs a tool. Palimpsest replaces a large result by a preview and a reference.
func resultOf(
	ctx context.Context, palimpsest pb.ContextServiceClient, call anthropic.ToolUseBlock,
) anthropic.ContentBlockParamUnion {
	content := &pb.ToolResultContent{Content: &pb.ToolResultContent_Text{Text: readLog()}}
	stored := must(palimpsest.PersistToolResult(ctx, &pb.PersistToolResultRequest{
		Session: session, Call: &pb.CallRef{ToolUseId: call.ID}, ToolName: call.Name, Content: content}))
	shown := cmp.Or(stored.GetReplacement(), content)
	return anthropic.NewToolResultBlock(call.ID, shown.GetText(), false)
}

// Answers a tool call. Palimpsest runs its own tools, this program runs all others.
func answerOf(
	ctx context.Context, palimpsest pb.ContextServiceClient, own map[string]bool, call anthropic.ToolUseBlock,
) anthropic.ContentBlockParamUnion {
	if !own[call.Name] {
		return resultOf(ctx, palimpsest, call)
	}
	reply := must(palimpsest.CallTool(ctx, &pb.CallToolRequest{Session: session, Call: &pb.CallToolRequest_ToolUse{
		ToolUse: &pb.ToolUseBlock{ToolUseId: call.ID, ToolName: call.Name, InputJson: call.Input}}}))
	result := reply.GetToolResult()
	return anthropic.NewToolResultBlock(call.ID, result.GetContent().GetText(), result.GetIsError())
}

func answer(ctx context.Context, palimpsest pb.ContextServiceClient, text string) string {
	provider := anthropic.NewClient()
	// The tools of Palimpsest, with which the model reads removed content.
	own, offered := map[string]bool{}, slices.Clone(tools)
	for _, tool := range must(palimpsest.ListTools(ctx, &pb.ListToolsRequest{
		Session: session, Format: pb.Format_FORMAT_ANTHROPIC_MESSAGES})).Tools {
		own[tool.Name] = true
		offered = append(offered, param.Override[anthropic.ToolUnionParam](json.RawMessage(tool.DefinitionJson)))
	}
	var array []anthropic.MessageParam
	var etag []byte
	next := anthropic.NewUserMessage(anthropic.NewTextBlock(text))
	for {
		view := must(palimpsest.PrepareContext(ctx, &pb.PrepareContextRequest{
			Session: session, KnownEtag: etag, Messages: asInput(must(json.Marshal(next)))}))
		array = array[:view.KeepMessages]
		for _, message := range view.MessagesJson {
			array = append(array, param.Override[anthropic.MessageParam](json.RawMessage(message)))
		}
		etag = view.Etag
		response := must(provider.Messages.New(ctx, anthropic.MessageNewParams{
			Model: model, MaxTokens: 1_024, Messages: array, Tools: offered}))
		// Appends the complete response. Palimpsest reads its usage, so token counts are exact afterwards.
		must(palimpsest.AppendMessages(ctx, &pb.AppendMessagesRequest{
			Session: session, Messages: asInput([]byte(response.RawJSON()))}))
		var said strings.Builder
		var results []anthropic.ContentBlockParamUnion
		for _, block := range response.Content {
			switch block := block.AsAny().(type) {
			case anthropic.TextBlock:
				said.WriteString(block.Text)
			case anthropic.ToolUseBlock:
				results = append(results, answerOf(ctx, palimpsest, own, block))
			}
		}
		if len(results) == 0 {
			return said.String()
		}
		next = anthropic.NewUserMessage(results...)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	channel := must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))
	palimpsest := pb.NewContextServiceClient(channel)
	fmt.Println(answer(context.Background(), palimpsest, strings.Join(os.Args[1:], " ")))
}
