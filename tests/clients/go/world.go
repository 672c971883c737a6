package main

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// The largest answer that is taken; grpc's own limit is 4 MiB.
const mostReceived = 32 << 20

// Where the servers are, and what they can be entered with.
type world struct {
	Servers map[string]string `json:"servers"`
	CaFile  string            `json:"ca_file"`
	Keys    map[string]string `json:"keys"`

	channels map[string]*grpc.ClientConn
}

// The channel to a server: TLS, verified against the world's authority and for `localhost`.
func (w *world) channel(server string) (*grpc.ClientConn, error) {
	if channel, ok := w.channels[server]; ok {
		return channel, nil
	}
	address, ok := w.Servers[server]
	if !ok {
		return nil, fmt.Errorf("the world has no server %s", server)
	}
	tls, err := credentials.NewClientTLSFromFile(w.CaFile, "localhost")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.CaFile, err)
	}
	channel, err := grpc.NewClient(address, grpc.WithTransportCredentials(tls),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostReceived)))
	if err != nil {
		return nil, err
	}
	if w.channels == nil {
		w.channels = map[string]*grpc.ClientConn{}
	}
	w.channels[server] = channel
	return channel, nil
}

func (w *world) close() {
	for _, channel := range w.channels {
		_ = channel.Close()
	}
}
