package proc_test

import (
	"errors"
	"net"
	"testing"

	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/internal/testing/must"
)

func TestRedisStartsAndStops(t *testing.T) {
	r, err := proc.StartRedis()
	must.Succeed(t, err)
	conn, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	cpu, err1 := r.CPU()
	rss, err2 := r.RSS()
	if rss < 1<<20 || cpu < 0 || errors.Join(err1, err2) != nil {
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

func TestKilledIsNoErrorOfStop(t *testing.T) {
	r, err := proc.StartRedis()
	must.Succeed(t, err)
	r.Kill()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

func TestWhatDoesNotStartSaysWhy(t *testing.T) {
	for _, bin := range []string{"/bin/false", "/nowhere/at-all"} {
		if s, err := proc.StartServer(bin); err == nil {
			t.Errorf("%s: started, listens at %s", bin, s.Addr)
		}
	}
}
