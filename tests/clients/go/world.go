package main

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Maximum size of an answer. The default of gRPC is 4 MiB.
const mostReceived = 32 << 20

// The addresses of the servers, and the keys.
type world struct {
	Servers map[string]string `json:"servers"`
	CaFile  string            `json:"ca_file"`
	Keys    map[string]string `json:"keys"`

	channels map[string]*grpc.ClientConn
}

// Returns the channel to a server. TLS verifies the certificate with the world's CA and the name `localhost`.
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
