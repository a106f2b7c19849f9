package account

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// AcceptConns calls serve with each connection to ln until ln is closed. While connections can't be
// accepted, most likely for lack of file descriptors, it calls failed once and tries again.
func AcceptConns(ln net.Listener, closing *atomic.Bool, failed func(error), serve func(net.Conn)) {
	wait := time.Duration(0)
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			wait = 0
			serve(nc)
		case closing.Load(), errors.Is(err, net.ErrClosed):
			return
		default:
			if wait == 0 {
				failed(err)
			}
			wait = min(wait+5*time.Millisecond, time.Second)
			time.Sleep(wait)
		}
	}
}

// AwaitEnd waits for running. If ctx ends first, it calls cut, and returns ctx's error at the end.
func AwaitEnd(ctx context.Context, running *sync.WaitGroup, cut func()) error {
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		cut()
		<-done
		return ctx.Err()
	}
}
