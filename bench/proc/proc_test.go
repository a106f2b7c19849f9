package proc_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"twotier/bench/proc"
)

func TestRedisStartsAndStops(t *testing.T) {
	r, err := proc.StartRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	cpu, err1 := r.CPU()
	rss, err2 := r.RSS()
	if rss < 1<<20 || errors.Join(err1, err2) != nil {
		t.Errorf("%d bytes, %v, %v, %v", rss, cpu, err1, err2)
	}
	if err := errors.Join(r.Stop(), r.Stop()); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", r.Addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

func TestCancelStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := proc.StartRedis(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = r.Stop() // says that it was cancelled
	if conn, err := net.Dial("tcp", r.Addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}
