package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"twotier/bench/proc"
)

const sample = `{"key":"0000000000000001"}`

// startNop starts a server that returns to everybody what the server at addr answers to an add, and makes sure that it
// does so byte by byte.
func startNop(ctx context.Context, addr string) (*proc.Server, error) {
	want, err := exchange(addr)
	if err != nil {
		return nil, err
	}
	bin, err := proc.Build(ctx, ".", "./cmd/nop")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(bin))
	_, body, _ := bytes.Cut(want, []byte("\r\n\r\n"))
	nop, err := proc.StartServer(ctx, bin, "-body", string(body))
	if err != nil {
		return nil, err
	}
	got, err := exchange(nop.Addr)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("nop answers %q, twotier %q", got, want)
	}
	if err != nil {
		return nil, errors.Join(err, nop.Stop())
	}
	return nop, nil
}

// exchange sends one add and returns every byte of the answer.
func exchange(addr string) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = fmt.Fprintf(conn, "POST /v1/add HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\n"+
		"Content-Length: %d\r\n\r\n%s", addr, len(sample), sample)
	if err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) {
		return nil, fmt.Errorf("exchange: %w: %s", err, answer)
	}
	return answer, nil
}
