package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	// Registers the messages and services, so that they can be looked up by name.
	_ "example.com/yours/gen/palimpsest/context/v1"
)

// A call in flight: its request and the answers received so far.
type call struct {
	method protoreflect.MethodDescriptor
	cancel context.CancelFunc
	stream grpc.ClientStream // Nil for a unary call, and for one that is over.
}

// The outcome of a step.
type outcome struct {
	streaming bool
	answers   []any // As proto3 JSON.
	err       error // A status, or nil.
	header    metadata.MD
	trailer   metadata.MD
}

// Finds a method by the name that a step uses.
func methodOf(name string) (protoreflect.MethodDescriptor, error) {
	service, method, _ := strings.Cut(name, ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("palimpsest.context.v1." + service))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if described, ok := found.(protoreflect.ServiceDescriptor); ok {
		if method := described.Methods().ByName(protoreflect.Name(method)); method != nil {
			return method, nil
		}
	}
	return nil, fmt.Errorf("the contract has no %s", name)
}

// Returns an empty message of the type in the stubs.
func messageOf(descriptor protoreflect.MessageDescriptor) (proto.Message, error) {
	found, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
	if err != nil {
		return nil, err
	}
	return found.New().Interface(), nil
}

// Returns the context of a step's call: deadline, cancellation, key and headers.
func contextOf(step *step, world *world) (context.Context, context.CancelFunc, error) {
	headers := metadata.New(step.Headers)
	if step.Key != nil {
		key, ok := world.Keys[*step.Key]
		if !ok {
			return nil, nil, fmt.Errorf("the world has no key %s", *step.Key)
		}
		headers.Set("authorization", "Bearer "+key)
	}
	ctx := metadata.NewOutgoingContext(context.Background(), headers)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(step.DeadlineMs)*time.Millisecond)
	if step.CancelAfterMs > 0 {
		time.AfterFunc(time.Duration(step.CancelAfterMs)*time.Millisecond, cancel)
	}
	return ctx, cancel, nil
}

// Starts a call with a request in proto3 JSON. A status is part of the outcome. An error ends the runner.
func begin(step *step, world *world, request []byte) (*call, outcome, error) {
	method, err := methodOf(step.Call)
	if err != nil {
		return nil, outcome{}, err
	}
	asked, err := messageOf(method.Input())
	if err != nil {
		return nil, outcome{}, err
	}
	if err := protojson.Unmarshal(request, asked); err != nil {
		return nil, outcome{}, err
	}
	channel, err := world.channel(step.Server)
	if err != nil {
		return nil, outcome{}, err
	}
	ctx, cancel, err := contextOf(step, world)
	if err != nil {
		return nil, outcome{}, err
	}
	begun := &call{method: method, cancel: cancel}
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	if method.IsStreamingServer() {
		refused := begun.open(ctx, channel, path, asked)
		return begun, outcome{streaming: true, err: refused}, nil
	}
	made, err := begun.once(ctx, channel, path, asked)
	return begun, made, err
}

func (c *call) open(ctx context.Context, channel *grpc.ClientConn, path string, request proto.Message) error {
	stream, err := channel.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return err
	}
	// io.EOF means that the server has ended the call. The next receive returns the status.
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	c.stream = stream
	return stream.CloseSend()
}

func (c *call) once(
	ctx context.Context, channel *grpc.ClientConn, path string, request proto.Message,
) (made outcome, _ error) {
	answer, err := messageOf(c.method.Output())
	if err != nil {
		return made, err
	}
	made.err = channel.Invoke(ctx, path, request, answer, grpc.Header(&made.header), grpc.Trailer(&made.trailer))
	if made.err != nil {
		return made, nil
	}
	read, err := asJSON(answer)
	made.answers = []any{read}
	return made, err
}

// Reads `count` more answers of a stream, or all if `count` is 0.
func (c *call) read(count int) (outcome, error) {
	made := outcome{streaming: true}
	for c.stream != nil && (count == 0 || len(made.answers) < count) {
		answer, err := messageOf(c.method.Output())
		if err != nil {
			return made, err
		}
		if err := c.stream.RecvMsg(answer); err != nil {
			if !errors.Is(err, io.EOF) {
				made.err = err
			}
			made.header, _ = c.stream.Header()
			made.trailer = c.stream.Trailer()
			c.stream = nil
			return made, nil
		}
		read, err := asJSON(answer)
		if err != nil {
			return made, err
		}
		made.answers = append(made.answers, read)
	}
	if c.stream != nil {
		made.header, _ = c.stream.Header()
	}
	return made, nil
}

// Returns a message as the values of its proto3 JSON.
func asJSON(message proto.Message) (any, error) {
	written, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	var read any
	return read, decode(written, &read)
}
