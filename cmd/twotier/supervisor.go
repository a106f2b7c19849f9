package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// tellWithin bounds how long a supervisor that does not listen can hold up the node.
const tellWithin = time.Second

// tell tells the supervisor that started this process, if it wants to know (NOTIFY_SOCKET, as
// systemd with Type=notify), about a state: see sd_notify(3).
func (s *server) tell(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if err := notify(name, state); err != nil {
		s.log.Warn("the supervisor at NOTIFY_SOCKET can't be told", "state", state, "error", err)
	}
}

// notify sends a state to the socket of a supervisor. The kernel queues few messages, usually ten,
// and makes whoever sends one more wait until the supervisor reads: in daemon.SdNotify for ever.
func notify(socket, state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(tellWithin)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

// reloading says that files are being read again. Type=notify-reload wants the time with it.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return daemon.SdNotifyReloading
	}
	return fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000)
}

// startWatchdog starts runWatchdog, and returns what stops it.
func (s *server) startWatchdog() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { s.runWatchdog(ctx) })
	return func() { cancel(); done.Wait() }
}

// runWatchdog tells the supervisor that the node is alive, twice as often as it asks for with
// WATCHDOG_USEC, until ctx is done. A node whose locks nobody releases any more does not say so,
// and is started again; one that is not ready, because Redis is down for example, does.
func (s *server) runWatchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("WATCHDOG_USEC can't be used", "error", err)
	}
	if every <= 0 {
		return
	}
	tick := time.NewTicker(max(every/2, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.node.Stats() // takes the lock of every partition
			s.tell(daemon.SdNotifyWatchdog)
		}
	}
}
